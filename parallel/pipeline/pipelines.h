// Pipelines side by side: one model on a mesh, cut into stages, each of which is several ranks.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/data/replica_set.h"
#include "parallel/mesh/actor_mesh.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/pipelines_report.h"

namespace troupe::parallel {

/// Which dimensions of a mesh are what to Pipelines. Along all others, such as that of tensor parallelism,
/// ranks compute the same of the same rows, each with its part of the parameters.
struct PipelinesDims {
  std::string stages = "pp";    ///< the last coordinate has the loss
  std::string replicas = "dp";  ///< each trains on its part of the rows; a mesh need not have it
};

/// A pipeline through the stages for each point of a mesh's other dimensions, all with the same steps.
///
///   const Mesh mesh(cluster, {{"dp", 2}, {"pp", 2}, {"tp", 2}});
///   const auto model = parallel::spawn<Part>(cluster.here(), mesh, width);
///   parallel::Pipelines train(cluster.here(), model, stage<&Part::forward>().with_loss<&Part::loss>());
///   ...
///   autograd::Context context(cluster);
///   const double loss = train.step(x, y).loss;
///   optimizer.step(context);
///
/// A stage finds out in its constructor which one it is: mesh.coordinate("pp"). What it gives to the next has
/// to be whole on all ranks (parallel/tensor/convert.h). Belongs to one thread, or to one actor.
///
/// A worker may have several stages, as many as PipelineOptions::chunks says: of a mesh with {"pp", 4, 2}
/// (MeshDim::turns) stages 0 and 2, or 1 and 3; of {"pp", 4, 2, true}, for "zb-v" and "dualpipe-v", 0 and 3,
/// or 1 and 2.
///
/// With replicas that divide nothing (Shard::none) it goes on when a worker is lost: replace(), or by itself
/// in Job::attempt(). All actors then have others in their places, on a mesh with the worker that comes,
/// which take parameters, optimizers' states and random numbers from those before them, or from another
/// replica of the same stage: for that time a worker has room for both. `model` then refers to the new ones;
/// calls to the old ones fail.
class Pipelines : public ReplicaSet {
 public:
  /// `method`: of all actors; its loss that of the last stage. Options are those of each pipeline; their
  /// `replicas` are set here. `invalid` where Pipeline says so, for a mesh without that dimension
  /// of stages, or with another number of chunks, and for options that ranks would have to agree on and
  /// cannot: "auto", and checkpoints where stages meet, which wait in their forward pass.
  template <class T>
  Pipelines(const Here& here, const ActorMesh<T>& model, const Stage& method, PipelineOptions options = {},
            PipelinesDims dims = {})
      : Pipelines(here, model.points(), model, method, std::move(options), std::move(dims), model.shared()) {}
  /// The same of actors with a method `forward`, and a `loss`.
  template <class T>
    requires requires { &T::forward, &T::loss; }
  Pipelines(const Here& here, const ActorMesh<T>& model, PipelineOptions options = {},
            PipelinesDims dims = {})
      : Pipelines(here, model, stage<&T::forward>().template with_loss<&T::loss>(), std::move(options),
                  std::move(dims)) {}
  /// `model`: who knows how to make others, in the places of those; may be null.
  Pipelines(const Here& here, MeshPoints points, const std::vector<AnyRef>& actors, const Stage& method,
            PipelineOptions options, PipelinesDims dims, std::shared_ptr<MeshActors> model = nullptr);
  ~Pipelines() override;
  /// `invalid` for what the constructor would refuse of the options on such a mesh. Sends nothing.
  static void check(const MeshPoints& points, const PipelineOptions& options, const PipelinesDims& dims = {});

