// A test of one's own in simulated clusters: an answer that is counted twice is found, with the one fault
// that it needs.
#include <troupe/simulated.h>

#include <cstdio>
#include <stdexcept>

using namespace troupe;

namespace {

struct Counter : Actor {
  void count() { ++counted; }
  int64_t value() { return counted; }
  int64_t counted = 0;
  static constexpr auto remote = methods<&Counter::count, &Counter::value>;
};

struct Asker : Actor {
  Task<void> ask(RRef<Counter> counter) { co_await counter.call<&Counter::count>(); }
  static constexpr auto remote = methods<&Asker::ask>;
};

// Who is not answered asks another one to do it, who cannot know that it was done.
void counts_once(SimulatedCluster& cluster) {
  auto counter = cluster.spawn<Counter>("w0");
  for (const char* on : {"w1", "w2"})
    if (cluster.spawn<Asker>(on).call<&Asker::ask>(counter).wait().ok()) break;
  const int64_t counted = counter.call<&Counter::value>().get();
  if (counted > 1) throw std::runtime_error("counted " + std::to_string(counted) + " times");
}

}  // namespace

int main() {
  const SimulateResult result = simulate("once", counts_once, {.kills = 2, .losses = 1});
  if (!result.failure || !result.run) return std::puts("nothing was found"), 1;
  std::printf("%zu fault: %s\n", result.run->faults.size(), result.failure->c_str());
}
