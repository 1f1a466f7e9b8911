// Sums over one row in vector registers, for kernels that work row by row inside vectorized().
#pragma once
#include <cstdint>

#include "core/base/compiler.h"

// For the whole file that includes this: functions that return vectors are always inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace troupe::ops::on_cpu {

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

/// N running values of one reduction, each over every N-th element: N fixes the order of the operations,
/// whatever the instruction set. clang keeps vectors in registers and takes arrays apart, g++ does the
/// reverse.
template <class A, int N>
class Running {
 public:
  [[gnu::always_inline]] explicit Running(A start) {
    A all[N];
    for (int l = 0; l < N; ++l) all[l] = start;
    __builtin_memcpy(values_, all, sizeof all);
  }

  /// fold(value, element) over n elements, a multiple of N in all calls but the last. fold is short: what
  /// takes more than a few operations goes into a loop of its own before.
  template <class T, class Fold>
  [[gnu::always_inline]] void take(const T* x, int64_t n, const Fold& fold) {
    int64_t i = 0;
    for (; i + N <= n; i += N) step(x + i, fold);
    if (i == n) return;
    A rest[N];
    __builtin_memcpy(rest, values_, sizeof rest);
    for (int l = 0; i < n; ++i, ++l) rest[l] = fold(rest[l], x[i]);
    __builtin_memcpy(values_, rest, sizeof rest);
  }

  /// The values joined in halves.
  template <class Merge>
  [[gnu::always_inline]] A merged(const Merge& merge) const {
    A all[N];
    __builtin_memcpy(all, values_, sizeof all);
    TROUPE_UNROLL(8)
    for (int width = N / 2; width > 0; width /= 2)
      for (int l = 0; l < width; ++l) all[l] = merge(all[l], all[l + width]);
    return all[0];
  }

 private:
#if defined(__clang__)
  using V = typename Lanes<A>::type;
  static constexpr int L = static_cast<int>(Lanes<A>::count);
  V values_[N / L];

  template <class T, class Fold>
  [[gnu::always_inline]] void step(const T* x, const Fold& fold) {
    for (int k = 0; k < N / L; ++k) {
      V next;
      for (int l = 0; l < L; ++l) next[l] = fold(values_[k][l], x[k * L + l]);
      values_[k] = next;
    }
  }
#else
  A values_[N];

  template <class T, class Fold>
  [[gnu::always_inline]] void step(const T* x, const Fold& fold) {
    for (int l = 0; l < N; ++l) values_[l] = fold(values_[l], x[l]);
  }
#endif
};

/// Largest of a row, NaN aside; -infinity for none.
template <class T>
[[gnu::always_inline]] inline T largest(const T* x, int64_t n) {
  const auto larger = [](T a, T v) __attribute__((always_inline)) { return v > a ? v : a; };
  Running<T, 32> values(-static_cast<T>(__builtin_inf()));
  values.take(x, n, larger);
  return values.merged(larger);
}

}  // namespace troupe::ops::on_cpu
