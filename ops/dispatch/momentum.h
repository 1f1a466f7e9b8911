// Numbers of a step that the updates of NAdam and RAdam need, for every device.
#pragma once
#include <cmath>
#include <cstdint>

namespace troupe::ops {

/// The momentum of NAdam's step t, which counts from 1.
inline double nadam_momentum(double beta1, double decay, int64_t step) {
  return beta1 * (1 - 0.5 * std::pow(0.96, static_cast<double>(step) * decay));
}
/// The product of those of steps 1 to t: so soon 0 that it does not take long.
inline double nadam_product(double beta1, double decay, int64_t step) {
  double product = 1;
  for (int64_t i = 1; i <= step && product > 1e-300; ++i) product *= nadam_momentum(beta1, decay, i);
  return product;
}

/// This is by what RAdam's step t divides and multiplies; 0: it goes by the mean alone.
inline double radam_rectification(double beta2, int64_t step) {
  const auto t = static_cast<double>(step);
  const double most = 2 / (1 - beta2) - 1, power = std::pow(beta2, t);
  const double length = most - 2 * t * power / (1 - power);
  if (!(length > 5)) return 0;
  return std::sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)) *
         std::sqrt(1 - power);
}

}  // namespace troupe::ops
