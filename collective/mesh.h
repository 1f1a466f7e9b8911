// Meshes: workers or actors in several dimensions, with a group along each.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "collective/group.h"
#include "collective/mesh_points.h"

namespace troupe {

/// Members in rows and columns, the last dimension first: with {{"dp", 2}, {"pp", 3}} member number dp * 3 +
/// pp is at (dp, pp). A value, as Group.
///
///   const Mesh mesh(cluster, {{"dp", 2}, {"pp", 2}});
///   const auto summing = mesh["dp"].all_reduce(gradients);  // in a method: with those that differ in "dp"
///   alone
///
/// Where members have several points along a dimension (MeshDim::turns), sizes and coordinates are those of
/// points. An actor at a point has the mesh in its turn (parallel::spawn()), and groups are of those that
/// have the same: there is none along that dimension, where a member would meet itself.
class Mesh {
 public:
  Mesh() = default;  ///< without members
  /// `workers`: empty for all. `invalid`, saying what is needed, unless the sizes, divided by their turns,
  /// have their number as product.
  Mesh(internal::actors::Worker& cluster, std::vector<MeshDim> dims, const std::vector<Place>& workers = {},
       const std::string& name = "mesh");
  Mesh(Group all, std::vector<MeshDim> dims);

  /// Of the member that asks (Group::rank()): those that differ from it in that dimension alone.
  Group operator[](std::string_view dim) const;
  /// The group of the member that asks, and those that differ from it in these dimensions alone, the last
  /// dimension of the mesh first.
  Group across(const std::vector<std::string>& dims) const;
  /// All groups along that dimension.
  std::vector<Group> groups(std::string_view dim) const;
  /// All members, in one group: of one turn.
  const Group& all() const& { return all_; }
  Group all() && { return std::move(all_); }
  const std::vector<MeshDim>& dims() const& { return points_.dims(); }
  std::vector<MeshDim> dims() && { return std::move(points_).dims(); }
  size_t size(std::string_view dim) const { return points_.size(dim); }
  /// Where the member that asks is in that dimension.
  size_t coordinate(std::string_view dim) const {
    return points_.coordinate(points_.point(all_.rank(), turn_), dim);
  }

  // ---- not for users: spawn()
  /// The same mesh for actors of that turn, whose groups have that name.
  Mesh in_turn(size_t turn, const std::string& name) const;

 private:
  friend Codec<Mesh>;
  Group along(std::string_view dim, size_t rank) const;
  void check_meets(std::string_view dim) const;
  Group all_;
  MeshPoints points_, members_;
  size_t turn_ = 0;
};

template <>
struct Codec<Mesh> {
  static std::string name() { return "mesh"; }
  static Value to(Mesh m);
  static Mesh from(Value v);
};

}  // namespace troupe