  /// Forward and backward of a batch, whose rows are divided over the replicas as evenly as they go and cut
  /// there into micro-batches, as many everywhere. The gradients are then in the autograd::Context that is
  /// alive on this thread: those of the mean over all rows. Weights are of the micro-batches of the first
  /// replica, then of the second, and so on. `invalid` for fewer rows than replicas, and with Shard::all for
  /// a micro-batch that counts for nothing on some replicas: others would wait for it. Where a rank failed,
  /// the error is that of the first, and all forget the step; the context of the step has to end before the
  /// next.
  StepResult step(const Value& batch, const Value& targets, const StepOptions& options = {}) {
    return step_async(batch, targets, options).get();
  }
  Future<StepResult> step_async(const Value& batch, const Value& targets, const StepOptions& options = {});
  /// Forward alone; nothing is recorded. The outputs of the micro-batches, of all replicas.
  std::vector<Value> forward(const Value& batch, const StepOptions& options = {}) {
    return forward_async(batch, options).get();
  }
  Future<std::vector<Value>> forward_async(const Value& batch, const StepOptions& options = {});

  /// Ready when replicas have the values of the first, as DataParallel::ready(). What gives actors values
  /// from afar (load_whole(), nn::load_remote_state_dict()) waits for that by itself.
  Future<void> ready() const override;
  /// What that worker has of the model is on the other one from now on. Between two steps, with Shard::none
  /// and two replicas at least: else `invalid`. Waits.
  void replace(const Place& worker, const Place& by);
  /// The replica of that number goes, with all its stages, and nobody comes in its place: those behind it
  /// move up.
  void shrink(size_t replica);
  size_t size() const { return pipelines_.size(); }
  /// For its report, say. In the order of the mesh's points, without the dimension of the stages.
  const Pipeline& pipeline(size_t i) const& { return pipelines_.at(i); }
  size_t replicas() const { return at_.replicas; }
  /// The bytes that each actor keeps, and sent in the last step, beside the formulas; str() is a table.
  Future<PipelinesReport> report() const;

  // ---- not for users: attempts at steps
  const std::vector<AnyRef>& members() const& override { return actors_; }
  std::vector<AnyRef> helpers() const override;
  bool stays_as_many() const override { return false; }
  bool can_grow() const override { return false; }
  size_t unit_of(size_t member) const override;
  size_t place_of(size_t member) const override { return at_.all.member(member); }
  bool can_replace() const override;
  void reform(const std::vector<ReplicaSeat>& seats) override;

 private:
  using Pipes = std::deque<Pipeline>;
  struct Arrangement {
    MeshPoints all, points;  // of the actors, of the pipelines
    size_t replicas = 1;
    std::vector<size_t> replica_of;  // by pipeline
  };
  Arrangement arranged(MeshPoints points) const;
  /// `heals`: their actors get their values later, and they are in the places of others.
  Pipes make(const std::vector<AnyRef>& actors, const Arrangement& at, bool heals) const;
  /// The mesh with as many replicas as there are seats for.
  MeshPoints points_for(size_t seats) const;
  /// For each seat, who has what is in it: the actor itself, or the first that lives and has that part of the
  /// model.
  std::vector<AnyRef> sources(const std::vector<ReplicaSeat>& seats, const MeshPoints& points) const;
  std::vector<AnyRef> spawn_on(const std::vector<ReplicaSeat>& seats, const MeshPoints& points) const;
  void note_runners();
  std::vector<Value> rows_of_replicas(const Value& batch, const char* what) const;
  int micro_batches(const std::vector<Value>& of_replicas, const char* what) const;
  std::vector<StepOptions> options_of_replicas(const StepOptions& options) const;
  template <class F>
  auto begin_all(const F& begin);
  /// In all dimensions but one.
  std::string coordinates(size_t pipeline, const std::string& but) const;
  std::string place(size_t pipeline) const { return "(" + coordinates(pipeline, "") + ")"; }

  Here here_;
  Stage method_;
  PipelineOptions options_;
  std::vector<AnyRef> actors_;         // in the order of the points
  std::shared_ptr<MeshActors> model_;  // who knows how to make others; may be null
  std::string stages_;
  std::string dim_;  // of the replicas; empty: none
  Arrangement at_;
  bool has_replicas_ = false, has_parts_ = false;  // from the start; Shard::all
  std::map<std::string, std::vector<std::string>>
      runners_;  // their paths, by that of a pipeline's first actor
  Pipes pipelines_;
};

}  // namespace troupe::parallel
