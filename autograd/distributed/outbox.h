// The messages of passes that leave a worker: here they get their numbers, and are counted and profiled.
#pragma once
#include <atomic>

#include "actors/cluster/profiler.h"
#include "autograd/distributed/messages.h"

namespace troupe::autograd {

/// Thread-safe.
class Outbox {
 public:
  explicit Outbox(internal::actors::Worker& worker)
      : worker_(worker), profiler_(worker.extension<internal::actors::Profiler>()) {}

  internal::actors::Worker& worker() const { return worker_; }
  internal::actors::Profiler* profiler() const { return profiler_; }  ///< null: there is none
  GradMessageId next_number() { return internal::owned_number(worker_.id(), ++last_number_); }
  /// A message with these gradients is about to leave.
  void note(PassPhase phase, const SentGrad& message, uint64_t context, ValueList& values) {
    ++sent_[static_cast<size_t>(phase)];
    profile(true, phase, message, context, values);
  }
  /// One leaves for that worker, or came from it.
  void profile(bool leaves, PassPhase phase, const SentGrad& message, uint64_t context, ValueList& values) {
    if (profiler_ && profiler_->on())
      profiler_->message(leaves, message_of(phase).name, message.to, message.id, context, values);
  }
  int64_t sent(PassPhase phase) const { return sent_[static_cast<size_t>(phase)]; }

 private:
  internal::actors::Worker& worker_;
  internal::actors::Profiler* profiler_;
  std::atomic<uint64_t> last_number_{0};
  std::atomic<int64_t> sent_[std::size(kPhases)] = {};
};

}  // namespace troupe::autograd
