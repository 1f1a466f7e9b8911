#include "llm/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"

namespace troupe::llm {

void check(const GenerateOptions& o) {
  if (o.max_new_tokens < 1)
    throw_invalid(fmt::format("[generate] max_new_tokens is {}, expected at least 1", o.max_new_tokens));
  if (!(o.temperature >= 0) || std::isinf(o.temperature))
    throw_invalid(fmt::format("[generate] temperature is {}, expected at least 0", o.temperature));
  if (o.top_k < 0) throw_invalid(fmt::format("[generate] top_k is {}, expected at least 0", o.top_k));
  if (!(o.top_p > 0 && o.top_p <= 1))
    throw_invalid(fmt::format("[generate] top_p is {}, expected a number in (0, 1]", o.top_p));
  for (const auto& stop : o.stop)
    if (stop.empty()) throw_invalid("[generate] stop has an empty text, behind which everything ends");
}

int64_t sample(const Tensor& logits, const GenerateOptions& o, Generator& generator) {
  const std::vector<double> z = logits.to(float64).to_vector<double>();
  std::vector<int64_t> order(z.size());
  std::iota(order.begin(), order.end(), 0);
  const auto more = [&](int64_t a, int64_t b) {
    const double x = z[static_cast<size_t>(a)], y = z[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  for (const double v : z)
    if (std::isnan(v))
      throw_invalid("[generate] a logit is NaN: the model's weights, or its activations, have overflowed");
  if (o.temperature == 0) return *std::min_element(order.begin(), order.end(), more);
  const size_t kept = o.top_k ? std::min(static_cast<size_t>(o.top_k), order.size()) : order.size();
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), more);
  order.resize(kept);
  std::vector<double> weight;
  double sum = 0;
  for (const int64_t i : order) {
    weight.push_back(
        std::exp((z[static_cast<size_t>(i)] - z[static_cast<size_t>(order[0])]) / o.temperature));
    sum += weight.back();
  }
  if (o.top_p < 1) {
    double before = 0;
    size_t n = 0;
    while (n < weight.size() && (n == 0 || before < o.top_p * sum)) before += weight[n++];
    weight.resize(n), sum = before;
  }
  double at = generator.uniform() * sum;
  for (size_t i = 0; i < weight.size(); ++i)
    if ((at -= weight[i]) < 0) return order[i];
  return order[weight.size() - 1];
}

}  // namespace troupe::llm
