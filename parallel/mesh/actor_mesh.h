// An actor at every point of a mesh of workers, and calls to all of them.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "collective/mesh.h"
#include "core/base/seed_stream.h"
#include "rref/here.h"
#include "rref/joint_call.h"
#include "rref/rref.h"

namespace troupe::parallel {

/// An argument that differs along a dimension: value i for the actors at coordinate i.
template <class V>
struct Along {
  std::string dim;
  std::vector<V> values;
};
template <class V>
Along<V> along(std::string dim, std::vector<V> values) {
  return {std::move(dim), std::move(values)};
}
template <class A>
struct IsAlong : std::false_type {};
template <class V>
struct IsAlong<Along<V>> : std::true_type {};

/// References to the actors of a mesh; a value.
///
///   const auto model = parallel::spawn<Gpt>(cluster.here(), mesh, width);
///   const auto losses = all(model.call<&Gpt::loss>(along("dp", xs), along("dp", ys))).get();
template <class T>
class ActorMesh {
 public:
  ActorMesh(MeshPoints points, std::vector<RRef<T>> actors)
      : points_(std::move(points)),
        actors_(std::move(actors)),
        joint_(actors_.empty() ? nullptr : std::make_shared<internal::rref::JointCalls>(actors_[0])) {}

  /// For optim::Distributed<O> optimizer(model, {...}): all actors.
  operator std::vector<AnyRef>() const { return {actors_.begin(), actors_.end()}; }
  /// In the order of the points.
  const std::vector<RRef<T>>& actors() const& { return actors_; }
  std::vector<RRef<T>> actors() && { return std::move(actors_); }
  const MeshPoints& points() const& { return points_; }
  MeshPoints points() && { return std::move(points_); }

  /// Those at coordinate i of a dimension, which they have no more.
  ActorMesh at(std::string_view dim, size_t i) const {
    points_.check_coordinate(dim, i);
    std::vector<RRef<T>> some;
    for (size_t p = 0; p < actors_.size(); ++p)
      if (points_.coordinate(p, dim) == i) some.push_back(actors_[p]);
    return {points_.without(dim), std::move(some), joint_};
  }
  /// `invalid` if there are others.
  const RRef<T>& only() const& {
    points_.check_only();
    return actors_[0];
  }
  RRef<T> only() && { return std::as_const(*this).only(); }

  /// Calls a method of all, which may meet in it, with the same arguments but for those that are along() a
  /// dimension. The results are in the order of the points. If one fails, what others wait for in conversions
  /// (tp::sum, ...) of that call fails with its reason.
  template <auto M, class... A>
  auto call(const A&... args) const {
    using Result = decltype(actors_[0].template call<M>(argument(args, 0)...));
    std::vector<Result> results;
    (check(args), ...);
    if (actors_.empty()) return results;
    const uint64_t method = internal::net::method_id(internal::actors::method_name<M>());
    internal::rref::JointCall joint = is_all_ ? joint_->all(method) : joint_->some(method);
    for (size_t p = 0; p < actors_.size(); ++p)
      results.push_back(joint.part(actors_[p], [&](uint64_t number) {
        return internal::rref::within(actors_[p], number).template call<M>(argument(args, p)...);
      }));
    return results;
  }

  /// What all gave, in lists along a dimension: one for each point of the others.
  template <class V>
  std::vector<std::vector<V>> lists(std::string_view dim, const std::vector<V>& values) const {
    points_.check_all(values.size());
    std::vector<std::vector<V>> all;
    for (size_t p = 0; p < actors_.size(); ++p) {
      if (points_.coordinate(p, dim)) continue;
      auto& list = all.emplace_back();
      for (size_t k = 0; k < points_.size(dim); ++k) list.push_back(values[p + k * points_.stride(dim)]);
    }
    return all;
  }

 private:
  ActorMesh(MeshPoints points, std::vector<RRef<T>> some, std::shared_ptr<internal::rref::JointCalls> joint)
      : points_(std::move(points)), actors_(std::move(some)), joint_(std::move(joint)), is_all_(false) {}
  template <class A>
  void check(const A& arg) const {
    if constexpr (IsAlong<A>::value) points_.check_count(arg.dim, arg.values.size());
  }
  template <class A>
  const auto& argument(const A& arg, size_t p) const {
    if constexpr (IsAlong<A>::value)
      return arg.values[points_.coordinate(p, arg.dim)];
    else
      return arg;
  }
  MeshPoints points_;
  std::vector<RRef<T>> actors_;
  std::shared_ptr<internal::rref::JointCalls> joint_;  // of all actors that it was made of
  bool is_all_ = true;
};

/// The mesh of workers under a name that no other one of the cluster has, so that what meets in its groups is
/// of one model. `invalid` if it is one of actors.
Mesh mesh_of_its_own(const Here& here, const Mesh& workers);
/// Part of every worker's set-up: it counts such meshes.
void install_meshes(internal::actors::Worker& worker);
/// Numbers of its workers, in the order of the points.
std::vector<WorkerId> workers_of(const Mesh& mesh);

/// Makes T(mesh, args...) on each worker of a mesh. Each actor finds its coordinates, mesh.coordinate("dp"),
/// and its groups, mesh["tp"], in its constructor and methods: `mesh` has a name of its own, and members of
/// its groups are the actors that are made here. All draw random numbers from the same seed, as copies of one
/// module have to.
template <class T, class... A>
ActorMesh<T> spawn(const Here& here, const Mesh& workers, const A&... args) {
  const Mesh mesh = mesh_of_its_own(here, workers);
  std::vector<RRef<T>> actors;
  const Generator::Position numbers = current_stream().position();
  for (const WorkerId w : workers_of(mesh)) {
    current_stream().set_position(numbers);
    actors.push_back(here.template spawn<T>(w, mesh, args...));
  }
  return {MeshPoints(mesh.dims()), std::move(actors)};
}

}  // namespace troupe::parallel
