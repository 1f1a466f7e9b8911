// What the simulation finds that a GPU may not show, and what it does on demand. Real GPUs have none of this.
#ifdef TROUPE_CUDA_SIM
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <new>

#include "core/cuda/install.h"
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "tests/cuda/gpus.h"
#include "tests/cuda/kernels.h"
#include "tests/support/error_of.h"
#include "tests/support/sim_cuda/sim.h"

using namespace troupe;

namespace {

using testing::needs_gpus, testing::SharedBy;

using testing::gpu0, testing::gpu1;

// The fault that f plants, found when its work is waited for.
template <class F>
std::string fault_of(F&& f) {
  const std::string thrown = testing::text_of([&] {
    f();
    backend_of(gpu0).synchronize(gpu0);
    backend_of(gpu1).synchronize(gpu1);
  });
  const std::string fault = sim_cuda::take_fault();
  if (!fault.empty() && thrown.find(fault) == std::string::npos)
    return "not thrown: " + fault + "; but " + thrown;
  return fault;
}

bool has(const std::string& text, const std::string& part) {
  UNSCOPED_INFO(text);
  return text.find(part) != std::string::npos;
}

// Eagerly, and by some seeds.
template <class F>
void in_all_schedules(F&& f) {
  f();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    sim_cuda::schedule_by_seed(seed);
    f();
    sim_cuda::schedule_eagerly();
  }
}

TEST_CASE("the host cannot touch memory of a device") {
  if (!needs_gpus(1)) return;
  const Tensor t = zeros({4}, {float32, gpu0});
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK(write(ends[1], t.address(), 4) == -1);  // a read in the process itself is a crash
  CHECK(errno == EFAULT);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("kernels that get the wrong memory are found") {
  if (!needs_gpus(2)) return;
  in_all_schedules([] {
    const Tensor here = zeros({300}), there = zeros({300}, {float32, gpu0});
    const Tensor other = zeros({300}, {float32, gpu1});
    CHECK(has(fault_of([&] { testing::scale(there, here, 1, 300); }),
              "scale on device 0: pointer number 2 is to memory of the host"));
    CHECK(has(fault_of([&] { testing::scale(here, there, 1, 300); }),
              "pointer number 1 is to memory of the host"));
    CHECK(has(fault_of([&] { testing::scale_by_object(there, here, 1); }), "is to memory of the host"));
    CHECK(has(fault_of([&] { testing::scale(there, other, 1, 300); }), "is to memory of another device"));
    CHECK(fault_of([&] { testing::scale(there, there, 1, 300); }) == "");
  });
}

TEST_CASE("a kernel that writes behind its tensor is found when that is freed") {
  if (!needs_gpus(1)) return;
  in_all_schedules([] {
    const Tensor in = zeros({400}, {float32, gpu0});
    CHECK(has(fault_of([&] {
                testing::scale(zeros({300}, {float32, gpu0}), in, 1, 301);
              }),
              "something wrote behind an allocation of 1200 bytes on device 0"));
  });
}

TEST_CASE("memory that was freed or never written has no stale values") {
  if (!needs_gpus(1)) return;
  const Tensor fresh = empty({10}, {float32, gpu0});
  for (const float x : fresh.to_vector<float>()) CHECK(x != x);
  Tensor freed = zeros({10}, {float32, gpu0});
  std::byte* const address = freed.address();
  freed = Tensor();
  CHECK(has(fault_of([&] {
              float to[10];
              backend_of(gpu0).copy(to, address, sizeof to, CopyWay::to_host, gpu0);
            }),
            "memory that is not allocated at that time"));
  CHECK(has(fault_of([&] { backend_of(gpu0).free(address, 40, gpu0, 0); }), "freed before"));
}

TEST_CASE("a missing barrier shows, whichever order the warps have") {
  if (!needs_gpus(1)) return;
  int wrong = 0, right = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    sim_cuda::schedule_by_seed(seed);
    const Tensor in = ones({1024}, {float32, gpu0}), out = empty({4}, {float32, gpu0});
    testing::sum_blocks(out, in, 256, SharedBy::no_barrier);
    wrong += out.to_vector<float>() != std::vector<float>(4, 256);
    testing::sum_blocks(out, in, 256, SharedBy::dynamic_memory);
    right += out.to_vector<float>() == std::vector<float>(4, 256);
    sim_cuda::schedule_eagerly();
  }
  CHECK(wrong == 50);
  CHECK(right == 50);
}

