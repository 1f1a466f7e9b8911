// One message of a backward pass, or its roots, on the way through the part of the graph that it enters.
#pragma once
#include "autograd/distributed/engine.h"

namespace troupe::autograd {

// Services that workers call on each other.
inline constexpr const char* kBackward =
    "grad.backward";  // pass, options, message, floor, pair, gradients, sender's report or nothing
inline constexpr const char* kReach = "grad.reach";  // the same, without gradients
inline constexpr const char* kWant =
    "grad.want";  // the same; against the way of the gradients, or, with true in the list, from the inputs
inline constexpr const char* kFinish = "grad.finish";  // the same: the pass is over
inline constexpr const char* kReport =
    "grad.report";  // context, pass, report: message, children (id, worker)..., to be told; error or nothing
inline constexpr const char* kDrop = "grad.drop";  // context, pass, whether it failed
inline constexpr const char* kBroken =
    "grad.broken";  // pass, error, messages that may be lost because the link that they took broke
inline constexpr const char* kJoined = "grad.joined";    // context: the caller has state of it
inline constexpr const char* kRelease = "grad.release";  // context; all of its originator below are over

inline constexpr DistEngine::Kind kKinds[] = {DistEngine::Kind::gradient, DistEngine::Kind::reach,
                                              DistEngine::Kind::want, DistEngine::Kind::finish};
/// The service that takes messages of this kind.
constexpr const char* service_of(DistEngine::Kind kind) {
  constexpr const char* kNames[] = {kBackward, kReach, kWant, kFinish};
  return kNames[static_cast<size_t>(kind)];
}

inline Value number(uint64_t n) { return Value(static_cast<int64_t>(n)); }
/// Of a context or of a pass.
inline WorkerId originator_of(uint64_t number) { return static_cast<WorkerId>(number >> 40); }

/// Owned by the job that runs it.
struct DistEngine::Part final : Sink {
  DistEngine& engine;
  uint64_t context;
  StatePtr state;
  uint64_t pass = 0;
  uint64_t floor = 0;   // passes of the originator below have ended in this context
  int64_t options = 0;  // bits
  static constexpr int64_t kExact = 1, kRetain = 2, kSelect = 4, kCreate = 8, kInputs = 16;
  static int64_t bits(const RunOptions& how) {
    return (how.retain_graph ? kRetain : 0) | (how.create_graph ? kCreate : 0);
  }
  RunOptions how() const {
    return {.retain_graph = (options & kRetain) != 0, .create_graph = (options & kCreate) != 0};
  }
  GradMessageId message = 0;
  Kind kind = Kind::gradient;
  std::shared_ptr<internal::actors::ActorCell> cell;  // whose mailbox it runs in; null: outside actors
  std::vector<Edge> roots;
  Node* exit = nullptr;  // what a message of kind want asks for; null: what leads to inputs here
  static constexpr uint64_t kRoots = ~uint64_t{0};
  uint64_t entered = kRoots;  // the pair that the message came by
  bool watched = false;       // its actor has to be told when the pass goes on: it is over, or wants inputs
  std::vector<std::pair<WorkerId, uint64_t>> targets;  // who has to be told so, and by which pair
  Tensors grads;
  std::string where;  // for the error's trail
  std::optional<Error> failure;

  Part(DistEngine& e, uint64_t c, StatePtr s) : engine(e), context(c), state(std::move(s)) {}

  /// Finds what a message of worker `from` is for. Throws.
  void enter(WorkerId from, uint64_t pair, ValueList values);
  /// What the message asks for. Throws.
  void run();

  WorkerId originator() const { return originator_of(pass); }

  void accumulate(const Tensor& leaf, const Tensor& grad) override { state->accumulate(pass, leaf, grad); }
  void settled(const Accumulate& leaf, bool came) override;
  void leave(Node& node, Tensors out) override;

  /// Sends the message that send() has kept, with the report of this part or nothing. Throws.
  void send_held(Value report = {});
  /// The part has failed: the message that send() has kept never leaves.
  void drop_held() { held.reset(); }
  /// The last message waits for the end of the part: if it goes to the originator, it takes the report along.
  bool takes_report() const { return held && held->to.to == originator(); }
  /// What has left, and what is about to. Nobody may be told to wait for anything else.
  std::vector<SentGrad> led_to() const;
  Value report() const;

 private:
  struct Outgoing {
    SentGrad to;
    uint64_t pair;
    ValueList values;
  };
  void take_grads(const SendNode& node, ValueList values);
  void run_exact();
  void expect();
  void want(ActorRegion& region);
  void supply(ActorRegion& region);
  void send_back(Node& receive, ValueList values);
  void send(WorkerId to, uint64_t pair, ValueList values);
  std::vector<SentGrad> sent;
  std::optional<Outgoing> held;
};

}  // namespace troupe::autograd
