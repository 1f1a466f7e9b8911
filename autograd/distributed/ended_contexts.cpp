#include "autograd/distributed/ended_contexts.h"

#include <algorithm>

namespace troupe::autograd {

bool EndedContexts::contains(uint64_t number) const {
  auto at = runs_.upper_bound(number);
  return at != runs_.begin() && number < std::prev(at)->second;
}

void EndedContexts::add(uint64_t first, uint64_t end) {
  if (first >= end) return;
  auto at = runs_.upper_bound(first);
  if (at != runs_.begin() && std::prev(at)->second >= first) --at;
  while (at != runs_.end() && at->first <= end) {  // those that it meets become one with it
    first = std::min(first, at->first);
    end = std::max(end, at->second);
    at = runs_.erase(at);
  }
  runs_.emplace(first, end);
}

}  // namespace troupe::autograd
