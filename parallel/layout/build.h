// A model as a layout says: its actors on a mesh, and the pipelines that train it.
#pragma once
#include <type_traits>
#include <vector>

#include "parallel/layout/layout.h"
#include "parallel/mesh/actor_mesh.h"
#include "parallel/pipeline/pipelines.h"

namespace troupe::parallel {

/// What build() makes.
template <class T>
struct MeshModel {
  ActorMesh<T> actors;
  Pipelines pipelines;

  /// For optim::Distributed<O> optimizer(model, {...}).
  operator std::vector<AnyRef>() const { return {actors.actors().begin(), actors.actors().end()}; }
  StepResult step(const Value& batch, const Value& targets, const StepOptions& options = {}) {
    return pipelines.step(batch, targets, options);
  }
  std::vector<Value> forward(const Value& batch, const StepOptions& options = {}) {
    return pipelines.forward(batch, options);
  }
};

/// T(mesh, args...) on each worker of the layout's mesh, as spawn() makes them, and Pipelines through them:
///
///   const auto method = stage<&Part::forward>().with_loss<&Part::loss>();
///   auto model = parallel::build<Part>(cluster.here(), parallel::read_layout("plan.json"), method, width);
///   optim::Distributed<optim::AdamW> optimizer(model, {.lr = 3e-3});
///   ...
///   autograd::Context context(cluster);
///   const double loss = model.step(x, y).loss;
///   optimizer.step(context);
///
/// `otherwise`: what holds where the layout says nothing. `invalid`, before anything is sent, for a mesh that
/// does not fit its workers, and for a key that neither this nor the program has read from `layout`.
template <class T, class... A>
MeshModel<T> build(const Here& here, Layout layout, const Stage& method, const PipelineOptions& otherwise,
                   const A&... args) {
  const Mesh mesh = layout.mesh(here);
  const PipelineOptions options = layout.pipelines(mesh, otherwise);
  layout.check_all_read();
  auto actors = spawn<T>(here, mesh, args...);
  return {actors, Pipelines(here, actors, method, options)};
}
template <class T, class... A>
requires(!std::is_same_v<std::decay_t<A>, PipelineOptions> && ...)  //
    MeshModel<T> build(const Here& here, Layout layout, const Stage& method, const A&... args) {
  return build<T>(here, std::move(layout), method, PipelineOptions(), args...);
}

/// Replicas of Net(args...), one on each worker of the layout, whose mesh has a "dp" alone. `invalid` as
/// build().
template <class Net, class... A>
DataParallel<Net> build_replicas(const Here& here, Layout layout, const DataParallelOptions& otherwise,
                                 const A&... args) {
  const Group workers = layout.replicas_on(here);
  const DataParallelOptions options = layout.replicas(otherwise);
  layout.check_all_read();
  return DataParallel<Net>(here, workers, options, args...);
}
template <class Net, class... A>
requires(!std::is_same_v<std::decay_t<A>, DataParallelOptions> && ...)  //
    DataParallel<Net> build_replicas(const Here& here, Layout layout, const A&... args) {
  return build_replicas<Net>(here, std::move(layout), DataParallelOptions(), args...);
}

}  // namespace troupe::parallel
