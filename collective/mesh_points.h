// The dimensions of a mesh, and where its points are in them.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A dimension of a mesh.
struct MeshDim {
  std::string name;  ///< "dp"
  size_t size = 0;
  /// Each member has so many points along it: of {"pp", 4, 2} the first member has 0 and 2, the second 1 and
  /// 3. One dimension of a mesh may have more than one.
  size_t turns = 1;
  /// Every other turn goes back: of {"pp", 4, 2, true} the first member has 0 and 3, the second 1 and 2.
  bool back = false;
};

/// The place, along the dimension, of the member that has this coordinate, and the other way round.
size_t member_at(const MeshDim& dim, size_t coordinate);
size_t coordinate_of(const MeshDim& dim, size_t member, size_t turn);

/// "dp=2,tp=4" as the dimensions of those names, in their order; what the text leaves out has size 1, but the
/// last of them, which has what the others leave of `members`. `invalid` for anything else.
std::vector<MeshDim> mesh_dims(std::string_view text, const std::vector<std::string>& names,
                               size_t members = 1);

/// 1 where there is none of that name.
size_t size_along(const std::vector<MeshDim>& dims, std::string_view name);

/// Points in rows and columns, the last dimension first.
class MeshPoints {
 public:
  MeshPoints() = default;  ///< one point, of no dimension
  explicit MeshPoints(std::vector<MeshDim> dims) : dims_(std::move(dims)) {}
  const std::vector<MeshDim>& dims() const& { return dims_; }
  std::vector<MeshDim> dims() && { return std::move(dims_); }
  size_t size() const;
  /// How many points each member has.
  size_t turns() const;
  /// The points of each member's first turn, one for each member.
  MeshPoints members() const;
  /// Who has a point, and in which turn.
  size_t member(size_t point) const;
  size_t turn(size_t point) const;
  /// The point that a member has in a turn.
  size_t point(size_t member, size_t turn) const;
  /// "dp 2 x pp 2".
  std::string str() const;
  /// `invalid`, listing them, if there is no such dimension.
  size_t index(std::string_view dim) const;
  size_t size(std::string_view dim) const { return dims_[index(dim)].size; }
  size_t coordinate(size_t point, std::string_view dim) const;
  /// All those that differ from a point in that dimension alone, and itself, in the order of their
  /// coordinate.
  std::vector<size_t> along(size_t point, std::string_view dim) const;
  /// All those that differ from a point in these dimensions alone, and itself, in their order.
  std::vector<size_t> across(size_t point, const std::vector<std::string>& dims) const;
  MeshPoints without(std::string_view dim) const;
  /// How far points lie apart that differ by one in that dimension.
  size_t stride(std::string_view dim) const;
  // `invalid`, unless the dimension has coordinate i; has that many; and there is one point.
  void check_coordinate(std::string_view dim, size_t i) const;
  void check_count(std::string_view dim, size_t count) const;
  void check_only() const;
  void check_all(size_t count) const;

 private:
  std::vector<MeshDim> dims_;
};

}  // namespace troupe
