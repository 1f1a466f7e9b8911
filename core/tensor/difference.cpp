#include "core/tensor/difference.h"

#include <cmath>

namespace troupe {

std::string difference(const Tensor& got, const Tensor& wanted, double relative, double absolute) {
  if (!got.defined() || !wanted.defined()) return got.defined() == wanted.defined() ? "" : "one is undefined";
  if (got.shape() != wanted.shape())
    return "shapes differ: " + got.summary() + ", expected " + wanted.summary();
  const auto a = got.to_vector<double>(), b = wanted.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] == b[i] || std::fabs(a[i] - b[i]) <= absolute + relative * std::fabs(b[i])) continue;
    return "element " + std::to_string(i) + " of " + got.summary() + " is " + std::to_string(a[i]) +
           ", expected " + std::to_string(b[i]) + " (difference " + std::to_string((a[i] - b[i]) * 1e12) +
           "e-12)";
  }
  return "";
}

}  // namespace troupe
