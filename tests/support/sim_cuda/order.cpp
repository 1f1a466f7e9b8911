#include "tests/support/sim_cuda/order.h"

#include "tests/support/sim_cuda/machine.h"

namespace sim_cuda {

void History::add(const Access& a, const Clock& now, size_t bytes) {
  if (a.begin == a.end) return;
  for (const Access& b : accesses_) {
    if (b.end <= a.begin || a.end <= b.begin || !(a.written || b.written)) continue;
    if (b.stream == a.stream || b.time <= now.of(b.stream)) continue;
    throw Fault{a.task + (a.written ? " writes" : " reads") + " what " + b.task + " on another stream " +
                (b.written ? "writes" : "reads") + ", and neither waits for the other: bytes " +
                std::to_string(std::max(a.begin, b.begin)) + " to " + std::to_string(std::min(a.end, b.end)) +
                " of an allocation of " + std::to_string(bytes)};
  }
  // What is before this one and lies in it says nothing more: whoever is after this one is after that one,
  // too.
  std::erase_if(accesses_, [&](const Access& b) {
    return a.begin <= b.begin && b.end <= a.end && (a.written || !b.written) &&
           (b.stream == a.stream || (a.written && b.time <= now.of(b.stream)));
  });
  accesses_.push_back(a);
}

}  // namespace sim_cuda
