// Lines of a log that are the same are counted, not repeated.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/clock.h"

namespace troupe::internal::log {

/// Not synchronized.
class Repeats {
 public:
  /// What to write for this line, the first included: the line itself; nothing; or, at the 10th, the 100th,
  /// ... and where it has not been written for a minute, the line and how often it came.
  std::string line(const std::string& text, TimePoint now);
  /// At the end: the lines that came since they were written, with their counts.
  std::vector<std::string> rest();

 private:
  struct Entry {
    int64_t times = 0, written = 0;  // in all; when it was written last
    int64_t next = 1;                // written at these many: 1, 10, 100, ...
    TimePoint at{};
  };
  static std::string counted(const std::string& text, const Entry& entry);
  std::unordered_map<std::string, Entry> lines_;
};

}  // namespace troupe::internal::log
