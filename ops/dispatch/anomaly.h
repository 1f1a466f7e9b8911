// What apply() says and checks while core/graph/anomaly.h is on.
#pragma once
#include <functional>

#include "core/graph/anomaly.h"
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// "step 12 of its thread, in Layer::forward on w1 (Layer#0:3)": where the thread is, for a step with that
/// sequence number.
std::string place(uint64_t sequence);

/// `failed` if a result has what anomaly_mode() looks for. Nothing on threads that run a gradient rule: what
/// that gives is checked by check_gradients(), in the name of the operator whose rule it is.
void check_results(std::string_view name, std::span<const Tensor> inputs, std::span<const Tensor> results);

/// A recorded step, as complaints about its gradients name it.
struct StepName {
  std::string_view name;
  std::span<const Spec> in_specs;  ///< of the tensors among its inputs
  std::string_view where;          ///< from place() when it was recorded; empty: before the checks were on
};
/// Runs the gradient rule, and checks what came (`grads`) and what it gave for inputs i with needs(i).
Tensors checked_gradient(const StepName& step, std::span<const Tensor> grads,
                         const std::function<bool(size_t)>& needs, const std::function<Tensors()>& rule);

}  // namespace troupe::ops
