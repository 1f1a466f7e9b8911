// A recorded step whose gradient rule waits: for other workers, for a file, for parameters to be gathered.
#pragma once
#include <atomic>

#include "core/async/future.h"
#include "core/graph/node.h"

namespace troupe::internal::autograd {

/// The interface of a Node whose end() is `later`.
///
/// A pass of a context begins it once, when nothing more can come for its results, and also if nothing came
/// at all, so that its partners on other workers do not wait in vain: a pass for given inputs
/// (Context::grad), too, though none of them lies behind it. It begins in the mailbox and frame of the actor
/// that recorded it. What lies behind it runs when the future is ready, as work of the same actor; everything
/// else goes on meanwhile, other passes over the same step included. A pass that fails or is given up cancels
/// the future. Local passes refuse such a graph before anything has run.
class WaitingRule {
 public:
  /// Whether this process has ever made one.
  static bool any() { return any_.load(std::memory_order_relaxed); }
  /// Gradients of the results (undefined: none came), one per result, to gradients of the inputs (undefined:
  /// none). What it throws, and what the future fails with, fails the pass.
  /// `pass`: its number, which is the same on all workers and no other pass has; or that under which it meets
  /// passes of others (backward_meeting()).
  virtual Future<Tensors> begin(Tensors grads, uint64_t pass) = 0;
  /// A number of those whose steps it waits for, which is the same in all of these; 0: it may wait for any.
  virtual uint64_t among() const { return 0; }
  /// Whether a pass in two parts (SplitPass) may run it in the first, and leave for the second what leads to
  /// no step that waits. No: it ends something that the second part would need.
  virtual bool leaves_for_later() const { return true; }

 protected:
  WaitingRule() {
    if (!any()) any_ = true;
  }
  ~WaitingRule() = default;

 private:
  inline static std::atomic<bool> any_{false};
};

/// A step that does nothing else. Users write an autograd::Function whose backward() is a Task.
class WaitingStep : public Node, public WaitingRule {
 public:
  End end() const final { return End::later; }
  Tensors apply(Tensors&&) final { throw_invalid("[" + name() + "] its gradient comes later: begin() it"); }
};

}  // namespace troupe::internal::autograd
