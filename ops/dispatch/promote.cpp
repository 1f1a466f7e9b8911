#include "ops/dispatch/promote.h"

#include <algorithm>
#include <cmath>

#include "core/tensor/creation.h"
#include "core/tensor/elements.h"

namespace troupe::ops {
namespace {

int category(DType t) { return t == boolean ? 0 : is_floating(t) ? 2 : 1; }

std::optional<DType> stronger(std::optional<DType> first, std::optional<DType> second) {
  if (!first || !second) return first ? first : second;
  return category(*second) > category(*first) ? second : first;
}

}  // namespace

DType ResultType::get() const { return stronger(dimensioned_, stronger(zero_d_, number_)).value_or(boolean); }

DType result_type(const Tensor& a, const Tensor& b) {
  ResultType type;
  type.add(a);
  type.add(b);
  return type.get();
}
DType result_type(const Tensor& a, const Scalar& number) {
  ResultType type;
  type.add(a);
  type.add(number);
  return type.get();
}

Tensors promoted(const Op& op, std::span<const Tensor> in, const Attrs& attrs) {
  ResultType type;
  for (const Tensor& t : in.subspan(op.promotes_from)) type.add(t);
  for (const Attr& a : attrs.list())
    if (const auto* number = std::get_if<Scalar>(&a.value))
      if (op.promotes != Promotion::bounds || !std::isinf(number->to<double>())) type.add(*number);
  const DType common = op.promotes == Promotion::floating ? floating_type(type.get()) : type.get();
  if (std::all_of(in.begin() + op.promotes_from, in.end(),
                  [&](const Tensor& t) { return t.dtype() == common; }))
    return {};
  Tensors out(in.begin(), in.end());
  for (size_t i = op.promotes_from; i < out.size(); ++i) out[i] = to(out[i], common);
  return out;
}

Tensor wrapped(const Scalar& number, DType dtype, Device device) {
  Tensor t = empty({}, {dtype, device});
  fill_elements(t, number);
  return t;
}

}  // namespace troupe::ops
