#include "nn/dropout.h"

#include "core/error.h"
#include "ops/dropout.h"

namespace troupe::nn {

Dropout::Dropout(double p, uint64_t seed) : p_(p), generator_(seed) {
  if (!(p >= 0 && p < 1))
    throw_invalid("[dropout] the probability must be in [0, 1), got " + std::to_string(p));
}

Tensor Dropout::forward(const Tensor& x) { return idle() ? x : ops::dropout(x, p_, generator_); }

}  // namespace troupe::nn
