// Medians, and the processor time of any process.
#pragma once
#include <sys/types.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "core/base/error.h"

namespace troupe::bench {

/// The value that this share of them, below 1, is smaller than.
inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) throw_invalid("[bench] quantile of no values: nothing was measured");
  const auto at = values.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values.size()));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}
inline double median(const std::vector<double>& values) { return quantile(values, 0.5); }

/// Processor time of a process of this host, from outside, without disturbing it.
class CpuClock {
 public:
  explicit CpuClock(int64_t process) {
    if (clock_getcpuclockid(static_cast<pid_t>(process), &clock_) != 0)
      throw_error(ErrorKind::failed, "[bench] no processor clock of another process");
  }
  double microseconds() const {
    timespec t{};
    clock_gettime(clock_, &t);
    return 1e6 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_nsec);
  }

 private:
  clockid_t clock_{};
};

}  // namespace troupe::bench
