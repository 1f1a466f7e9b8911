// One message of a backward pass, or its roots, on the way through the part of the graph that it enters.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "autograd/distributed/context_state.h"
#include "autograd/distributed/outbox.h"

namespace troupe::autograd {

/// The head of every message of a pass.
struct TaskHead {
  PassPhase phase;
  uint64_t context, pass;
  int64_t options;  // bits
  GradMessageId message;
  uint64_t low_watermark;  // passes of the originator below have ended in this context

  static constexpr int64_t kExact = 1, kRetain = 2, kSelect = 4, kCreate = 8, kInputs = 16;
  static constexpr int kFlags = 8;  // bits; those above are of backward_meeting()
  static int64_t bits_of_meeting(uint64_t meeting) { return static_cast<int64_t>(meeting << kFlags); }
  /// What steps that wait are told: the pass meets those of other actors under the same number.
  uint64_t meeting() const {
    const uint64_t given = static_cast<uint64_t>(options) >> kFlags;
    return given ? given : pass;
  }
  static int64_t bits(const RunOptions& how) {
    return (how.retain_graph ? kRetain : 0) | (how.create_graph ? kCreate : 0);
  }
  RunOptions how() const {
    return {.retain_graph = (options & kRetain) != 0, .create_graph = (options & kCreate) != 0};
  }
  WorkerId originator() const { return internal::owner_of_number(pass); }
};

/// Owned by the job that runs it.
struct BackwardTask final : TaskHead, internal::autograd::Sink {
  Outbox& outbox;
  std::shared_ptr<ContextState> state;
  std::shared_ptr<internal::actors::ActorCell> cell;  // whose mailbox it runs in; null: outside actors
  std::vector<Edge> roots;
  Node* exit = nullptr;  // what a message of phase want asks for; null: what leads to inputs here
  static constexpr uint64_t kRoots = ~uint64_t{0};
  uint64_t entered = kRoots;  // the pair that the message came by
  uint64_t turn = kRoots;     // of these among others (Region::expect())
  bool watched = false;       // its actor has to be told when the pass goes on: it is over, or wants inputs
  std::vector<std::pair<WorkerId, uint64_t>> targets;  // who has to be told so, and by which pair
  Tensors grads;
  std::string where;  // for the error's trail
  /// What it runs: of an exact pass, the one that the context keeps; a new one, if it has none yet.
  std::shared_ptr<ActorRegion> region;

  /// What the pass waits for before this task's part of it is over.
  struct Waiting {
    Future<Tensors> result;          // of a hook: nothing
    std::optional<uint32_t> ticket;  // of the step that it is; none: a hook
    Ref<Node> step = {};
  };
  std::vector<Waiting> waiting;
  /// Of a task that goes on from there: what has come.
  std::optional<Result<Tensors>> came;
  std::optional<uint32_t> ticket;
  std::optional<Error> failure;

  BackwardTask(Outbox& o, const TaskHead& head, std::shared_ptr<ContextState> s)
      : TaskHead(head), outbox(o), state(std::move(s)) {}

  /// Finds what a message of worker `from` is for. Throws.
  void enter(WorkerId from, uint64_t pair, ValueList values);
  /// What the message asks for. Throws.
  void run();

  void accumulate(const Tensor& leaf, const Tensor& grad) override { state->accumulate(pass, leaf, grad); }
  void settled(const Accumulate& leaf, bool came) override;
  void leave(Node& node, Tensors out) override;
  void later(Node& node, Tensors out, uint32_t number) override;

  /// The task that goes on when that is there. It counts as handling a message that this one has sent.
  std::shared_ptr<BackwardTask> next_of(const Waiting& of);
  /// Sends the message that send() has kept, with the report of this task or nothing. Throws.
  void send_held(std::optional<Report> report = {});
  /// The task has failed: the message that send() has kept never leaves.
  void drop_held() { held.reset(); }
  /// The last message waits for the end of the task: if it goes to the originator, it takes the report along.
  bool takes_report() const { return held && held->to.to == originator(); }
  /// What has left, and what is about to. Nobody may be told to wait for anything else.
  std::vector<SentGrad> led_to() const;
  Report report() const;

 private:
  struct Outgoing {
    PassPhase phase;
    SentGrad to;
    uint64_t pair;
    ValueList values;
  };
  void take_grads(const SendNode& node, ValueList values);
  void run_fast();
  void run_exact();
  void go_on();
  void go_on_with_ready();
  void take_captured();
  void wait_for(std::vector<Future<void>> hooks);
  void expect();
  void want();
  void send_back(Node& receive, ValueList values);
  void send(PassPhase as, WorkerId to, uint64_t pair, ValueList values);
  std::vector<SentGrad> sent;
  std::optional<Outgoing> held;
};

}  // namespace troupe::autograd
