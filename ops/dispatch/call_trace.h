// Who hears of the operators that a thread applies, with inputs and results: exports of what a model
// computes.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::internal {

/// Hears of each operator that its thread applies while it is there, of those that a composition is made of
/// in its place. Nobody, most of the time, which costs an operator a look at a pointer.
class CallTrace {
 public:
  CallTrace() : outer_(current_) { current_ = this; }
  virtual ~CallTrace() { current_ = outer_; }
  CallTrace(const CallTrace&) = delete;
  static CallTrace* current() { return current_; }

  virtual void applied(const ops::Call& call, const Tensors& out) = 0;
  /// It writes into a tensor that there is.
  virtual void wrote(const ops::Op& op) = 0;

 private:
  static inline constinit thread_local CallTrace* current_ = nullptr;
  CallTrace* outer_;
};

}  // namespace troupe::internal
