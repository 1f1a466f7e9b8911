// What apply() says and checks while core/graph/anomaly.h is on.
#pragma once
#include "core/graph/anomaly.h"
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// "step 12 of its thread, in Layer::forward of w1/Layer#3": where the thread is, for a step with that
/// sequence number.
std::string place(uint64_t sequence);

/// `failed` if a result has what anomaly_mode() looks for. Nothing on threads that run a gradient rule: what
/// that gives is checked by check_gradients(), in the name of the operator whose rule it is.
void check_results(const Call& call, const Tensors& results);

/// Runs the gradient rule, and checks what came and what it gave. `where`: from place() when the step was
/// recorded.
Tensors checked_gradient(const Backward& b, const std::string& where);

}  // namespace troupe::ops
