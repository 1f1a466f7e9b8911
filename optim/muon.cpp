#include "optim/muon.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "ops/arithmetic.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/reshape_ops.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::optim {

using internal::ParameterStep;

void MuonOptions::check() const {
  if (ns_steps != std::floor(ns_steps))
    throw_invalid(fmt::format("[muon] option ns_steps must be a whole number, got {}", ns_steps));
  if (match_rms_adamw && spectral_unclamped)
    throw_invalid("[muon] takes match_rms_adamw or spectral_unclamped, got both");
}

void MuonOptions::check_parameter(const Tensor& param) {
  if (param.dim() != 2)
    throw_invalid(fmt::format(
        "[muon] parameters must be matrices, got {}: give the others to an optimizer of their own, adamw",
        param.summary()));
}

namespace {

// It brings all singular values near to 1, in bfloat16 as PyTorch does.
Tensor orthogonal(const Tensor& of, const ops::Attrs& o) {
  const bool tall = of.size(0) > of.size(1);
  Tensor x = ops::to(of, bfloat16);
  if (tall) x = ops::t(x);
  const Tensor wide = ops::to(x, float32), size = ops::to(ops::sqrt(ops::sum(ops::square(wide))), bfloat16);
  x = ops::div(x, ops::clamp(size, Scalar(o.number("eps"))));
  for (int i = 0; i < static_cast<int>(o.number("ns_steps")); ++i) {
    const Tensor gram = ops::matmul(x, ops::t(x));
    const Tensor change = ops::addmm(gram, gram, gram, o.number("ns_b"), o.number("ns_c"));
    x = ops::addmm(x, change, x, o.number("ns_a"));
  }
  return ops::to(tall ? ops::t(x) : x, of.dtype());
}

double factor_of_rate(const ops::Attrs& o, double rows, double columns) {
  if (o.flag("match_rms_adamw")) return 0.2 * std::sqrt(std::max(rows, columns));
  const double ratio = rows / columns;
  return std::sqrt(o.flag("spectral_unclamped") ? ratio : std::max(1.0, ratio));
}

}  // namespace

Tensors MuonOptions::update(const ops::Attrs& o, const ParameterStep& step) {
  const Tensor& p = step.param;
  if (p.numel() == 0) return {};
  const double lr = o.number("lr"), momentum = o.number("momentum");
  const Tensor mean = ops::lerp(step.slots[0], step.grad, 1 - momentum);
  const Tensor direction = orthogonal(o.flag("nesterov") ? ops::lerp(step.grad, mean, momentum) : mean, o);
  const double factor = factor_of_rate(o, static_cast<double>(p.size(0)), static_cast<double>(p.size(1)));
  const Tensor shrunk = ops::mul(p, 1 - lr * o.number("weight_decay"));
  return {ops::add(shrunk, direction, -lr * factor), mean};
}

}  // namespace troupe::optim
