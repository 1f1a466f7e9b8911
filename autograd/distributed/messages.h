// The messages between the workers that take part in a context or in a pass.
#pragma once
#include "actors/worker/service.h"
#include "autograd/distributed/termination.h"
#include "core/value/owned_number.h"

namespace troupe::autograd {

using internal::actors::Service;

/// A message that was handled, those that it led to (id, worker), and the pair by which to tell of the end
/// of the pass, or 0.
using Report = std::tuple<uint64_t, std::vector<std::pair<uint64_t, WorkerId>>, uint64_t>;

/// Messages of a pass leave in its context and have no deadline but that of whoever waits for the pass; the
/// pass has to hear of those that could not be taken in. `report`: that of the sender's task, on the way
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
/// Originator to a worker for which a pass has waited too long: for what does that wait?
inline constexpr Service<std::vector<std::string>(uint64_t context)> kWaits{
    "grad.waits", {.timeout = std::chrono::seconds(1)}};
/// Originator to all that took part: the context is over, and so are all of the originator below `below`.
inline constexpr Service<void(uint64_t context, uint64_t below)> kRelease{"grad.release"};
/// Originator to one who joined too late to hear of the end with the others: the context is over.
inline constexpr Service<void(uint64_t context, uint64_t below)> kLateRelease{"grad.release", kUntimed};

/// The phases of a pass, each with a message of its own.
enum class PassPhase { gradient, reach, want, finish };
inline constexpr PassPhase kPhases[] = {PassPhase::gradient, PassPhase::reach, PassPhase::want,
                                        PassPhase::finish};
inline const Service<PassMessage>& message_of(PassPhase phase) {
  static constexpr const Service<PassMessage>* kMessages[] = {&kBackward, &kReach, &kWant, &kFinish};
  return *kMessages[static_cast<size_t>(phase)];
}

}  // namespace troupe::autograd
