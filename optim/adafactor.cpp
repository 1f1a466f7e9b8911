#include "optim/adafactor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "ops/arithmetic.h"
#include "ops/reduce.h"
#include "ops/unary.h"

namespace troupe::optim {

using internal::ParameterStep;
using internal::root_mean_square;

void AdafactorOptions::check() const {
  if (beta2_decay > 0)
    throw_invalid(fmt::format("[adafactor] option beta2_decay must be at most 0, got {}", beta2_decay));
}

std::vector<std::string> AdafactorOptions::slots(const Shape& param) const {
  return param.rank() > 1 ? std::vector<std::string>{"row_var", "col_var"}
                          : std::vector<std::string>{"variance"};
}

Shape AdafactorOptions::slot_shape(const std::string& slot, const Shape& param) {
  Shape shape = param;
  if (slot == "row_var") shape[param.rank() - 1] = 1;
  if (slot == "col_var") shape[param.rank() - 2] = 1;
  return shape;
}

// PyTorch's order of operations, with means where it has squares of norms.
Tensors AdafactorOptions::update(const ops::Attrs& o, const ParameterStep& step) {
  const Tensor &p = step.param, &grad = step.grad;
  if (p.numel() == 0) return {};
  const auto number = static_cast<double>(step.number);
  const double fresh = std::pow(number, o.number("beta2_decay")), lr = o.number("lr"), d = o.number("d");
  const double epsilon =
      p.dtype() == float64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const double eps1 = o.number("eps1") > 0 ? o.number("eps1") : epsilon;
  const double rate = std::max(o.number("eps2"), root_mean_square(p)) * std::min(lr, 1 / std::sqrt(number));
  const Tensor squared = ops::square(grad);
  Tensors moments;
  Tensor variance;
  if (p.dim() > 1) {
    const Tensor rows = ops::lerp(step.slots[0], ops::mean(squared, {-1}, true), fresh),
                 columns = ops::lerp(step.slots[1], ops::mean(squared, {-2}, true), fresh);
    variance = ops::div(ops::mul(rows, columns), ops::clamp(ops::mean(rows, {-2}, true), Scalar(eps1)));
    moments = {rows, columns};
  } else {
    variance = ops::lerp(step.slots[0], squared, fresh);
    moments = {variance};
  }
  const Tensor direction = ops::mul(ops::rsqrt(ops::clamp(variance, Scalar(eps1 * eps1))), grad);
  const double length = std::max(1.0, root_mean_square(direction) / d);
  const Tensor shrunk = ops::mul(p, 1 - lr * o.number("weight_decay"));
  moments.insert(moments.begin(), ops::add(shrunk, direction, -rate / length));
  return moments;
}

}  // namespace troupe::optim
