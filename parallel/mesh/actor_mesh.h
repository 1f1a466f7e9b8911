// An actor at every point of a mesh of workers, and calls to all of them.
#pragma once
#include <functional>
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

/// The actors of a mesh, whatever type they have, which all copies of an ActorMesh share.
class MeshActors {
 public:
  virtual ~MeshActors() = default;
  virtual std::vector<AnyRef> all() const = 0;
  /// Others, made as these were on that mesh of workers. Empty if nobody knows how.
  virtual std::vector<AnyRef> make(const Mesh& workers) const = 0;
  /// These from now on, at these points.
  virtual void take(const MeshPoints& points, const std::vector<AnyRef>& now) = 0;
};

/// References to the actors of a mesh; copies refer to the same, also when others have taken their places
/// (Pipelines::replace(), Job::attempt()). Belongs to one thread.
///
///   const auto model = parallel::spawn<Gpt>(cluster.here(), mesh, width);
///   const auto losses = all(model.call<&Gpt::loss>(along("dp", xs), along("dp", ys))).get();
template <class T>
class ActorMesh {
 public:
  using Make = std::function<std::vector<RRef<T>>(const Mesh& workers)>;
  /// `make`: others on another mesh; empty: nobody knows how.
  ActorMesh(MeshPoints points, std::vector<RRef<T>> actors, Make make = {})
      : of_(std::make_shared<Actors>()) {
    if (!actors.empty()) joint_ = std::make_shared<internal::rref::JointCalls>(actors[0]);
    of_->points = std::move(points), of_->now = std::move(actors), of_->how = std::move(make);
  }

  /// For optim::Distributed<O> optimizer(model, {...}): all actors.
  operator std::vector<AnyRef>() const { return of_->all(); }
  /// In the order of the points, as they are now.
  const std::vector<RRef<T>>& actors() const& { return of_->now; }
  std::vector<RRef<T>> actors() && { return of_->now; }
  const MeshPoints& points() const& { return of_->points; }
  MeshPoints points() && { return of_->points; }

  /// The actors at coordinate i of a dimension, which they have no more.
  ActorMesh at(std::string_view dim, size_t i) const {
    points().check_coordinate(dim, i);
    ActorMesh some(*this);
    some.of_ = of_->part(std::string(dim), i), some.is_all_ = false;
    return some;
  }
  /// `invalid` if there are others.
  const RRef<T>& only() const& {
    points().check_only();
    return of_->now[0];
  }
  RRef<T> only() && { return std::as_const(*this).only(); }

  /// Calls a method of all, which may meet in it, with the same arguments but for those that are along() a
  /// dimension. The results are in the order of the points. If one fails, what others wait for in conversions
  /// (tp::sum, ...) of that call fails with its reason.
  template <auto M, class... A>
  auto call(const A&... args) const {
    const std::vector<RRef<T>>& actors = of_->now;
    using Result = decltype(actors[0].template call<M>(argument(args, 0)...));
    std::vector<Result> results;
    (check(args), ...);
    if (actors.empty()) return results;
    const uint64_t method = internal::net::method_id(internal::actors::method_name<M>());
    internal::rref::JointCall joint = is_all_ ? joint_->all(method) : joint_->some(method);
    for (size_t p = 0; p < actors.size(); ++p)
      results.push_back(joint.part(actors[p], [&](uint64_t number) {
        return internal::rref::within(actors[p], number).template call<M>(argument(args, p)...);
      }));
    return results;
  }

  /// What all gave, in lists along a dimension: one for each point of the others.
  template <class V>
  std::vector<std::vector<V>> lists(std::string_view dim, const std::vector<V>& values) const {
    const MeshPoints& points = of_->points;
    points.check_all(values.size());
    std::vector<std::vector<V>> all;
    for (size_t p = 0; p < of_->now.size(); ++p) {
      if (points.coordinate(p, dim)) continue;
      auto& list = all.emplace_back();
      for (size_t k = 0; k < points.size(dim); ++k) list.push_back(values[p + k * points.stride(dim)]);
    }
    return all;
  }

