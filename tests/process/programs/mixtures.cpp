// Trains the transformer of trajectories.json on eight workers, cut along several axes in turn: prints how
// far the losses are from PyTorch's, beside the bound.
#include <cstdio>

#include "tests/support/nothing_left.h"
#include "tests/tensor_parallel/mixed.h"
using namespace troupe;

int main() {
  return launch(hosting<testing::MixedStage>(), [](Cluster& cluster) {
    const testing::Run run = testing::transformer_runs("generated").at(0);
    for (const testing::Mixed& c : testing::all_mixtures()) {
      const DType dtype = c.doubles ? float64 : float32;
      const auto [distance, step] = testing::farthest(run, testing::losses_of(cluster, run, c, 2), dtype);
      const double bound = testing::tolerance(run, dtype);
      std::printf("%s %s %s: %g of %g at step %zu\n", distance <= bound ? "near" : "FAR", c.dims.c_str(),
                  c.schedule.c_str(), distance, bound, static_cast<size_t>(step));
      std::fflush(stdout);
    }
  });
}
