#include "ops/dropout.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "ops/gradient_rules.h"

namespace troupe::ops {
namespace {

void check(double p) {
  if (!(p >= 0 && p < 1))
    throw_invalid(fmt::format("[dropout] the probability must be in [0, 1), got {}", p));
}

Specs dropout_spec(const Call& c) {
  check(c.attrs.number("p"));
  return floating_unary(c);
}

}  // namespace

const Op kDropout{
    .name = "dropout",
    .text = "Zeros with probability p, and the rest divided by 1 - p; by the number seed.",
    .internal = true,
    .attrs = {{"p", 0.5}, {"seed", 0}},
    .shape = dropout_spec,
    .gradient = [](const Backward& b) -> Tensors { return {apply1(kDropout, {b.grads[0]}, b.attrs)}; },
    .samples = []() -> std::vector<Sample> {
      return {{{sample({3, 4})}, {{"p", 0.5}, {"seed", 1}}},
              {{sample({2, 3, 5})}, {{"p", 0.2}, {"seed", -2}}},
              {{sample({})}, {{"p", 0.0}}},
              {{sample({0, 3})}}};
    }};

Tensor dropout(const Tensor& x, double p, AnyGenerator generator) {
  return apply1(kDropout, {x}, {{"p", p}, {"seed", static_cast<int64_t>(generator.next())}});
}

Tensor dropout(const Tensor& x, double p, bool training) {
  check(p);
  if (!training) return x;
  Generator generator = next_generator();
  return dropout(x, p, generator);
}

}  // namespace troupe::ops
