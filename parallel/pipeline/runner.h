// One worker's side of a pipeline: an actor that does what its plan says, and passes on what comes of it.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/actor.h"
#include "parallel/pipeline/runner_report.h"
#include "parallel/pipeline/schedule/plan.h"
#include "parallel/pipeline/stage/stage_work.h"
#include "parallel/pipeline/stage_actor.h"

namespace troupe::parallel {

struct RunnerSetup {
  uint64_t pipeline = 0;
  int64_t worker = 0;                                ///< of the pipeline
  std::vector<std::vector<int64_t>> stages_of = {};  ///< StageMap::by_worker()
  std::vector<StageActor> chunks;                    ///< of this worker
  uint64_t joint = 0;                                ///< PipelineOptions::joint
};

struct RunnerStep {
  uint64_t step = 0;
  std::string plan;  ///< a row ("F0 F1 B0 B1"), or "credits(3)"
  bool record = true;
  std::vector<bool> recompute;                ///< by micro-batch
  std::vector<double> weights;                ///< of the micro-batches' losses
  double total = 1;                           ///< what they count for, beside those of other replicas
  bool shares = false;                        ///< as in CommitOrder
  double loss_scale = 0;                      ///< as in StepOptions
  int64_t slices = 1;                         ///< as in PipelineOptions
  std::vector<Value> batch;                   ///< by micro-batch; for stage 0, else empty
  std::vector<Value> targets;                 ///< by micro-batch; for a stage with a loss, else empty
  std::vector<std::vector<ValueList>> given;  ///< by chunk and micro-batch; may be empty
};

/// Runner to runner, or to the DriverLoss at the caller and back: a part of what a stage there needs for a
/// micro-batch. Both list a method receive.
inline constexpr internal::actors::CommonMethod<void(uint64_t step, SkipLink to, int64_t micro_batch,
                                                     bool forward, Value what, int64_t sent)>
    kReceive{"receive"};

/// A Pipeline makes one for each of its workers, beside the actors of the first stage there.
class Runner final : public Actor {
 public:
  explicit Runner(RunnerSetup setup) : setup_(std::move(setup)), map_(setup_.stages_of) {}

  /// The runners of all workers that this one sends to (others: empty), and what takes the outputs of the
  /// last stage, if that is an actor that has the loss.
  void connect(std::vector<AnyRef> runners, AnyRef loss);
  /// Everything that the plan says, in the context of the call, once the step before is over here. Ends with
  /// the report, or with the first error, which names stage and micro-batch.
  Task<RunnerReport> step(RunnerStep order);
  /// Not for others: one action of the step under way.
  Task<void> act(uint64_t step, int64_t work, int64_t micro_batch, int64_t chunk);
  /// Ends when that step has done all its forwards here.
  Task<void> after_forwards(uint64_t step);
  /// A part of what a stage of this worker needs for its forward or backward of a micro-batch.
  void receive(uint64_t step, SkipLink to, int64_t micro_batch, bool forward, Value what, int64_t sent);
  /// Something that this worker sent in that step could not be delivered.
  void not_sent(uint64_t step, Error why);
  /// A failed step is over: forgets what is left of it here and with the stages.
  Task<void> drop(uint64_t step);
  /// Lets go of the other actors.
  void close();

  static constexpr auto remote =
      methods<&Runner::connect, &Runner::step, &Runner::act, &Runner::after_forwards, &Runner::receive,
              &Runner::not_sent, &Runner::drop, &Runner::close>;

 private:
  struct Message {
    Came came;
    Value what;
  };
  /// What has come for one step.
  struct Inbox {
    std::vector<Message> fresh;
    std::optional<Error> failure;
    std::optional<Promise<void>> wake;
    Promise<void> forwards, over;  // all forwards are done; the step has ended, or been dropped
    void notify();
    Future<void> changed();
  };
  struct Running;  // a step
  struct EndOf;
  const std::shared_ptr<Inbox>& inbox(uint64_t step);
  /// `invalid` if it is none of this worker's.
  const StageActor& actor_of(int64_t stage) const;
  int64_t stages() const { return map_.stages(); }
  int64_t stage_of(size_t chunk) const {
    return map_.stage(static_cast<int>(setup_.worker), static_cast<int>(chunk));
  }
  void take_in(Running& run);
  Task<void> perform(Running& run, Action action);
  void begin(Running& run, Action action);
  Task<void> commit(Running& run);
  Task<void> forward(Running& run, Done& done);
  Task<void> backward(Running& run, Done& done);
  void send(Running& run, SkipLink to, int64_t micro_batch, bool forward, Value what);
  void send_to(Running& run, const AnyRef& to, SkipLink link, int64_t micro_batch, bool forward, Value what);
  int64_t now() const;

  RunnerSetup setup_;
  StageMap map_;
  std::vector<AnyRef> runners_;  // by worker
  AnyRef loss_;
  std::map<uint64_t, std::shared_ptr<Inbox>> inboxes_;  // by step
  std::shared_ptr<Inbox> last_;                         // of the last step that was begun
  std::shared_ptr<Running> running_;                    // the step under way
  uint64_t over_ = 0;                                   // steps up to this one take nothing any more
};

}  // namespace troupe::parallel
