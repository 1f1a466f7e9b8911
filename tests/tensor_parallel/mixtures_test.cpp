// Runs on eight workers, cut along several axes at once, follow PyTorch's losses step by step.
#include "tests/tensor_parallel/mixed.h"

#include <catch2/catch.hpp>

#include "tests/support/nothing_left.h"

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("the transformer, cut along several axes on eight workers, follows PyTorch's losses",
          "[trajectory][oracle]") {
  for (const Run& run : transformer_runs("generated"))
    for (const Mixed& c : all_mixtures()) {
      CAPTURE(run.str(), c.dims, c.schedule, c.ring, c.pieces, parallel::word(c.shard), c.doubles);
      auto cluster = Cluster::in_process(8, hosting<MixedStage>());
      const DType dtype = c.doubles ? float64 : float32;
      const auto [distance, step] = farthest(run, losses_of(*cluster, run, c, c.doubles ? 2 : 4), dtype);
      INFO("largest difference at step " << step);
      CHECK(distance <= tolerance(run, dtype));
      nothing_left(*cluster);
    }
}