TEST_CASE("warps that are ahead of others between two barriers are found, in kernels with shuffles, too") {
  if (!needs_gpus(1)) return;
  int wrong = 0, right = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    sim_cuda::schedule_by_seed(seed);
    const Tensor in = ones({256}, {float32, gpu0}), out = empty({256}, {float32, gpu0});
    testing::sum_twice(out, in, false);
    wrong += out.to_vector<float>() != std::vector<float>(256, 768);
    testing::sum_twice(out, in, true);
    right += out.to_vector<float>() == std::vector<float>(256, 768);
    sim_cuda::schedule_eagerly();
  }
  CHECK(wrong >= 20);
  CHECK(right == 60);
}

TEST_CASE("threads that wait at two barriers, or for lanes that do not come, are found") {
  if (!needs_gpus(1)) return;
  CHECK(has(fault_of([] { testing::wait_apart(gpu0); }),
            "threads of a block wait for each other at two places"));
  CHECK(has(fault_of([] { testing::wait_for_missing_lanes(gpu0); }), "wait for each other at two places"));
  CHECK(fault_of([] { testing::launch_with(gpu0, 3, 64, 100); }) == "");
}

// Whichever of the two comes first in a schedule, also where all values are right.
TEST_CASE("a stream that does not wait for another one is found in every schedule") {
  if (!needs_gpus(1)) return;
  in_all_schedules([] {
    const std::string fault = fault_of([] { testing::read_on_second_stream(gpu0, false); });
    CHECK(has(fault, "and neither waits for the other: bytes 0 to 4000 of an allocation of 4000"));
    CHECK(has(fault, "cudaMemcpyAsync"));
    CHECK(has(fault, "scale"));
    CHECK(fault_of([] { testing::read_on_second_stream(gpu0, true); }) == "");
    CHECK(fault_of([] { CHECK(testing::read_after_the_host_waited(gpu0) == 3); }) == "");
  });
}

TEST_CASE("streams that write two parts of a tensor need no order, and those of overlapping parts do") {
  if (!needs_gpus(1)) return;
  in_all_schedules([] {
    CHECK(fault_of([] { testing::write_halves(gpu0, 0); }) == "");
    CHECK(has(fault_of([] { testing::write_halves(gpu0, 1); }), "bytes 1996 to 2000 of an allocation"));
  });
}

TEST_CASE("memory that is freed before another stream has read it is found in every schedule") {
  if (!needs_gpus(1)) return;
  in_all_schedules([] {
    const std::string fault = fault_of([] { testing::free_before_second_stream(gpu0); });
    CHECK((has(fault, "not allocated at that time") || has(fault, "a free")));
  });
}

TEST_CASE("out of memory says what was asked for, and a pool that is in pieces is given back first") {
  if (!needs_gpus(1)) return;
  release_cached_memory(gpu0);
  const size_t used = allocator_stats(gpu0).in_use;
  sim_cuda::set_memory(used + (4 << 20));
  { const Tensor first = empty({3 << 20}, {uint8, gpu0}); }
  { const Tensor second = empty({2 << 20}, {uint8, gpu0}); }  // does not fit beside what the first left
  std::string text;
  try {
    empty({5 << 20}, {uint8, gpu0});
  } catch (const std::bad_alloc& e) {
    text = e.what();
  }
  CHECK(text == "[cuda] out of memory on cuda:0: 5242880 bytes asked for, " + std::to_string(used) +
                    " used by this process, 4194304 free of " + std::to_string(used + (4 << 20)));
  sim_cuda::fail_allocation(1);
  CHECK(empty({10}, {float32, gpu0}).defined());  // asked again
  sim_cuda::set_memory(size_t{8} << 30);
}

TEST_CASE("work on a device waits for nothing") {
  if (!needs_gpus(2)) return;
  in_all_schedules([] {
    const Tensor in = ones({100}, {float32, gpu0});
    sim_cuda::reset_counters();
    Tensor x = in;
    for (int i = 0; i < 10; ++i) {
      const Tensor y = empty({100}, {float32, gpu0});
      testing::scale(y, x, 2, 100);
      add_elements(y, y, in);
      x = y.data_on(gpu1).data_on(gpu0);
    }
    CHECK(sim_cuda::counters().synchronizations == 0);
    CHECK(sim_cuda::counters().launches == 20);
    CHECK(sim_cuda::counters().allocations == 30);
    CHECK(x.to_vector<float>()[99] == 2047);
    CHECK(sim_cuda::counters().synchronizations == 1);
    CHECK(sim_cuda::take_fault() == "");
  });
}

}  // namespace
#endif
