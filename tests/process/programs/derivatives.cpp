// Plays random programs with recorded passes over real processes, and compares their numbers with those of
// one thread.
#include <cstdio>
#include <thread>

#include "tests/support/derivative_programs.h"
using namespace troupe;
using namespace troupe::testing::derivatives;

namespace {

int64_t nodes(Cluster& cluster) {
  int64_t n = 0;
  for (const auto& name : cluster.workers()) {
    auto metrics = cluster.metrics(name);
    n += metrics["send_nodes"] + metrics["receive_nodes"] + metrics["contexts"];
  }
  return n;
}

void compare(Cluster& cluster) {
  int same = 0, different = 0;
  for (uint64_t seed = 20000; seed < 20400; ++seed) {
    OnOneThread local;
    const Numbers want = play(seed, local);
    if (too_large(want)) continue;
    autograd::Context context(cluster);
    OnActors actors(
        context,
        [&](WorkerId on, int64_t start, bool hooked) {
          return cluster.spawn<Weighted>("w" + std::to_string(on), start, hooked);
        },
        [](const auto& future) { return future.get(); });
    const bool right = play(seed, actors) == want;
    ++(right ? same : different);
    if (!right) std::printf("program %llu differs\n", static_cast<unsigned long long>(seed));
    context.end().get();
  }
  while (nodes(cluster) != 0) std::this_thread::yield();  // a leak hangs
  std::printf("same %d\ndifferent %d\n", same, different);
}

}  // namespace

int main() { return launch(hosting<Weighted>(), compare); }
