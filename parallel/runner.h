// One worker's side of a pipeline: an actor that does what its plan says, and passes on what comes of it.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/actor.h"
#include "parallel/plan.h"
#include "parallel/stage_work.h"
#include "rref/any_ref.h"

namespace troupe::parallel {

/// A stage as its runner knows it.
struct StageActor {
  AnyRef actor;
  std::string method;
  int64_t arity = 1;
  std::string loss;  ///< method; empty: none
  static constexpr auto fields =
      std::tuple(&StageActor::actor, &StageActor::method, &StageActor::arity, &StageActor::loss);
};

struct RunnerSetup {
  uint64_t pipeline = 0;
  int64_t worker = 0, workers = 1;  ///< of the pipeline
  std::vector<StageActor> chunks;   ///< stages worker, worker + workers, ...
  static constexpr auto fields =
      std::tuple(&RunnerSetup::pipeline, &RunnerSetup::worker, &RunnerSetup::workers, &RunnerSetup::chunks);
};

struct RunnerStep {
  uint64_t step = 0;
  std::string plan;  ///< a row ("F0 F1 B0 B1"), or "credits(3)"
  bool record = true;
  std::vector<bool> recompute;                ///< by micro-batch
  std::vector<double> weights;                ///< of the micro-batches' losses
  std::vector<Value> batch;                   ///< by micro-batch; for stage 0, else empty
  std::vector<Value> targets;                 ///< by micro-batch; for a stage with a loss, else empty
  std::vector<std::vector<ValueList>> given;  ///< by chunk and micro-batch; may be empty
  static constexpr auto fields =
      std::tuple(&RunnerStep::step, &RunnerStep::plan, &RunnerStep::record, &RunnerStep::recompute,
                 &RunnerStep::weights, &RunnerStep::batch, &RunnerStep::targets, &RunnerStep::given);
};

/// Something that a worker did: times in nanoseconds of its clock.
struct Done {
  int64_t work = 0, micro_batch = 0, stage = 0, begin = 0, end = 0;
  static constexpr auto fields =
      std::tuple(&Done::work, &Done::micro_batch, &Done::stage, &Done::begin, &Done::end);
};
/// Something that came from the stage before (forward) or after.
struct Came {
  bool forward = true;
  int64_t micro_batch = 0, stage = 0, sent = 0, arrived = 0;
  static constexpr auto fields =
      std::tuple(&Came::forward, &Came::micro_batch, &Came::stage, &Came::sent, &Came::arrived);
};

struct RunnerReport {
  std::vector<Done> done;
  std::vector<Came> came;
  int64_t peak_live = 0;
  int64_t exposed = 0;         ///< nanoseconds of waiting for something that was on its way already
  std::vector<double> losses;  ///< by micro-batch, of a stage with a loss
  std::vector<Value> outputs;  ///< by micro-batch, of the last stage where nothing is recorded
  static constexpr auto fields =
      std::tuple(&RunnerReport::done, &RunnerReport::came, &RunnerReport::peak_live, &RunnerReport::exposed,
                 &RunnerReport::losses, &RunnerReport::outputs);
};

/// Not for users: a Pipeline makes one for each of its workers, beside the actors of the first stage there.
class Runner final : public Actor {
 public:
  explicit Runner(RunnerSetup setup) : setup_(std::move(setup)) {}

  /// What takes outputs of this worker's stages (`next`) and gradients (`previous`): runners, or behind the
  /// last stage an actor that has the loss, or nothing.
  void connect(AnyRef previous, AnyRef next, AnyRef loss);
  /// Everything that the plan says, in the context of the call. Ends with the report, or with the first
  /// error, which names stage and micro-batch.
  Task<RunnerReport> step(RunnerStep order);
  /// The output of the stage before `stage` (forward), or the gradients from the stage after it.
  void receive(uint64_t step, int64_t stage, int64_t micro_batch, bool forward, Value what, int64_t sent);
  /// Something that this worker sent in that step could not be delivered.
  void not_sent(uint64_t step, Error why);
  /// A failed step is over: forgets what is left of it here and with the stages.
  Task<void> drop(uint64_t step);
  /// Arguments of receive().
  static ValueList message(uint64_t step, int64_t stage, int64_t micro_batch, bool forward, Value what,
                           int64_t sent);
  /// Lets go of the other actors.
  void close();

  static constexpr auto remote = methods<Runner, RunnerSetup>(
      "connect", &Runner::connect, "step", &Runner::step, "receive", &Runner::receive, "not_sent",
      &Runner::not_sent, "drop", &Runner::drop, "close", &Runner::close);

 private:
  struct Message {
    Came came;
    Value what;
  };
  /// What has come for one step.
  struct Inbox {
    std::vector<Message> fresh;
    std::map<std::tuple<bool, int64_t, int64_t>, Value> waiting;  // forward?, stage, micro-batch
    std::optional<Error> failure;
    std::optional<Promise<void>> wake;
    void notify();
    Future<void> changed();
  };
  struct Running;  // a step
  const std::shared_ptr<Inbox>& inbox(uint64_t step);
  StageActor& actor_of(int64_t stage) {
    return setup_.chunks.at(static_cast<size_t>(stage / setup_.workers));
  }
  int64_t stages() const { return setup_.workers * static_cast<int64_t>(setup_.chunks.size()); }
  Task<void> perform(Running& run, Action action);
  void send(Running& run, const AnyRef& to, int64_t stage, int64_t micro_batch, bool forward, Value what);
  int64_t now() const;

  RunnerSetup setup_;
  AnyRef previous_, next_, loss_;
  std::map<uint64_t, std::shared_ptr<Inbox>> inboxes_;  // by step
  uint64_t over_ = 0;                                   // steps up to this one take nothing any more
};

}  // namespace troupe::parallel
