// Vectors of AVX2 under the same names for float and double, for products.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

#include "core/base/compiler.h"

#define TROUPE_LANES [[TROUPE_AVX2, gnu::always_inline]] static

namespace troupe::ops::on_cpu {

/// The first of two vectors of lanes that are set; lanes 8 - n on: the first n are.
alignas(64) inline constexpr int64_t kLanesSet[8] = {-1, -1, -1, -1, 0, 0, 0, 0};
alignas(64) inline constexpr int32_t kHalfLanesSet[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

struct Floats {
  using Number = float;
  using Vector = __m256;
  using Mask = __m256i;
  static constexpr int kCount = 8;

  TROUPE_LANES Mask first(int64_t n) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kHalfLanesSet + kCount - n));
  }
  TROUPE_LANES Vector zero() { return _mm256_setzero_ps(); }
  TROUPE_LANES Vector same(const float* x) { return _mm256_broadcast_ss(x); }
  TROUPE_LANES Vector load(const float* x) { return _mm256_loadu_ps(x); }
  TROUPE_LANES Vector load(const float* x, Mask mask) { return _mm256_maskload_ps(x, mask); }
  TROUPE_LANES void store(float* to, Vector x) { _mm256_storeu_ps(to, x); }
  /// The first n < 8: a masked store takes AMD's processors twenty cycles.
  TROUPE_LANES void store(float* to, Vector x, int64_t n) {
    __m128 half = _mm256_castps256_ps128(x);
    if (n & 4) _mm_storeu_ps(to, half), to += 4, half = _mm256_extractf128_ps(x, 1);
    if (n & 2) _mm_storel_pi(reinterpret_cast<__m64*>(to), half), to += 2, half = _mm_movehl_ps(half, half);
    if (n & 1) _mm_store_ss(to, half);
  }
  TROUPE_LANES Vector add(Vector x, Vector y) { return _mm256_add_ps(x, y); }
  TROUPE_LANES Vector multiply_add(Vector x, Vector y, Vector to) { return _mm256_fmadd_ps(x, y, to); }
  /// NaN and -0 stay.
  TROUPE_LANES Vector relu(Vector x) { return _mm256_max_ps(zero(), x); }

  /// Columns of the 8 x 8 block whose rows are at x, ld apart: the halves of rows are joined as they are
  /// read, which takes no shuffle. Rows from `count` on are 0.
  TROUPE_LANES void load_across(const float* x, int64_t ld, int64_t count, Vector* r) {
    const auto half = [=](int i, int64_t l) __attribute__((always_inline, target(TROUPE_AVX2_SET))) {
      return i < count ? _mm_loadu_ps(x + i * ld + l) : _mm_setzero_ps();
    };
    for (int l = 0; l < 8; l += 4) {
      Vector t[4];
      for (int i = 0; i < 4; ++i)
        t[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(half(i, l)), half(4 + i, l), 1);
      transpose(t);
      for (int i = 0; i < 4; ++i) r[l + i] = t[i];
    }
  }
  /// Rows become columns of the 4 x 4 blocks in both halves.
  TROUPE_LANES void transpose(Vector* r) {
    const Vector t0 = _mm256_unpacklo_ps(r[0], r[1]), t1 = _mm256_unpackhi_ps(r[0], r[1]),
                 t2 = _mm256_unpacklo_ps(r[2], r[3]), t3 = _mm256_unpackhi_ps(r[2], r[3]);
    r[0] = _mm256_shuffle_ps(t0, t2, 0x44), r[1] = _mm256_shuffle_ps(t0, t2, 0xee);
    r[2] = _mm256_shuffle_ps(t1, t3, 0x44), r[3] = _mm256_shuffle_ps(t1, t3, 0xee);
  }
};

struct Doubles {
  using Number = double;
  using Vector = __m256d;
  using Mask = __m256i;
  static constexpr int kCount = 4;

  TROUPE_LANES Mask first(int64_t n) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kLanesSet + kCount - n));
  }
  TROUPE_LANES Vector zero() { return _mm256_setzero_pd(); }
  TROUPE_LANES Vector same(const double* x) { return _mm256_broadcast_sd(x); }
  TROUPE_LANES Vector load(const double* x) { return _mm256_loadu_pd(x); }
  TROUPE_LANES Vector load(const double* x, Mask mask) { return _mm256_maskload_pd(x, mask); }
  TROUPE_LANES void store(double* to, Vector x) { _mm256_storeu_pd(to, x); }
  TROUPE_LANES void store(double* to, Vector x, int64_t n) {
    __m128d half = _mm256_castpd256_pd128(x);
    if (n & 2) _mm_storeu_pd(to, half), to += 2, half = _mm256_extractf128_pd(x, 1);
    if (n & 1) _mm_store_sd(to, half);
  }
  TROUPE_LANES Vector add(Vector x, Vector y) { return _mm256_add_pd(x, y); }
  TROUPE_LANES Vector multiply_add(Vector x, Vector y, Vector to) { return _mm256_fmadd_pd(x, y, to); }
  TROUPE_LANES Vector relu(Vector x) { return _mm256_max_pd(zero(), x); }

  TROUPE_LANES void load_across(const double* x, int64_t ld, int64_t count, Vector* r) {
    const auto half = [=](int i, int64_t l) __attribute__((always_inline, target(TROUPE_AVX2_SET))) {
      return i < count ? _mm_loadu_pd(x + i * ld + l) : _mm_setzero_pd();
    };
    for (int l = 0; l < 4; l += 2) {
      Vector t[2];
      for (int i = 0; i < 2; ++i)
        t[i] = _mm256_insertf128_pd(_mm256_castpd128_pd256(half(i, l)), half(2 + i, l), 1);
      r[l] = _mm256_unpacklo_pd(t[0], t[1]), r[l + 1] = _mm256_unpackhi_pd(t[0], t[1]);
    }
  }
};

}  // namespace troupe::ops::on_cpu

#undef TROUPE_LANES
#endif
