// A pipeline: stages that are actors, and one call for a step of all of them.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "collective/group.h"
#include "parallel/pipeline/stage_actor.h"
#include "parallel/pipeline/step_report.h"
#include "parallel/sharded/shard.h"
#include "rref/here.h"

namespace troupe::internal::parallel {

/// What Pipelines says to each of its pipelines.
struct Joint {
  uint64_t number = 0;  ///< that several have whose stages meet; 0: none
  bool heals = false;   ///< stages get their values later, from the actors that were there before
  std::vector<std::string> paths = {};  ///< of runners before, then of what has the loss; empty: new ones
};

}  // namespace troupe::internal::parallel

namespace troupe::parallel {

class DriverLoss;
class Runner;
struct RunnerReport;

/// A stage: a method of an actor, which may live anywhere. Make it with stage().
struct Stage {
  Stage();
  Stage(const Stage&);
  Stage(Stage&&) noexcept;
  Stage& operator=(const Stage&);
  Stage& operator=(Stage&&) noexcept;
  ~Stage();

  StageActor part;
  SkipNames skips;
  /// The last stage: method M of the same actor gives the loss of (output, target), a tensor of one element
  /// that is the mean over the micro-batch.
  template <auto M>
  Stage with_loss() const;
  /// The last results of the method, which gives a list or a tuple, are skips of these names. They go
  /// straight to the stages behind that take them, and their gradients straight back; not to the next stage.
  Stage gives(std::vector<std::string> names) const;
  /// The method takes skips of these names, as arguments behind those from the stage before.
  Stage takes(std::vector<std::string> names) const;
  /// The method carries tensors (with PipelineOptions::slices) from one slice of a sequence to the next (keys
  /// and values, the state of an LSTM). Its last argument, a Tensors, is what it gave for the slice before,
  /// empty for the first one; its last result is for the next. Their gradients go back the same way.
  Stage carries() const;
};

namespace detail {
template <class M>
struct ClassOf;
template <class T, class R, class... A>
struct ClassOf<R (T::*)(A...)> {
  using type = T;
};
template <class T, class R, class... A>
struct ClassOf<R (T::*)(A...) const> {
  using type = T;
};
}  // namespace detail

/// Method M of an actor, listed in its `remote`, as a stage:
///
///   Pipeline pipeline(cluster.here(), {stage<&Hidden::forward>(a),
///   stage<&Output::forward>(b).with_loss<&Output::loss>()});
///
/// It takes what the stage before gives (where it takes several arguments, that has to be a list or a tuple
/// of as many), and behind it what is delivered to it (StepOptions::inputs).
template <auto M, class T>
Stage stage(const RRef<T>& actor) {
  Stage out;
  out.part.actor = AnyRef(actor);
  out.part.method = internal::actors::listed_name<T, M>();
  out.part.arity = static_cast<int64_t>(internal::actors::MethodTraits<decltype(M)>::kArity);
  return out;
}
/// The same of whatever actor; for Pipelines.
template <auto M>
Stage stage() {
  return stage<M>(RRef<typename detail::ClassOf<decltype(M)>::type>());
}
template <auto M>
Stage Stage::with_loss() const {
  static_assert(internal::actors::MethodTraits<decltype(M)>::kArity == 2,
                "a loss takes the output and the target");
  Stage out = *this;
  out.part.loss = internal::actors::listed_name<typename detail::ClassOf<decltype(M)>::type, M>();
  return out;
}

enum class Checkpoint {
  never,
  except_last,  ///< all micro-batches but the last, which is run backward at once in most schedules
  always,       ///< stages keep the input of a micro-batch, and run forward again before backward
};

struct PipelineOptions {
  /// As make_policy() takes it: "1f1b", "zb-h1", "credits(4)", a table, ...; or "auto".
  std::string schedule = "1f1b";
  int micro_batches = 4;  ///< of a batch that has as many rows; else as many as it has
  /// Stages for each worker: stage s belongs to worker s mod (number of stages / chunks), or to the one that
  /// the schedule says (StageMap).
  int chunks = 1;
  /// Each micro-batch is cut into so many slices along the second dimension, the positions of a sequence. A
  /// stage works at one slice while the next stage works at the one before (TeraPipe); stages that look back
  /// carry what they need (Stage::carries()). StepResult::losses, and outputs of forward(), are those of
  /// slices.
  int slices = 1;
  /// The loss at the caller, mean over a micro-batch; where no stage has one. Runs in an actor of this
  /// worker.
  std::function<Tensor(const Value& output, const Value& target)> loss = {};
  Checkpoint checkpoint = Checkpoint::never;
  /// Parameters that several stages have, each a copy in its own actor (tied embeddings). The values of the
  /// first of each list are copied into the others before the first step, and all of them have the sum of
  /// their gradients after each, with the same bits: equal optimizers keep them equal. Norms of all gradients
  /// count the first only. (Stages of one actor share its parameters without that.)
  std::vector<std::vector<StageParameter>> tied = {};
  /// Of several pipelines that train copies of one model on different rows (data parallel): for each stage
  /// the group of its actors, one of each pipeline (or, as mesh.groups("dp") gives them, of their workers, if
  /// nothing else of the group runs there). All begin with the parameters of the first; a step leaves all of
  /// them with the gradients of the mean over the rows of all, which are summed stage by stage, so late
  /// stages' sums go while early stages still run. The n-th steps of all pipelines belong together.
  std::vector<Group> replicas = {};
  /// Pipelines give each replica a part of the rows of a batch, in proportion to these; empty: as many
  /// as the others. So a slower worker has fewer. The gradients are those of the mean over all rows, however
  /// they are divided. Where replicas come or go, all get as many again.
  std::vector<int64_t> rows = {};
  /// They divide that much of a stage's training state. Shard::all is for Pipelines, whose stages then are
  /// made of parts that are parallel::Sharded.
  Shard shard = Shard::none;
  /// With Shard::all, how often a part is gathered: in each use, forward and back, or once for all uses of a
  /// context, which keep it whole until the optimizer's step, or the end of the context.
  Per gather = Per::use;
  /// With Shard::all, how often the gradients of a part are summed over the replicas: for each micro-batch,
  /// or once, when the step is done. Until then gradients of whole parameters are there.
  Per reduce = Per::use;
  /// For "auto": how many micro-batches each worker may keep; empty: any number.
  std::vector<int> most_live = {};
  Duration timeout = std::chrono::seconds(60);  ///< of a step; zero: none
};

struct StepOptions {
  /// By stage: a tree of tensors with the rows of the batch, whose parts are more arguments of the stage's
  /// method. A list is several of them.
  std::map<int, Value> inputs = {};
  /// What each micro-batch counts for (not each slice), 0 or more; empty: its rows. One that counts for
  /// nothing runs forward only, and its loss may be NaN (no target in it, say). The loss of the step is the
  /// weighted mean, and so are the gradients: the same as of the whole batch, however it is cut.
  std::vector<double> weights = {};
  /// optim::LossScaler::scale(): the gradients are those of the loss times this, and a loss that is not
  /// finite is no error, but leaves such gradients. 0: none.
  double loss_scale = 0;
  /// Of a step that names none.
  static const StepOptions defaults;
};

struct StepResult {
  double loss = 0;             ///< weighted mean over the micro-batches
  std::vector<double> losses;  ///< of each
  double weight = 0;           ///< sum of the weights
};

/// Belongs to one thread, or to one actor. A step that begins before the last one has ended follows it on
/// each worker, as soon as that worker is done with it. The stages' actors go on to live when it goes.
class Pipeline {
 public:
  /// Does not wait. `invalid` for no stages, for counts that are no multiple of `chunks`, for schedules that
  /// do not fit, for two losses or none, for skips that are given or taken by nobody, and for ties that
  /// cannot be.
  Pipeline(const Here& here, std::vector<Stage> stages, PipelineOptions options = {})
      : Pipeline(here, std::move(stages), std::move(options), internal::parallel::Joint{}) {}
  Pipeline(const Here& here, std::vector<Stage> stages, PipelineOptions options,
           internal::parallel::Joint joint);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;

