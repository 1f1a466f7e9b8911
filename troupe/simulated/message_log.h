// What actors say to each other in a simulated run, in lines.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"

namespace troupe::internal {

namespace net {
struct Message;
}  // namespace net

/// Nothing is kept before keep(). Messages that only the library sends have no line.
class MessageLog {
 public:
  void keep();
  void add(uint64_t number, Duration at, const std::string& from, const std::string& to,
           const net::Message& message);
  void note(const std::string& line);
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  bool keeps_ = false;
  std::map<uint64_t, std::string> names_;                          // of methods
  std::map<std::pair<std::string, uint64_t>, std::string> calls_;  // by their maker and number
  std::vector<std::string> lines_;
};

}  // namespace troupe::internal
