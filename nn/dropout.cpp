// Dropout is a product with a random mask.
#include "nn/dropout.h"

#include "core/error.h"
#include "ops/arithmetic.h"

namespace troupe::nn {

Dropout::Dropout(double p, uint64_t seed) : p_(p), generator_(seed) {
  if (!(p >= 0 && p < 1))
    throw_invalid("[dropout] the probability must be in [0, 1), got " + std::to_string(p));
}

Tensor Dropout::forward(const Tensor& x) {
  if (!training() || p_ == 0) return x;
  const Tensor mask = Tensor::empty(x.shape(), x.dtype());
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* out = mask.data<T>();
    const T kept = static_cast<T>(1 / (1 - p_));
    for (int64_t i = 0, n = mask.numel(); i < n; ++i) out[i] = generator_.uniform() < p_ ? T(0) : kept;
  });
  return ops::mul(x, mask);
}

}  // namespace troupe::nn