  // ---- not for users: Pipelines
  /// Null for some of the actors of a mesh.
  std::shared_ptr<MeshActors> shared() const { return is_all_ ? of_ : nullptr; }

 private:
  struct Actors final : MeshActors {
    std::vector<AnyRef> all() const override { return {now.begin(), now.end()}; }
    std::vector<AnyRef> make(const Mesh& workers) const override {
      if (!how) return {};
      const auto made = how(workers);
      return {made.begin(), made.end()};
    }
    void take(const MeshPoints& others, const std::vector<AnyRef>& there) override {
      std::vector<RRef<T>> all;
      for (const AnyRef& a : there) all.push_back(a.as<T>());
      become(others, std::move(all));
    }
    void become(MeshPoints others, std::vector<RRef<T>> there) {
      points = std::move(others), now = std::move(there);
      for (const auto& [some, dim, i] : parts)
        if (const auto part = some.lock()) part->become(points.without(dim), at(dim, i));
    }
    std::shared_ptr<Actors> part(std::string dim, size_t i) {
      std::erase_if(parts, [](const auto& p) { return std::get<0>(p).expired(); });
      const auto some = std::make_shared<Actors>();
      some->become(points.without(dim), at(dim, i));
      parts.emplace_back(some, std::move(dim), i);
      return some;
    }
    std::vector<RRef<T>> at(const std::string& dim, size_t i) const {
      std::vector<RRef<T>> some;
      for (size_t p = 0; p < now.size(); ++p)
        if (points.coordinate(p, dim) == i) some.push_back(now[p]);
      return some;
    }
    MeshPoints points;
    std::vector<RRef<T>> now;
    Make how;
    std::vector<std::tuple<std::weak_ptr<Actors>, std::string, size_t>> parts;  // what at() gave
  };
  template <class A>
  void check(const A& arg) const {
    if constexpr (IsAlong<A>::value) of_->points.check_count(arg.dim, arg.values.size());
  }
  template <class A>
  const auto& argument(const A& arg, size_t p) const {
    if constexpr (IsAlong<A>::value)
      return arg.values[of_->points.coordinate(p, arg.dim)];
    else
      return arg;
  }
  std::shared_ptr<Actors> of_;
  std::shared_ptr<internal::rref::JointCalls> joint_;  // of all
  bool is_all_ = true;
};

/// The mesh of workers under a name that no other one of the cluster has, so that what meets in its groups is
/// of one model. `invalid` if it is one of actors.
Mesh mesh_of_its_own(const Here& here, const Mesh& workers);
/// Part of every worker's set-up: it counts such meshes.
void install_meshes(internal::actors::Worker& worker);
/// Numbers of the workers at its points, in their order.
std::vector<WorkerId> workers_of(const Mesh& mesh);
/// The mesh, as the actors of each turn get it.
std::vector<Mesh> mesh_by_turn(const Mesh& mesh);

/// Makes T(mesh, args...) at each point of a mesh, on its worker. Each actor finds its coordinates,
/// mesh.coordinate("dp"), and its groups, mesh["tp"], in its constructor and methods: `mesh` has a name of
/// its own, and members of its groups are the actors that are made here. All draw random numbers from the
/// same seed, as copies of one module have to.
template <class T, class... A>
ActorMesh<T> spawn(const Here& here, const Mesh& workers, const A&... args) {
  const auto make = [here, all = std::tuple<std::decay_t<A>...>(args...)](const Mesh& points) {
    const std::vector<Mesh> by_turn = mesh_by_turn(mesh_of_its_own(here, points));
    const std::vector<WorkerId> workers = workers_of(by_turn[0]);
    const MeshPoints at(points.dims());
    std::vector<RRef<T>> actors;
    const Generator::Position numbers = current_stream().position();
    for (size_t p = 0; p < workers.size(); ++p) {
      current_stream().set_position(numbers);
      const Mesh& mesh = by_turn[at.turn(p)];
      actors.push_back(
          std::apply([&](const auto&... a) { return here.template spawn<T>(workers[p], mesh, a...); }, all));
    }
    return actors;
  };
  return {MeshPoints(workers.dims()), make(workers), make};
}

}  // namespace troupe::parallel
