#include "ops/unary.h"

#include <limits>
#include <numbers>

#include "ops/arithmetic.h"
#include "ops/check.h"
#include "ops/cpu/kernels.h"

namespace troupe::ops {
namespace {

std::vector<Sample> any() { return {{{sample({3, 4})}}, {{sample({})}}, {{sample({0, 2})}}}; }
std::vector<Sample> positive() { return {{{sample({3, 4}, 0.3, 2)}}, {{sample({}, 0.3, 2)}}}; }

constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace

const Op kNeg{.name = "neg",
              .shape = numeric_unary,
              .cpu = cpu::neg,
              .gradient = [](const Backward& b) -> Tensors { return {neg(b.grads[0])}; },
              .samples = any};
const Op kAbs{.name = "abs",
              .shape = numeric_unary,
              .cpu = cpu::abs,
              .saves_inputs = 1,
              .gradient = [](const Backward& b) -> Tensors { return {mul(b.grads[0], sign(b.in[0]))}; },
              .samples = any};
const Op kSquare{
    .name = "square",
    .shape = numeric_unary,
    .cpu = cpu::square,
    .saves_inputs = 1,
    .gradient = [](const Backward& b) -> Tensors { return {mul(mul(b.grads[0], 2.0), b.in[0])}; },
    .samples = any};
const Op kSign{.name = "sign", .shape = numeric_unary, .cpu = cpu::sign, .samples = any};
const Op kExp{.name = "exp",
              .shape = floating_unary,
              .cpu = cpu::exp,
              .saves_outputs = 1,
              .gradient = [](const Backward& b) -> Tensors { return {mul(b.grads[0], b.out[0])}; },
              .samples = any};
const Op kLog{.name = "log",
              .shape = floating_unary,
              .cpu = cpu::log,
              .saves_inputs = 1,
              .gradient = [](const Backward& b) -> Tensors { return {div(b.grads[0], b.in[0])}; },
              .samples = positive};
const Op kLog1p{.name = "log1p",
                .shape = floating_unary,
                .cpu = cpu::log1p,
                .saves_inputs = 1,
                .gradient = [](const Backward& b) -> Tensors { return {div(b.grads[0], add(b.in[0], 1.0))}; },
                .samples = positive};
const Op kSqrt{.name = "sqrt",
               .shape = floating_unary,
               .cpu = cpu::sqrt,
               .saves_outputs = 1,
               .gradient = [](const Backward& b) -> Tensors { return {div(mul(b.grads[0], 0.5), b.out[0])}; },
               .samples = positive};
const Op kRsqrt{
    .name = "rsqrt",
    .shape = floating_unary,
    .cpu = cpu::rsqrt,
    .saves_outputs = 1,
    .gradient = [](const Backward& b) -> Tensors { return {mul(mul(b.grads[0], -0.5), pow(b.out[0], 3.0))}; },
    .samples = positive};
const Op kReciprocal{
    .name = "reciprocal",
    .shape = floating_unary,
    .cpu = cpu::reciprocal,
    .saves_outputs = 1,
    .gradient = [](const Backward& b) -> Tensors { return {neg(mul(b.grads[0], square(b.out[0])))}; },
    .samples = positive};
const Op kSin{.name = "sin",
              .shape = floating_unary,
              .cpu = cpu::sin,
              .saves_inputs = 1,
              .gradient = [](const Backward& b) -> Tensors { return {mul(b.grads[0], cos(b.in[0]))}; },
              .samples = any};
const Op kCos{.name = "cos",
              .shape = floating_unary,
              .cpu = cpu::cos,
              .saves_inputs = 1,
              .gradient = [](const Backward& b) -> Tensors { return {neg(mul(b.grads[0], sin(b.in[0])))}; },
              .samples = any};
const Op kErf{.name = "erf",
              .shape = floating_unary,
              .cpu = cpu::erf,
              .saves_inputs = 1,
              .gradient = [](const Backward& b) -> Tensors {
                return {mul(mul(b.grads[0], 2 * std::numbers::inv_sqrtpi), exp(neg(square(b.in[0]))))};
              },
              .samples = any};
const Op kClamp{
    .name = "clamp",
    .attrs = {{"min", -kInf}, {"max", kInf}},
    .shape = floating_unary,
    .cpu = cpu::clamp,
    .saves_inputs = 1,
    .gradient = [](const Backward& b) -> Tensors {
      const Tensor &x = b.in[0], &g = b.grads[0];
      const DType t = x.dtype();
      const Tensor zero = Tensor::scalar(0, t);
      const Tensor low = where(lt(x, Tensor::scalar(b.attrs.number("min"), t)), zero, g);
      return {where(gt(x, Tensor::scalar(b.attrs.number("max"), t)), zero, low)};
    },
    .samples = []() -> std::vector<Sample> {
      return {{{sample({3, 4})}, {{"min", -0.51}, {"max", 0.73}}}, {{sample({5})}, {{"min", 0.1}}}};
    }};

Tensor neg(const Tensor& x) { return apply1(kNeg, {x}); }
Tensor abs(const Tensor& x) { return apply1(kAbs, {x}); }
Tensor square(const Tensor& x) { return apply1(kSquare, {x}); }
Tensor sign(const Tensor& x) { return apply1(kSign, {x}); }
Tensor exp(const Tensor& x) { return apply1(kExp, {x}); }
Tensor log(const Tensor& x) { return apply1(kLog, {x}); }
Tensor log1p(const Tensor& x) { return apply1(kLog1p, {x}); }
Tensor sqrt(const Tensor& x) { return apply1(kSqrt, {x}); }
Tensor rsqrt(const Tensor& x) { return apply1(kRsqrt, {x}); }
Tensor reciprocal(const Tensor& x) { return apply1(kReciprocal, {x}); }
Tensor sin(const Tensor& x) { return apply1(kSin, {x}); }
Tensor cos(const Tensor& x) { return apply1(kCos, {x}); }
Tensor erf(const Tensor& x) { return apply1(kErf, {x}); }
Tensor clamp(const Tensor& x, double min, double max) {
  return apply1(kClamp, {x}, {{"min", min}, {"max", max}});
}

}  // namespace troupe::ops
