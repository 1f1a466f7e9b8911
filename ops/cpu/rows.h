// Sums over one row in vector registers, for kernels that work row by row inside vectorized().
#pragma once
#include <cstdint>

#include "core/compiler.h"

// For the whole file that includes this: functions that return vectors are always inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace troupe::ops::cpu {

/// As many T as fill 64 bytes. On narrower machines the compiler splits it.
template <class T>
struct Lanes {
  typedef T type __attribute__((vector_size(64)));
  static constexpr int64_t count = 64 / sizeof(T);
};

/// The elements of x from i on that fill a V: a vector, or one number.
template <class V, class T>
[[gnu::always_inline]] inline V at(const T* x, int64_t i) {
  V v;
  __builtin_memcpy(&v, x + i, sizeof v);
  return v;
}

/// The lanes joined in halves.
template <class T>
[[gnu::always_inline]] inline T sum_lanes(const typename Lanes<T>::type& lanes) {
  T a[Lanes<T>::count];
  __builtin_memcpy(a, &lanes, sizeof a);
  TROUPE_UNROLL(4)
  for (int64_t width = Lanes<T>::count / 2; width > 0; width /= 2)
    for (int64_t l = 0; l < width; ++l) a[l] += a[l + width];
  return a[0];
}

/// Two sums over i < n at once, in 4 x 64 bytes of running sums: add(sum0, sum1, i) is called with sums and
/// elements of one width, vectors first and single numbers for the rest. Elements are read with at().
template <class T>
struct RowSums {
  T first = 0, second = 0;

  template <class F>
  [[gnu::always_inline]] void run(int64_t n, const F& add) {
    using V = typename Lanes<T>::type;
    constexpr int64_t L = Lanes<T>::count;
    V a0{}, a1{}, b0{}, b1{};
    int64_t i = 0;
    for (; i + 2 * L <= n; i += 2 * L) {
      add(a0, b0, i);
      add(a1, b1, i + L);
    }
    T a{}, b{};
    for (; i < n; ++i) add(a, b, i);
    a0 += a1;
    b0 += b1;
    first = sum_lanes<T>(a0) + a;
    second = sum_lanes<T>(b0) + b;
  }
};

/// Largest of a row, NaN aside; -infinity for none. Plain loops: comparisons of vectors are taken apart
/// before the instruction set is known.
template <class T>
[[gnu::always_inline]] inline T largest(const T* x, int64_t n) {
  constexpr int64_t kLanes = 32;
  T lanes[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) lanes[l] = -static_cast<T>(__builtin_inf());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  for (int64_t l = 0; i < n; ++i, ++l) lanes[l] = x[i] > lanes[l] ? x[i] : lanes[l];
  TROUPE_UNROLL(8)
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t l = 0; l < width; ++l) lanes[l] = lanes[l + width] > lanes[l] ? lanes[l + width] : lanes[l];
  return lanes[0];
}

}  // namespace troupe::ops::cpu
