// Boolean operators: logic, special values, any and all; masked_fill.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// Bool, of tensors that broadcast; of other dtypes what is not 0 is true.
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);

/// The same of bools, as & | ^ ~ write them. Here they are for bool alone: `invalid` of integers.
Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
Tensor bitwise_not(const Tensor& x);
/// Of a bool beside the tensor.
Tensor bitwise_and(const Tensor& a, Scalar b);
Tensor bitwise_or(const Tensor& a, Scalar b);
Tensor bitwise_xor(const Tensor& a, Scalar b);

/// Whether |a - b| <= atol + rtol |b| for all elements, which broadcast. Infinities are close to themselves
/// alone, a NaN to a NaN if equal_nan. `invalid` if the dtypes differ.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false);
/// Says so of each element.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false);
/// Whether shape and elements agree. `invalid` if the dtypes differ.
bool equal(const Tensor& a, const Tensor& b);

/// Bool of x's shape, for every dtype.
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
/// Neither NaN nor infinite.
Tensor isfinite(const Tensor& x);

/// Whether some (each) element over `dim` is not zero; an empty list means all dimensions. Bool (of uint8, as
/// in PyTorch, uint8); over nothing any is false and all is true.
Tensor any(const Tensor& x, const IntList& dim = {}, bool keepdim = false);
Tensor all(const Tensor& x, const IntList& dim = {}, bool keepdim = false);

/// x with `value`, in x's dtype, where `mask` (bool) is true; they broadcast. No gradient flows there.
/// `invalid` if the dtype cannot hold the number (Scalar::fits).
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);
/// The same with a 0-d tensor, which gets a gradient.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);

extern const Op kLogicalAnd, kLogicalOr, kLogicalNot, kIsnan, kIsfinite, kAny, kAllOf, kMaskedFill;

}  // namespace troupe::ops
