// Comparisons, and where.
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/promote.h"
#include "ops/gradient_rules.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

std::vector<Sample> compared_samples() {
  return {{{sample({3, 4}), sample({3, 4}, -2, 2, 1)}},
          {{sample({3, 1}), sample({2, 1, 4}, -2, 2, 1)}},
          {{sample({}), sample({2, 3}, -2, 2, 1)}},
          {{sample({3, 0}), sample({1}, -2, 2, 1)}}};
}

// A number that the dtype does not have must not become one that it has.
Tensor compared(const Op& op, const Tensor& a, const Scalar& value) {
  if (a.defined() && is_narrow_integer(a.dtype()) && !value.is_floating()) {
    const int64_t held =
        visit_dtype(a.dtype(), [&](auto zero) { return static_cast<int64_t>(value.to<decltype(zero)>()); });
    if (held != value.to<int64_t>())
      throw_invalid(fmt::format("[{}] {} is beyond what {} holds; use .to(int64)", op.name, value.str(),
                                name(a.dtype())));
  }
  if (!a.defined()) return apply1(op, {a, a});
  const DType t = result_type(a, value);
  return apply1(op, {to(a, t), wrapped(value, t, a.device())});
}

Specs where_spec(const Call& c) {
  if (c.in[0].dtype() != boolean) reject(c, "the condition must be bool, got " + c.in[0].summary());
  require_same_dtype(c, 1);
  return {{broadcast(c.in[0].shape(), broadcast(c.in[1].shape(), c.in[2].shape(), c.name()), c.name()),
           c.in[1].dtype()}};
}

// A number on the left is compared the other way round.
template <WithNumber with_number, WithNumber mirrored>
constexpr Op comparison_op(const char* name, const char* text) {
  return {.name = name,
          .inputs = "input other",
          .text = text,
          .shape = comparison,
          .takes_half = true,
          .promotes = Promotion::common,
          .with_number = with_number,
          .of_number = [](Scalar a, const Tensor& b) { return mirrored(b, a); },
          .samples = compared_samples};
}

}  // namespace

const Op kEq = comparison_op<eq, eq>("eq", "Whether the elements of two tensors are equal.");
const Op kNe = comparison_op<ne, ne>("ne", "Whether the elements of two tensors differ.");
const Op kLt = comparison_op<lt, gt>("lt", "Whether the elements of input are smaller.");
const Op kLe = comparison_op<le, ge>("le", "Whether the elements of input are smaller or equal.");
const Op kGt = comparison_op<gt, lt>("gt", "Whether the elements of input are larger.");
const Op kGe = comparison_op<ge, le>("ge", "Whether the elements of input are larger or equal.");

const Op kWhere{.name = "where",
                .inputs = "condition input other",
                .text = "input where condition is true, else other.",
                .shape = where_spec,
                .saves_inputs = 1,
                .gradient = [](const Backward& b) -> Tensors {
                  const Tensor zero = tensor(0, b.grads[0].options());
                  Tensors out(3);
                  if (b.needs(1)) out[1] = sum_to(where(b.in[0], b.grads[0], zero), b.shape(1));
                  if (b.needs(2)) out[2] = sum_to(where(b.in[0], zero, b.grads[0]), b.shape(2));
                  return out;
                },
                .takes_half = true,
                .promotes = Promotion::common,
                .promotes_from = 1,
                .samples = []() -> std::vector<Sample> {
                  const Tensor condition = gt(sample({3, 4}, -1, 1, 2), tensor(0, float64));
                  return {{{condition, sample({3, 4}), sample({4}, -2, 2, 1)}},
                          {{condition, sample({3, 1}), sample({}, -2, 2, 1)}}};
                }};

Tensor eq(const Tensor& a, const Tensor& b) { return apply1(kEq, {a, b}); }
Tensor ne(const Tensor& a, const Tensor& b) { return apply1(kNe, {a, b}); }
Tensor lt(const Tensor& a, const Tensor& b) { return apply1(kLt, {a, b}); }
Tensor le(const Tensor& a, const Tensor& b) { return apply1(kLe, {a, b}); }
Tensor gt(const Tensor& a, const Tensor& b) { return apply1(kGt, {a, b}); }
Tensor ge(const Tensor& a, const Tensor& b) { return apply1(kGe, {a, b}); }
Tensor eq(const Tensor& a, Scalar value) { return compared(kEq, a, value); }
Tensor ne(const Tensor& a, Scalar value) { return compared(kNe, a, value); }
Tensor lt(const Tensor& a, Scalar value) { return compared(kLt, a, value); }
Tensor le(const Tensor& a, Scalar value) { return compared(kLe, a, value); }
Tensor gt(const Tensor& a, Scalar value) { return compared(kGt, a, value); }
Tensor ge(const Tensor& a, Scalar value) { return compared(kGe, a, value); }

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return apply1(kWhere, {condition, a, b});
}
Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  if (!a.defined()) return where(condition, a, a);
  const DType t = result_type(a, b);
  return where(condition, to(a, t), tensor(b, {t, condition.device()}));
}
Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  if (!b.defined()) return where(condition, b, b);
  const DType t = result_type(b, a);
  return where(condition, tensor(a, {t, condition.device()}), to(b, t));
}
Tensor where(const Tensor& condition, Scalar a, Scalar b) {
  ResultType type;
  type.add(a);
  type.add(b);
  return where(condition, tensor(a, {type.get(), condition.device()}),
               tensor(b, {type.get(), condition.device()}));
}

}  // namespace troupe::ops
