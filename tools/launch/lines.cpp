// Whole lines only: half of one worker's line never meets half of another's.
#include "tools/launch/lines.h"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::tools {

void Lines::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const size_t room = kLongest - partial_.size();
    const size_t take = std::min({end, bytes.size(), room});
    partial_ += bytes.substr(0, take);
    const bool complete = take == end;
    bytes.remove_prefix(take + complete);
    if (complete || partial_.size() == kLongest) emit(out);
  }
}

void Lines::finish(std::string& out) {
  if (!partial_.empty()) emit(out);
}

void Lines::emit(std::string& out) {
  out += prefix_;
  out += partial_;
  out += '\n';
  last_.push_back(std::move(partial_));
  partial_.clear();
  if (last_.size() > kRemembered) last_.pop_front();
}

std::string prefix_of(int64_t rank, bool colour) {
  if (!colour) return fmt::format("[w{}] ", rank);
  constexpr int kColours[] = {36, 33, 32, 35, 34, 96, 93, 92, 95, 94};
  return fmt::format("\033[{}m[w{}]\033[0m ", kColours[size_t(rank) % std::size(kColours)], rank);
}

}  // namespace troupe::tools
