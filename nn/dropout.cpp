#include "nn/dropout.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "ops/dropout.h"

namespace troupe::nn {

Dropout::Dropout(double p, uint64_t seed) : p_(p), generator_(std::make_shared<Generator>(seed)) {
  if (!(p >= 0 && p < 1))
    throw_invalid(fmt::format("[dropout] the probability must be in [0, 1), got {}", p));
}

Dropout::Dropout(double p) : Dropout(p, 0) { start(); }

Tensor Dropout::forward(const Tensor& x) { return idle() ? x : ops::dropout(x, p_, *generator_); }

std::string Dropout::str() const { return fmt::format("Dropout({})", p_); }

}  // namespace troupe::nn
