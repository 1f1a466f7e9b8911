// What a training step of GPT-2 may ask of a GPU, at full size: a change that adds a cast, a launch or a pass
// over memory fails here. `./dev bench gpu --dry` prints the numbers.
#ifdef TROUPE_GPU_AUDIT
#include <catch2/catch.hpp>
#include <functional>
#include <tuple>

#include "bench/gpu_audit.h"
#include "tests/cuda/gpus.h"

using namespace troupe;

namespace {

TEST_CASE("a step of GPT-2 asks of a GPU no more than its budget") {
  if (!testing::needs_gpus(1)) return;
  const bench::Gpt2 size;
  const bench::StepAudit step = bench::audit_step(size);
  INFO(bench::table_of(step, size, bench::kH200));
  CHECK(step.counters.launches <= 315);
  CHECK(step.casts() == 0);
  CHECK(step.bytes() <= 26'000'000'000);
  CHECK(step.counters.copies == 0);
  CHECK(step.counters.synchronizations == 0);
  CHECK(step.counters.grown == 0);
  CHECK(step.counters.launches >= 300);  // it was a whole step
}

// Bytes that the launches of f may read and write, and their number.
std::pair<uint64_t, size_t> asked_of(const std::function<void()>& f) {
  sim_cuda::begin_audit();
  f();
  uint64_t bytes = 0;
  const auto asked = sim_cuda::end_audit();
  for (const auto& a : asked) bytes += a.read + a.written;
  return {bytes, asked.size()};
}

TEST_CASE("norms, softmax, activations and sums of halves read each input once and write each result once") {
  if (!testing::needs_gpus(1)) return;
  const NoGradGuard off;
  Generator g(1);
  const Tensor x = randn({64, 768}, g).to(bfloat16).to("cuda:0"),
               w = randn({768}, g).to(bfloat16).to("cuda:0"), y = x.clone();
  const uint64_t all = 2 * 64 * 768, row = 2 * 768;
  const std::tuple<const char*, std::function<void()>, uint64_t> cases[] = {
      {"layer_norm", [&] { layer_norm(x, 768, w, w); }, 2 * all + row},
      {"rms_norm", [&] { rms_norm(x, 768, w); }, 2 * all + row},
      {"softmax", [&] { softmax(x, 1); }, 2 * all},
      {"gelu", [&] { gelu(x); }, 2 * all},
      {"silu", [&] { silu(x); }, 2 * all},
      {"dropout", [&] { dropout(x, 0.1); }, 2 * all},
      {"add", [&] { add(x, y); }, 3 * all},
      {"sum", [&] { sum(x, {1}); }, all + 2 * 64}};
  for (const auto& [name, f, wanted] : cases) {
    INFO(name);
    CHECK(asked_of(f) == std::pair(wanted, size_t{1}));
  }
}

}  // namespace
#endif
