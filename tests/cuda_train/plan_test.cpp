// Layers that are measured on a GPU, for plans.
#include <catch2/catch.hpp>

#include "tests/cuda/gpus.h"
#include "troupe/plan.h"
#include "troupe/troupe.h"
#ifdef TROUPE_CUDA_SIM
#include "tests/support/sim_cuda/sim.h"
#endif

using namespace troupe;

TEST_CASE("layers on a GPU are timed by its events, and their layout planned") {
  if (!testing::needs_gpus(1)) return;
  const auto cluster = Cluster::in_process(2);
  const Value model =
      ValueList{nn::spec_of("linear", {16, 32}), std::string("relu"), nn::spec_of("linear", {32, 4})};
#ifdef TROUPE_CUDA_SIM
  const uint64_t before = sim_cuda::counters().times;
#endif
  const parallel::ModelProfile profile =
      parallel::measure(cluster->here(), model, randn({8, 16}).to("cuda:0"), {.repeats = 2});
#ifdef TROUPE_CUDA_SIM
  CHECK(sim_cuda::counters().times > before);
#endif
  REQUIRE(profile.layers.size() == 3);
  for (const parallel::LayerCost& l : profile.layers) {
    CHECK(l.forward.of(8) > 0);
    CHECK(l.backward.of(8) > 0);
  }
  CHECK(profile.layers[0].parameters == 4 * (16 * 32 + 32));
  CHECK(profile.layers[0].saved >= 4 * 32);
  CHECK(profile.optimizer > 0);
  CHECK(profile.process.rate > 0);
  CHECK_FALSE(parallel::plan(profile).best.empty());
}