  /// Forward and backward of a batch in micro-batches. The gradients are then in the autograd::Context that
  /// is alive on this thread, as after Context::backward: `invalid` without one.
  ///
  /// A failure names stage and micro-batch. Then the other stages give up, the gradients of the context are
  /// of no use, and the next step (with another context) finds the pipeline as if there had been none.
  StepResult step(const Value& batch, const Value& targets,
                  const StepOptions& options = StepOptions::defaults) {
    return step_async(batch, targets, options).get();
  }
  /// The same of a batch that has been cut already, into micro-batches of any number and shape.
  StepResult step(std::vector<Value> batch, std::vector<Value> targets,
                  const StepOptions& options = StepOptions::defaults) {
    return step_async(std::move(batch), std::move(targets), options).get();
  }
  Future<StepResult> step_async(const Value& batch, const Value& targets,
                                const StepOptions& options = StepOptions::defaults);
  Future<StepResult> step_async(std::vector<Value> batch, std::vector<Value> targets,
                                const StepOptions& options = StepOptions::defaults);

  /// Forward alone; nothing is recorded. The outputs of the micro-batches.
  std::vector<Value> forward(const Value& batch, const StepOptions& options = StepOptions::defaults) {
    return forward_async(batch, options).get();
  }
  Future<std::vector<Value>> forward_async(const Value& batch,
                                           const StepOptions& options = StepOptions::defaults);
  Future<std::vector<Value>> forward_async(std::vector<Value> batch,
                                           const StepOptions& options = StepOptions::defaults);

