// Options that are made of several operators, on a GPU.
#include "tests/cuda/gpus.h"
#include "tests/support/option_cases.h"

using namespace troupe;

TEST_CASE("options give on a GPU what they give on the CPU") {
  if (!testing::needs_gpus(1)) return;
  testing::options_give_the_same_on(testing::gpu0);
}
