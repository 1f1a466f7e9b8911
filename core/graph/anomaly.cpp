#include "core/graph/anomaly.h"

#include <cmath>

namespace troupe {
namespace {

std::atomic<Anomaly> mode{Anomaly::off};

}  // namespace

Anomaly anomaly_mode() { return mode.load(std::memory_order_relaxed); }
AnomalyGuard::AnomalyGuard(Anomaly m) : before_(mode.exchange(m)) {}
AnomalyGuard::~AnomalyGuard() { mode = before_; }

std::string internal::find_anomaly(const Tensor& t, Anomaly wanted) {
  if (wanted == Anomaly::off || !t.defined() || !is_floating(t.dtype())) return {};
  const std::vector<double> values = t.to_vector<double>();
  const auto bad = [wanted](double v) { return std::isnan(v) || (wanted == Anomaly::inf && std::isinf(v)); };
  size_t first = values.size(), count = 0;
  for (size_t i = 0; i < values.size(); ++i)
    if (bad(values[i]) && ++count == 1) first = i;
  if (!count) return {};
  Shape at = t.shape();
  int64_t rest = static_cast<int64_t>(first);
  for (int d = at.rank() - 1; d >= 0; --d) at[d] = rest % t.shape()[d], rest /= t.shape()[d];
  std::string text = std::isnan(values[first]) ? "a NaN at " : "an infinity at ";
  text += at.str();
  return count == 1 ? text : text + ", and " + std::to_string(count - 1) + " more";
}

}  // namespace troupe
