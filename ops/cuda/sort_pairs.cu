// The radix sort of CUB; in the simulation, whose compiler has no CUB, that of the standard library.
#include "ops/cuda/sort_pairs.h"

#include "core/tensor/creation.h"
#ifdef TROUPE_SIM_CUDA
#include <numeric>
#include <vector>
#else
#include <cub/device/device_radix_sort.cuh>
#endif

#include "core/cuda/launch.h"

namespace troupe::ops::on_cuda {
namespace {

#ifdef TROUPE_SIM_CUDA
template <class K>
__global__ void sort_kernel(int64_t n, const K* keys, K* sorted_keys, const int64_t* places,
                            int64_t* sorted_places) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return keys[a] < keys[b]; });
  for (int64_t i = 0; i < n; ++i) {
    const int64_t from = order[static_cast<size_t>(i)];
    sorted_keys[i] = keys[from];
    sorted_places[i] = places[from];
  }
}
template <class K>
void sort(const char* name, Device device, const Pairs<K>& p) {
  cuda::launch(name, device, sort_kernel<K>, dim3(1), dim3(1), 0, p.n, p.keys, p.sorted_keys, p.places,
               p.sorted_places);
}
#else
template <class K>
void sort(const char* name, Device device, const Pairs<K>& p) {
  const cuda::OnStream stream(device);
  size_t bytes = 0;
  const auto run = [&](void* memory) {
    cuda::check(cub::DeviceRadixSort::SortPairs(memory, bytes, p.keys, p.sorted_keys, p.places,
                                                p.sorted_places, p.n, 0, p.bits, stream),
                name, device);
  };
  run(nullptr);  // says how much memory it needs
  const Tensor memory = empty({static_cast<int64_t>(bytes)}, {uint8, device});
  run(memory.address());
}
#endif

}  // namespace

void sort_pairs(const char* name, Device device, const Pairs<uint32_t>& pairs) { sort(name, device, pairs); }
void sort_pairs(const char* name, Device device, const Pairs<uint64_t>& pairs) { sort(name, device, pairs); }

}  // namespace troupe::ops::on_cuda
