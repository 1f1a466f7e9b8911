// Memory of GPUs: allocation, copies in all directions, peers, fills, statistics, errors.
#include <catch2/catch.hpp>
#include <numeric>

#include "core/cuda/install.h"
#include "core/memory/backend.h"
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "tests/cuda/gpus.h"
#include "tests/support/error_of.h"

using namespace troupe;

namespace {

using testing::needs_gpus;

using testing::gpu0, testing::gpu1;

// Elements that no conversion rounds, of any dtype; bool: every third one is false.
Tensor numbers(const Shape& shape, DType dtype) {
  std::vector<int64_t> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0);
  for (auto& v : values) v = dtype == boolean ? v % 3 : v % 120;
  const Tensor out = empty(shape, dtype);
  copy_elements(out.alias({out.numel()}, {1}, 0), tensor(values));
  return out;
}

constexpr DType kAll[] = {float32, float64, int64, boolean, bfloat16, float16, int32, uint8};

TEST_CASE("tensors of every dtype go to a GPU and come back") {
  if (!needs_gpus(1)) return;
  for (const DType dtype : kAll) {
    const Tensor here = numbers({7, 33}, dtype);
    const Tensor there = here.data_on(gpu0);
    CHECK(there.device() == gpu0);
    CHECK(bit_equal(there.data_on(cpu), here));
    CHECK(bit_equal(there.clone_data().data_on(cpu), here));
  }
  const Tensor none = empty({0, 3}, {float32, gpu0});
  CHECK(none.data_on(cpu).numel() == 0);
  CHECK(none.clone_data().numel() == 0);
}

TEST_CASE("elements are copied from and to any strides, as on the CPU") {
  if (!needs_gpus(1)) return;
  struct View {
    Shape shape, strides;
    int64_t offset;
  };
  const View views[] = {{{6, 5, 4}, {20, 4, 1}, 0},
                        {{4, 5, 6}, {1, 4, 20}, 0},
                        {{6, 5, 4}, {0, 4, 1}, 3},
                        {{3, 5, 2}, {40, 4, 2}, 1},
                        {{120}, {1}, 0},
                        {{}, {}, 7},
                        {{2, 3, 1, 2, 1, 5, 1, 2}, {60, 20, 9, 10, 9, 2, 9, 1}, 0}};
  for (const DType dtype : kAll)
    for (const View& v : views) {
      const Tensor whole = numbers({160}, dtype), there = whole.data_on(gpu0);
      const Tensor here = whole.alias(v.shape, v.strides, v.offset);
      const Tensor moved = there.alias(v.shape, v.strides, v.offset);
      INFO(here.str());
      CHECK(bit_equal(moved.clone_data().data_on(cpu), here.clone_data()));
      CHECK(bit_equal(moved.data_on(cpu), here.clone_data()));
      if (v.strides.empty() || v.strides[0] == 0) continue;
      // Into a view, whose gaps stay.
      const Tensor source = numbers(v.shape, dtype);
      const Tensor target = zeros({160}, dtype), far = target.data_on(gpu0);
      copy_elements(target.alias(v.shape, v.strides, v.offset), source);
      copy_elements(far.alias(v.shape, v.strides, v.offset), source);
      CHECK(bit_equal(far.data_on(cpu), target));
    }
}

TEST_CASE("views of one storage that overlap are read before they are written") {
  if (!needs_gpus(1)) return;
  const auto shifted = [](Device device) {
    const Tensor t = numbers({100}, int32).data_on(device);
    copy_elements(t.alias({90}, {1}, 5), t.alias({90}, {1}, 0));
    copy_elements(t.alias({10, 10}, {10, 1}, 0), t.alias({10, 10}, {1, 10}, 0));
    return t.data_on(cpu);
  };
  CHECK(bit_equal(shifted(gpu0), shifted(cpu)));
}

TEST_CASE("every dtype becomes every other one with the bits of the CPU") {
  if (!needs_gpus(1)) return;
  const std::vector<double> odd = {0,
                                   -0.0,
                                   1,
                                   -1,
                                   0.5,
                                   -0.5,
                                   1.5,
                                   2.5,
                                   3e-8,
                                   6e-5,
                                   65504,
                                   65519,
                                   65520,
                                   7e4,
                                   1e10,
                                   -1e10,
                                   2147483647,
                                   2147483648,
                                   -2147483648,
                                   -2147483649,
                                   9.2e18,
                                   -9.3e18,
                                   1e30,
                                   1e300,
                                   -1e300,
                                   255,
                                   256,
                                   -255,
                                   1e-40,
                                   1e-310,
                                   3.14159265358979,
                                   16777217};
  const auto made = [&](DType dtype) {
    const Tensor t = empty({static_cast<int64_t>(odd.size())}, dtype);
    copy_elements(t, tensor(odd, float64));
    return t;
  };
  for (const DType from : kAll)
    for (const DType to : kAll) {
      const Tensor source = made(from), wanted = empty(source.shape(), to);
      copy_elements(wanted, source);
      const Tensor got = empty(source.shape(), {to, gpu0});
      copy_elements(got, source.data_on(gpu0));
      INFO(source.str() << " to " << wanted.str());
      CHECK(bit_equal(got.data_on(cpu), wanted));
    }
}

