// What a training step of GPT-2 may ask of a GPU, at full size: a change that adds a cast, a launch or a pass
// over memory fails here. `./dev bench gpu --dry` prints the numbers.
#ifdef TROUPE_GPU_AUDIT
#include <catch2/catch.hpp>

#include "bench/gpu_audit.h"
#include "tests/cuda/gpus.h"

using namespace troupe;

namespace {

TEST_CASE("a step of GPT-2 asks of a GPU no more than its budget") {
  if (!testing::needs_gpus(1)) return;
  const bench::Gpt2 size;
  const bench::StepAudit step = bench::audit_step(size);
  INFO(bench::table_of(step, size, bench::kH200));
  CHECK(step.counters.launches <= 341);
  CHECK(step.casts() <= 2);
  CHECK(step.bytes() <= 26'700'000'000);
  CHECK(step.counters.copies == 0);
  CHECK(step.counters.synchronizations == 0);
  CHECK(step.counters.grown == 0);
  CHECK(step.counters.launches >= 300);  // it was a whole step
}

}  // namespace
#endif
