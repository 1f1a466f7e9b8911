#include "core/tensor/difference.h"

#include <fmt/format.h>

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
    return fmt::format("element {} of {} is {}, expected {} (difference {:.3g})", i, got.summary(), a[i], b[i],
                       a[i] - b[i]);
  }
  return "";
}

}  // namespace troupe
