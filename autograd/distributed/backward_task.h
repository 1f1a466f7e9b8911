// One message of a backward pass, or its roots, on the way through the part of the graph that it enters.
#pragma once
#include "actors/worker/service.h"
#include "autograd/distributed/dist_engine.h"

namespace troupe::autograd {

using internal::actors::Service;
using Report = DistEngine::Report;

/// Messages of a pass leave in its context and have no deadline but that of whoever waits for the pass; the
/// pass has to hear of those that could not be taken in. `report`: that of the sender's part, on the way
/// home.
inline constexpr internal::actors::MessageOptions kOfPass{
    .timeout = Duration(0), .in_context = true, .takes_unplaced = true};
inline constexpr internal::actors::MessageOptions kUntimed{.timeout = Duration(0)};
using PassMessage = void(uint64_t pass, int64_t options, uint64_t message, uint64_t low_watermark,
                         uint64_t pair, ValueList values, std::optional<Report> report);

/// Receiver of a recorded message to its sender: the pass has gradients of the tensors in it.
inline constexpr Service<PassMessage> kBackward{"grad.backward", kOfPass};
/// Receiver of a recorded message to its sender: in an exact pass, gradients will come this way. No values.
inline constexpr Service<PassMessage> kReach{"grad.reach", kOfPass};
/// Sender of a recorded message to its receiver: in an exact pass, these gradients are wanted. No values; but
/// true from the originator to a worker whose actors have inputs, which begin.
inline constexpr Service<PassMessage> kWant{"grad.want", kOfPass};
/// Originator to a worker whose hooks wait for it: no more gradients come. No values.
inline constexpr Service<PassMessage> kFinish{"grad.finish", kOfPass};

/// The worker that handled a message of a pass, to its originator: what the message led to, or why it failed.
inline constexpr Service<void(uint64_t context, uint64_t pass, Report report, std::optional<Error> error)>
    kReport{"grad.report", kUntimed};
/// Originator to all that took part: the pass is over; what is kept for it goes.
inline constexpr Service<void(uint64_t context, uint64_t pass, bool failed)> kDrop{"grad.drop", kUntimed};
/// An end of a link that broke to the originator: these messages may be lost.
inline constexpr Service<void(uint64_t pass, Error why, std::vector<GradMessageId> messages)> kBroken{
    "grad.broken", kUntimed};
/// Worker to originator: others brought it into the context.
inline constexpr Service<void(uint64_t context)> kJoined{"grad.joined", kUntimed};
/// Originator to all that took part: the context is over, and so are all of the originator below `below`.
inline constexpr Service<void(uint64_t context, uint64_t below)> kRelease{"grad.release"};
/// Originator to one who joined too late to hear of the end with the others: the context is over.
inline constexpr Service<void(uint64_t context, uint64_t below)> kLateRelease{"grad.release", kUntimed};

inline constexpr DistEngine::Kind kKinds[] = {DistEngine::Kind::gradient, DistEngine::Kind::reach,
                                              DistEngine::Kind::want, DistEngine::Kind::finish};
inline const Service<PassMessage>& message_of(DistEngine::Kind kind) {
  static constexpr const Service<PassMessage>* kMessages[] = {&kBackward, &kReach, &kWant, &kFinish};
  return *kMessages[static_cast<size_t>(kind)];
}

/// Of a context or of a pass.
inline WorkerId originator_of(uint64_t number) { return static_cast<WorkerId>(number >> 40); }

/// Owned by the job that runs it.
struct DistEngine::BackwardTask final : Sink {
  DistEngine& engine;
  uint64_t context;
  StatePtr state;
  uint64_t pass = 0;
  uint64_t low_watermark = 0;  // passes of the originator below have ended in this context
  int64_t options = 0;         // bits
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

  BackwardTask(DistEngine& e, uint64_t c, StatePtr s) : engine(e), context(c), state(std::move(s)) {}

  /// Finds what a message of worker `from` is for. Throws.
  void enter(WorkerId from, uint64_t pair, ValueList values);
  /// What the message asks for. Throws.
  void run();

  WorkerId originator() const { return originator_of(pass); }

  void accumulate(const Tensor& leaf, const Tensor& grad) override { state->accumulate(pass, leaf, grad); }
  void settled(const Accumulate& leaf, bool came) override;
  void leave(Node& node, Tensors out) override;

  /// Sends the message that send() has kept, with the report of this part or nothing. Throws.
  void send_held(std::optional<Report> report = {});
  /// The part has failed: the message that send() has kept never leaves.
  void drop_held() { held.reset(); }
  /// The last message waits for the end of the part: if it goes to the originator, it takes the report along.
  bool takes_report() const { return held && held->to.to == originator(); }
  /// What has left, and what is about to. Nobody may be told to wait for anything else.
  std::vector<SentGrad> led_to() const;
  Report report() const;

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
