// Kernels: arguments, blocks, barriers, warps, atomics, and the order of streams.
#include <catch2/catch.hpp>
#include <numeric>

#include "core/cuda/install.h"
#include "core/tensor/creation.h"
#include "tests/cuda/gpus.h"
#include "tests/cuda/kernels.h"
#include "tests/support/error_of.h"

using namespace troupe;

namespace {

using testing::needs_gpus, testing::SharedBy;

using testing::gpu0;

Tensor counted(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 1.f);
  return tensor(values).data_on(gpu0);
}

TEST_CASE("a kernel has its arguments, alone and in an object") {
  if (!needs_gpus(1)) return;
  const Tensor in = counted(1000), out = zeros({1000}, {float32, gpu0});
  testing::scale(out, in, 2, 500);
  auto values = out.to_vector<float>();
  CHECK(values[0] == 2);
  CHECK(values[499] == 1000);
  CHECK(values[500] == 0);
  testing::scale_by_object(out, in, 3);
  CHECK(out.to_vector<float>()[999] == 3000);
}

TEST_CASE("threads of a block share memory and wait for each other") {
  if (!needs_gpus(1)) return;
  for (const unsigned block : {1u, 32u, 64u, 256u, 1024u})
    for (const SharedBy shared : {SharedBy::dynamic_memory, SharedBy::static_memory}) {
      const Tensor in = counted(2048), out = empty({2048 / block}, {float32, gpu0});
      testing::sum_blocks(out, in, block, shared);
      const auto sums = out.to_vector<float>();
      for (size_t b = 0; b < sums.size(); ++b)
        CHECK(sums[b] == static_cast<float>(block * (2 * b * block + block + 1)) / 2);
    }
}

TEST_CASE("lanes of a warp exchange values") {
  if (!needs_gpus(1)) return;
  const Tensor in = counted(128), out = empty({128}, {float32, gpu0});
  testing::sum_warps(out, in);
  const auto sums = out.to_vector<float>();
  for (size_t i = 0; i < sums.size(); ++i) CHECK(sums[i] == static_cast<float>(i / 32 * 1024 + 528));
}

TEST_CASE("threads add atomically") {
  if (!needs_gpus(1)) return;
  std::vector<int32_t> which(1000);
  for (size_t i = 0; i < which.size(); ++i) which[i] = static_cast<int32_t>(i % 7);
  const Tensor counts = zeros({7}, {int32, gpu0});
  testing::count(counts, tensor(which, int32).data_on(gpu0));
  CHECK(counts.to_vector<int32_t>() == std::vector<int32_t>{143, 143, 143, 143, 143, 143, 142});
}

TEST_CASE("a stream that waits for another one sees what that wrote before, and not what it wrote later") {
  if (!needs_gpus(1)) return;
  for (int i = 0; i < 20; ++i) CHECK(testing::read_on_second_stream(gpu0, true) == 3);
}

TEST_CASE("a launch that no device can do says what it was") {
  if (!needs_gpus(1)) return;
  for (const auto& [blocks, threads] : {std::pair(1u, 2048u), {0u, 32u}, {1u, 0u}}) {
    const std::string text = testing::text_of([&] { testing::launch_with(gpu0, blocks, threads, 0); });
    CHECK(text.find("nothing") != std::string::npos);
    CHECK(text.find("cuda:0: cudaErrorInvalidValue") != std::string::npos);
  }
  testing::launch_with(gpu0, 1, 32, 0);  // and the next one works
  backend_of(gpu0).synchronize(gpu0);
}

}  // namespace
