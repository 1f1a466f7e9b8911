// Pinned memory of the host, and copies that nobody waits for.
#include "core/memory/pinned_buffer.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "tests/cuda/gpus.h"
#ifdef TROUPE_CUDA_SIM
#include "tests/support/sim_cuda/sim.h"
#endif

using namespace troupe;

namespace {

using testing::needs_gpus, testing::gpu0;

constexpr size_t kChunk = PinnedBuffer::kChunk;

Tensor numbers(size_t bytes) {
  std::vector<uint8_t> values(bytes);
  for (size_t i = 0; i < bytes; ++i) values[i] = static_cast<uint8_t>(i * 7 + (i >> 12));
  return tensor(values, uint8);
}

std::shared_ptr<PinnedBuffer> pinned(size_t bytes) { return backend_of(gpu0).pinned_buffer(bytes, gpu0); }

TEST_CASE("bytes of a GPU come to pinned memory and go back, chunk by chunk") {
  if (!needs_gpus(1)) return;
  for (const size_t bytes : {size_t{1}, size_t{1000}, kChunk - 1, kChunk, kChunk + 1, 5 * kChunk + 3}) {
    INFO(bytes);
    const Tensor here = numbers(bytes), there = here.data_on(gpu0);
    const auto buffer = pinned(bytes);
    REQUIRE(buffer);
    CHECK(reinterpret_cast<uintptr_t>(buffer->data()) % 64 == 0);
    buffer->fetch(there.address());
    for (size_t at = 0; at < bytes;) {
      const size_t end = buffer->arrived(at + 1);
      REQUIRE(end > at);
      CHECK(std::memcmp(buffer->data() + at, here.bytes() + at, end - at) == 0);
      at = end;
    }
    const auto back = pinned(bytes);
    const Tensor copy = empty({static_cast<int64_t>(bytes)}, {uint8, gpu0});
    back->there = copy.storage();
    for (size_t at = 0; at < bytes; at += 100'000) {
      std::memcpy(back->data() + at, here.bytes() + at, std::min<size_t>(100'000, bytes - at));
      back->forward(std::min(at + 100'000, bytes));
    }
    CHECK(bit_equal(copy, here));
  }
  CHECK(allocator_stats(gpu0).pinned == 0);
}

TEST_CASE("pinned memory has an end, and what is not used is given back") {
  if (!needs_gpus(1)) return;
  CHECK(pinned(size_t{1} << 40) == nullptr);
  const auto buffer = pinned(100'000);
  CHECK(allocator_stats(gpu0).pinned == 1 << 17);
  release_cached_memory(gpu0);
  std::memset(buffer->data(), 1, 100'000);
}

#ifdef TROUPE_CUDA_SIM
// The first address is free again only when the device has come to the copies.
TEST_CASE("pinned memory is used again after the copies from and to it") {
  if (!needs_gpus(1)) return;
  const size_t bytes = 6 * kChunk;
  const Tensor device = numbers(bytes).data_on(gpu0);
  for (const bool fetches : {true, false})
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      INFO("seed " << seed);
      release_cached_memory(gpu0);
      sim_cuda::schedule_by_seed(seed);
      auto first = pinned(bytes);
      const std::byte* const address = first->data();
      if (fetches) {
        first->fetch(device.address());
      } else {
        first->there = device.storage();
        first->forward(bytes);
      }
      first.reset();
      auto second = pinned(bytes);
      CHECK(second->data() != address);
      CHECK(allocator_stats(gpu0).pinned > 0);
      second.reset();
      backend_of(gpu0).synchronize(gpu0);
      CHECK(allocator_stats(gpu0).pinned == 0);
      const auto third = pinned(bytes), fourth = pinned(bytes);
      CHECK((third->data() == address || fourth->data() == address));
      sim_cuda::schedule_eagerly();
      CHECK(sim_cuda::take_fault() == "");
    }
}

TEST_CASE("a system that gives no pinned memory is told so by null") {
  if (!needs_gpus(1)) return;
  release_cached_memory(gpu0);
  sim_cuda::set_pinned_memory(1 << 20);
  const auto one = pinned(1 << 20);
  CHECK(one);
  CHECK(pinned(10) == nullptr);
  sim_cuda::set_pinned_memory(SIZE_MAX);
  CHECK(pinned(10) != nullptr);
}
#endif

}  // namespace