  /// Ready when all forwards of the last step that was begun are done, on all workers.
  Future<void> forwards_done();
  /// From now on, updates give the parameters of the stages new elements where a step on its way holds the
  /// old ones (optim::set_copy_on_write()).
  Future<void> keep_versions();

  int workers() const { return map_.workers(); }
  const StageMap& map() const { return map_; }
  int stages() const { return static_cast<int>(stages_.size()); }
  /// What steps of `micro_batches` follow; for "auto" after the first step, which measures.
  Policy policy(int micro_batches);
  /// What the last step that ended well did, and when.
  StepReport step_report() const;

 private:
  friend class Pipelines;
  struct Run;
  struct LastReport;
  // `share`: what the step counts for among those of all replicas, perhaps nothing; empty: the sum of the
  // weights, which is above 0.
  Future<StepResult> step_of_share(std::vector<Value> batch, std::vector<Value> targets,
                                   const StepOptions& options, std::optional<double> share);
  std::shared_ptr<Run> prepare(std::vector<Value> batch, const StepOptions& options,
                               std::optional<double> share, bool record);
  Future<std::vector<RunnerReport>> start(const std::shared_ptr<Run>& run);
  std::vector<AnyRef> peers_of(int worker) const;
  /// The runners, and what has the loss.
  std::vector<AnyRef> helpers() const;
  std::vector<std::string> paths_of_runners() const;
  void make_runners();
  const RRef<Runner>& last_runner() const;
  void connect();
  void join_replicas();
  /// Nobody waits for steps up to this one any more, which need not have begun.
  void give_up(uint64_t step);
  /// The same of the last that was begun, for later.
  std::function<void()> giving_up() const;
  int parts_of(int64_t rows) const;
  std::vector<Value> cut(const Value& batch, int count, const char* what) const;
  Policy named_policy(int micro_batches) const;
  bool has_loss() const { return !stages_.back().part.loss.empty(); }

  Here here_;
  std::vector<Stage> stages_;
  PipelineOptions options_;
  internal::parallel::Joint joint_;
  StageMap map_;
  uint64_t id_, step_ = 0;
  std::vector<RRef<Runner>> runners_;
  RRef<DriverLoss> loss_;
  Future<void> ready_ = Future<void>::ready({});  // copies and replicas have the values of the first ones
  std::shared_ptr<LastReport> report_;
  std::map<int, Policy> policies_;  // by number of micro-batches
};

/// Actor types that pipelines need on every worker. Part of every cluster.
internal::actors::TypeRegistry builtin_actors();

}  // namespace troupe::parallel
