// Feeds whose batches are on a GPU.
#include "tests/cuda_train/runs.h"
#include "tests/parallel/stages.h"
#include "troupe/data.h"
#ifdef TROUPE_CUDA_SIM
#include "tests/support/sim_cuda/sim.h"
#endif

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("batches come to a GPU through pinned memory and the host does not wait for them") {
  if (!needs_gpus(1)) return;
  const Tensor x = wave({64, 5}, 1), y = arange(64);
  const auto pipeline = datasets::Pipeline(datasets::in_memory({x, y})).shuffle({.seed = 1}).batch(7);
  datasets::Feed here(pipeline), there(pipeline, {.device = "cuda:0"});
  std::vector<datasets::FedBatch> came;
#ifdef TROUPE_CUDA_SIM
  sim_cuda::reset_counters();
  sim_cuda::schedule_by_seed(1);
#endif
  while (auto batch = there.next()) came.push_back(std::move(*batch));
#ifdef TROUPE_CUDA_SIM
  CHECK(sim_cuda::pending() > 0);  // from other memory the copies would be over
  CHECK(sim_cuda::counters().synchronizations == 0);
#endif
  CHECK(came.size() == 10);
  for (const auto& batch : came) {
    const auto expected = here.next();
    REQUIRE(expected);
    for (const char* field : {"x", "y"}) {
      CHECK(batch.tensor(field).device() == Device("cuda:0"));
      CHECK(equal(batch.tensor(field).to(cpu), expected->tensor(field)));
    }
  }
#ifdef TROUPE_CUDA_SIM
  sim_cuda::schedule_eagerly();
#endif
}
