// Automatic mixed precision for a scope. Which operators it is about: ops/dispatch/cast_call.h.
#pragma once
#include "core/graph/autocast_mode.h"
#include "core/graph/node.h"

namespace troupe {

/// Mixed precision while one is alive on this thread, as torch.autocast: matrix products, convolutions and
/// attention take their inputs in halves, losses in float32, and all else as they come; parameters stay as
/// they are, and so do their gradients. A backward pass computes in the types of its forward pass, wherever
/// it is started. The mode goes along with calls, to the methods of actors on other workers, too.
///
///   AutocastGuard amp(bfloat16);
///   Tensor loss = cross_entropy(model(x), y);   // float32
///
/// float64 is left as it is. With float16 small gradients vanish: see optim::LossScaler.
class AutocastGuard : AutocastMode {
 public:
  /// `invalid` unless it is bfloat16 or float16.
  explicit AutocastGuard(DType half);
};

/// No mixed precision while one is alive on this thread.
class NoAutocastGuard : AutocastMode {
 public:
  NoAutocastGuard() : AutocastMode(Autocast::off) {}
};

/// Gives t in the thread's halves, recorded by `cast`: of a float32 leaf that needs a gradient it is kept
/// until the mode ends, so that a weight that is used twice is cast once.
Tensor kept_cast(const Tensor& t, Tensor (*cast)(const Tensor&, DType));

/// What goes along with work that is done later, or elsewhere.
struct ThreadModes {
  bool grad = grad_enabled();
  Autocast autocast = autocast_mode();
};
/// They hold for a scope.
class ThreadModeScope : GradMode, AutocastMode {
 public:
  explicit ThreadModeScope(const ThreadModes& modes) : GradMode(modes.grad), AutocastMode(modes.autocast) {}
};

}  // namespace troupe
