// Neighbouring elements that a kernel reads or writes at once: 16 bytes, if that is what the largest of its
// element types allows.
#pragma once
#include <algorithm>
#include <cstdint>

namespace troupe::cuda {

template <class T, int n>
struct alignas(sizeof(T) * n) Pack {
  T at[n];
};

/// How many elements of each of these types make 16 bytes of the largest one.
template <class... T>
inline constexpr int kPackOf = 16 / static_cast<int>(std::max({sizeof(T)...}));

/// Whether n elements at p can be read at once.
template <int n, class T>
bool can_pack(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % (sizeof(T) * n) == 0;
}

template <int n, class T>
__host__ __device__ Pack<T, n> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, n>*>(p);
}
template <class T, int n>
__host__ __device__ void store_pack(T* p, const Pack<T, n>& values) {
  *reinterpret_cast<Pack<T, n>*>(p) = values;
}

}  // namespace troupe::cuda
