#include "ops/dispatch/anomaly.h"

#include <fmt/format.h>

#include "core/base/call_frame.h"
#include "core/base/error.h"

namespace troupe::ops {
namespace {

constinit thread_local bool tls_in_rule = false;

struct InRule {
  bool before = std::exchange(tls_in_rule, true);
  ~InRule() { tls_in_rule = before; }
};

[[noreturn]] void fail(const std::string& text) { throw_error(ErrorKind::failed, text); }

}  // namespace

std::string place(uint64_t sequence) {
  const CallFrame& f = frame();
  return fmt::format("step {} of its thread{}{}", sequence, f.actor && f.what ? ", in " + *f.what : "",
                     f.context ? fmt::format(", in context {}", f.context) : "");
}

void check_results(std::string_view name, std::span<const Tensor> in, std::span<const Tensor> results) {
  if (tls_in_rule) return;
  const Anomaly mode = anomaly_mode();
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string found = troupe::internal::find_anomaly(results[i], mode);
    if (found.empty()) continue;
    std::string inputs;
    for (const Tensor& t : in) {
      if (!t.defined()) continue;
      const std::string there = troupe::internal::find_anomaly(t, mode);
      inputs += (inputs.empty() ? "" : ", ") + t.summary() + (there.empty() ? "" : " with " + there);
    }
    const CallFrame& f = frame();
    fail(fmt::format("[{}] result {} ({}) has {}; inputs: {}{}", name, i, results[i].summary(), found, inputs,
                     f.actor && f.what ? "; in " + *f.what : ""));
  }
}

Tensors checked_gradient(const StepName& step, std::span<const Tensor> grads,
                         const std::function<bool(size_t)>& needs, const std::function<Tensors()>& rule) {
  const Anomaly mode = anomaly_mode();
  std::string inputs;
  for (const Spec& s : step.in_specs)
    inputs += fmt::format("{}{} {}", inputs.empty() ? "" : ", ", name(s.dtype), s.shape.str());
  const std::string recorded =
      step.where.empty() ? "recorded before the checks were on" : fmt::format("recorded as {}", step.where);
  const auto check = [&](const Tensor& t, const std::string& what) {
    if (const std::string found = troupe::internal::find_anomaly(t, mode); !found.empty())
      fail(fmt::format("[{}] backward: {} ({}) has {}; inputs of the step: {}; {}", step.name, what,
                       t.summary(), found, inputs, recorded));
  };
  for (size_t i = 0; i < grads.size(); ++i)
    if (grads[i].defined()) check(grads[i], fmt::format("the gradient that came for result {}", i));
  Tensors out;
  {
    InRule quiet;
    out = rule();
  }
  for (size_t i = 0; i < out.size(); ++i)
    if (needs(i)) check(out[i], fmt::format("the gradient of input {}", i));
  return out;
}

}  // namespace troupe::ops
