// Type promotion: the dtype in which operands of several dtypes meet, as in PyTorch.
#pragma once
#include "core/graph/autocast.h"
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// Of three sorts of operands, tensors with dimensions, 0-d tensors and numbers, a later one counts only if
/// its category (bool < integer < floating) is above those before; within a sort promote_types() decides. A
/// number counts as bool, int64 or float32.
class ResultType {
 public:
  void add(const Tensor& t) { add(t.dim() ? dimensioned_ : zero_d_, t.dtype()); }
  void add(const Scalar& number) { add(number_, number.is_floating() ? kDefaultDType : number.dtype()); }
  /// bool of no operands.
  DType get() const;

 private:
  static void add(std::optional<DType>& sort, DType t) { sort = sort ? promote_types(*sort, t) : t; }
  std::optional<DType> dimensioned_, zero_d_, number_;
};
DType result_type(const Tensor& a, const Tensor& b);
DType result_type(const Tensor& a, const Scalar& number);
/// t, or float32 where t is not floating.
constexpr DType floating_type(DType t) { return is_floating(t) ? t : kDefaultDType; }

/// x itself if it has that dtype, else a converted copy: the recorded operator of ops/view.cpp.
Tensor to(const Tensor& x, DType dtype);

/// Whether the inputs of an operator that promotes may have to change.
inline bool may_differ(const Op& op, std::span<const Tensor> in) {
  if (op.promotes == Promotion::none || in.size() <= op.promotes_from) return false;
  const DType t = in[op.promotes_from].dtype();
  for (size_t i = op.promotes_from + 1u; i < in.size(); ++i)
    if (in[i].dtype() != t) return true;
  return !is_floating(t);
}
/// The inputs in the dtype in which the operator works, by the recorded `to`; empty if they are already.
Tensors promoted(const Op& op, std::span<const Tensor> in, const Attrs& attrs);

/// f(t), or, of a half t, f(float32) rounded to it: what several operators make is rounded once. f gets the
/// dtype in which to compute.
template <class F>
Tensor rounded_once(DType t, F&& f) {
  if (!is_half(t)) return f(t);
  const AutocastMode off(Autocast::off);
  return to(f(float32), t);
}

/// 0-d, converted without a check of its range: what PyTorch makes of a number beside a tensor of that dtype.
Tensor wrapped(const Scalar& number, DType dtype, Device device);

/// Places as int64, of int32 ones: operators that take elements of every dtype as they are know no others.
Tensor as_places(const Tensor& index);

}  // namespace troupe::ops