TEST_CASE("elements are filled with one value, of any strides") {
  if (!needs_gpus(1)) return;
  for (const DType dtype : kAll)
    for (const Scalar value : {Scalar(0), Scalar(1), Scalar(3.5), Scalar(-0.0)}) {
      const Tensor here = numbers({6, 8}, dtype), there = here.data_on(gpu0);
      fill_elements(here.alias({3, 4}, {16, 2}, 1), value);
      fill_elements(there.alias({3, 4}, {16, 2}, 1), value);
      CHECK(bit_equal(there.data_on(cpu), here));
      fill_elements(here, value);
      fill_elements(there, value);
      CHECK(bit_equal(there.data_on(cpu), here));
    }
}

TEST_CASE("elements are added, also where one comes up several times") {
  if (!needs_gpus(1)) return;
  for (const DType dtype : kAll) {
    INFO(name(dtype));
    const auto sums = [&](Device device) {
      const Tensor a = numbers({12, 10}, dtype).data_on(device), b = numbers({120}, dtype).data_on(device);
      const Tensor turned = b.alias({12, 10}, {1, 12}, 0), out = empty({12, 10}, {dtype, device});
      add_elements(out, a, turned);
      std::vector<Tensor> all = {out};
      // In place: itself, with its own transposed elements, and a view with gaps.
      const Tensor square = numbers({10, 10}, dtype).data_on(device);
      add_elements(square, square, square.alias({10, 10}, {1, 10}, 0));
      const Tensor gaps = numbers({240}, dtype).data_on(device), view = gaps.alias({12, 10}, {20, 2}, 1);
      add_elements(view, view, turned);
      // Every element 12 times, and windows that overlap.
      const Tensor row = numbers({10}, dtype).data_on(device), repeated = row.alias({12, 10}, {0, 1}, 0);
      add_elements(repeated, repeated, turned);
      const Tensor line = numbers({40}, dtype).data_on(device), windows = line.alias({12, 10}, {2, 1}, 0);
      add_elements(windows, windows, turned);
      for (const Tensor& t : {square, gaps, row, line}) all.push_back(t);
      for (Tensor& t : all) t = t.data_on(cpu);
      return all;
    };
    const auto wanted = sums(cpu), got = sums(gpu0);
    for (size_t i = 0; i < wanted.size(); ++i) {
      INFO(i);
      CHECK(bit_equal(got[i], wanted[i]));
    }
  }
}

TEST_CASE("tensors go from GPU to GPU, and the source may be freed at once") {
  if (!needs_gpus(2)) return;
  const Tensor here = numbers({1000}, float32);
  Tensor first = here.data_on(gpu0), second = first.data_on(gpu1);
  first = Tensor();
  const Tensor over = full({1000}, 7, {float32, gpu0});
  CHECK(second.device() == gpu1);
  CHECK(bit_equal(second.data_on(cpu), here));
  const Tensor half = empty({1000}, {bfloat16, gpu0});
  copy_elements(half, second);
  const Tensor wanted = empty({1000}, bfloat16);
  copy_elements(wanted, here);
  CHECK(bit_equal(half.data_on(cpu), wanted));
}

TEST_CASE("bytes are counted, and are all given back") {
  if (!needs_gpus(1)) return;
  release_cached_memory(gpu0);
  const AllocatorStats before = allocator_stats(gpu0);
  {
    const Tensor t = empty({1 << 20}, {float32, gpu0});
    const AllocatorStats now = allocator_stats(gpu0);
    CHECK(now.in_use >= before.in_use + (4 << 20));
    CHECK(now.system_allocations == before.system_allocations + 1);
  }
  CHECK(allocator_stats(gpu0).in_use == before.in_use);
  release_cached_memory(gpu0);
  CHECK(allocator_stats(gpu0).cached <= before.cached);
}

TEST_CASE("a device has a name, a number and errors that say so") {
  install_cuda();
  install_cuda();
  Backend& backend = backend_of(gpu0);
  const int count = backend.devices();
  CHECK(all_devices().size() == 1 + static_cast<size_t>(count));
  CHECK(has_device(gpu0) == (count > 0));
  CHECK(gpu1.str() == "cuda:1");
  const std::string here = "this machine has " + std::to_string(count) + " devices of the kind cuda";
  CHECK_THAT(testing::text_of([] { Device("cuda:100"); }),
             Catch::StartsWith("[device] there is no cuda:100: " + here));
  const Device far{kCuda, 100};
  CHECK_THAT(testing::text_of([&] {
               empty({1}, {float32, far});
             }),
             Catch::StartsWith("[cuda] there is no cuda:100: " + here));
  const auto ends = [](const std::string& why) {
    CHECK_THAT(testing::text_of([] { Device("cuda:100"); }), Catch::EndsWith("kind cuda" + why));
  };
#ifdef TROUPE_CUDA_SIM
  const char* given = std::getenv("TROUPE_SIM_DEVICES");
  const std::string machine = given ? given : "";
  if (machine == "none") ends(" (no NVIDIA driver is installed)");
  if (machine == "old") {
    CHECK_THAT(backend.why_none(), Catch::StartsWith("the NVIDIA driver is for CUDA 11.4, and this program "
                                                     "needs 1"));
    CHECK_THAT(backend.why_none(), Catch::EndsWith(": update the driver"));
  }
  if (machine == "0") ends(" (the NVIDIA driver sees no GPU)");
#endif
  if (count > 0) ends("");
  if (!needs_gpus(1)) return;
  CHECK(Device("cuda") == gpu0);
  CHECK(backend.describe(gpu0).find("GiB") != std::string::npos);
}

}  // namespace
