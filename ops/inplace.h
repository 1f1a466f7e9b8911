// Writes in place that enter the recorded graph as PyTorch's do: `a` gets new elements and a new history.
//
// Each checks all that it refuses before it changes anything (core/graph/inplace_write.h), and bumps the
// version of `a`. The other tensors broadcast to `a`, never the reverse, and the result must be castable to
// its dtype: not from floating to integers, nor from numbers to bool.
#pragma once
#include "core/tensor/tensor.h"

namespace troupe::ops {

/// a = b, broadcast and converted; from every dtype to every dtype.
void copy_(const Tensor& a, const Tensor& b);
void fill_(const Tensor& a, Scalar value);
/// `value` is 0-d.
void fill_(const Tensor& a, const Tensor& value);

/// a += alpha b.
void add_(const Tensor& a, const Tensor& b, Scalar alpha = 1);
void add_(const Tensor& a, Scalar s);
/// a -= alpha b.
void sub_(const Tensor& a, const Tensor& b, Scalar alpha = 1);
void sub_(const Tensor& a, Scalar s);
void mul_(const Tensor& a, const Tensor& b);
void mul_(const Tensor& a, Scalar s);
void div_(const Tensor& a, const Tensor& b);
void div_(const Tensor& a, Scalar s);
/// The rounding_mode is "trunc" or "floor".
void div_(const Tensor& a, const Tensor& b, const std::string& rounding_mode);
void div_(const Tensor& a, Scalar s, const std::string& rounding_mode);
void remainder_(const Tensor& a, const Tensor& b);
void remainder_(const Tensor& a, Scalar s);
void pow_(const Tensor& a, const Tensor& exponent);
void pow_(const Tensor& a, Scalar exponent);
void clamp_(const Tensor& a, std::optional<Scalar> min, std::optional<Scalar> max = {});
/// One of both may be undefined.
void clamp_(const Tensor& a, const Tensor& min, const Tensor& max = {});
/// a = max(a, b).
void maximum_(const Tensor& a, const Tensor& b);
void minimum_(const Tensor& a, const Tensor& b);

/// a += value b c.
void addcmul_(const Tensor& a, const Tensor& b, const Tensor& c, Scalar value = 1);
/// a += value b / c.
void addcdiv_(const Tensor& a, const Tensor& b, const Tensor& c, Scalar value = 1);
/// a += weight (b - a).
void lerp_(const Tensor& a, const Tensor& b, double weight);
void lerp_(const Tensor& a, const Tensor& b, const Tensor& weight);
/// a = value where `mask` (bool) is true.
void masked_fill_(const Tensor& a, const Tensor& mask, Scalar value);
/// `value` is 0-d.
void masked_fill_(const Tensor& a, const Tensor& mask, const Tensor& value);

/// a += alpha source in its slices `index` along dim.
void index_add_(const Tensor& a, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha = 1);

void neg_(const Tensor& a);
void abs_(const Tensor& a);
void square_(const Tensor& a);
void floor_(const Tensor& a);
void ceil_(const Tensor& a);
void round_(const Tensor& a);
void round_(const Tensor& a, int64_t decimals);
void exp_(const Tensor& a);
void expm1_(const Tensor& a);
void log_(const Tensor& a);
void log1p_(const Tensor& a);
void sqrt_(const Tensor& a);
void rsqrt_(const Tensor& a);
void reciprocal_(const Tensor& a);
void sin_(const Tensor& a);
void cos_(const Tensor& a);
void relu_(const Tensor& a);
void tanh_(const Tensor& a);
void sigmoid_(const Tensor& a);

}  // namespace troupe::ops
