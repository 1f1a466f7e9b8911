// What products in AVX-512 are made of: copies of parts of matrices in the order in which tiles read them
// (rows that come next are asked for early, since they begin in other pages), and what is done to C at the
// end.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // g++ 12 means its own headers (bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <algorithm>
#include <cstdint>

#include "core/base/compiler.h"
#include "ops/cpu/gemm/gemm_blocks.h"

namespace troupe::ops::on_cpu {

constexpr int kLanes = 16;
constexpr int64_t kTileM = 8;           ///< rows of a tile of C
constexpr int64_t kTileN = 3 * kLanes;  ///< columns of a tile of C, and of a panel of B

/// The first n lanes of 16.
[[TROUPE_AVX512, gnu::always_inline]] inline __mmask16 first(int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1);
}

/// Rows become columns of the 16 x 16 block.
[[TROUPE_AVX512, gnu::always_inline]] inline void transpose(__m512* r) {
  __m512 t[kLanes];
  for (int i = 0; i < kLanes; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < kLanes; i += 4)
    for (int half = 0; half < 2; ++half) {
      const __m512d x = _mm512_castps_pd(t[i + half]), y = _mm512_castps_pd(t[i + 2 + half]);
      r[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
      r[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    }
  for (int c = 0; c < 4; ++c) {  // r[4 g + c]: column c of each quarter, of rows 4 g to 4 g + 3
    const __m512 a = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88),
                 b = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd),
                 d = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88),
                 e = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
    t[c] = _mm512_shuffle_f32x4(a, d, 0x88);
    t[4 + c] = _mm512_shuffle_f32x4(b, e, 0x88);
    t[8 + c] = _mm512_shuffle_f32x4(a, d, 0xdd);
    t[12 + c] = _mm512_shuffle_f32x4(b, e, 0xdd);
  }
  for (int i = 0; i < kLanes; ++i) r[i] = t[i];
}

/// out[l * step + i] = x[i * ld + l] for i < count, l < k; writes kLanes elements for each l. Asks for the
/// rows after the next ones, into the second-level cache: rows 4 KiB apart drive each other out of the first.
[[TROUPE_AVX512]] inline void pack_across(const float* x, int64_t ld, int64_t count, int64_t k, float* out,
                                          int64_t step) {
  __m512 rows[kLanes];
  for (int64_t l = 0; l < k; l += kLanes) {
    const int64_t n = std::min<int64_t>(kLanes, k - l);
    for (int i = 0; i < kLanes; ++i)
      rows[i] = i < count ? _mm512_maskz_loadu_ps(first(n), x + i * ld + l) : _mm512_setzero_ps();
    for (int i = 0; i < count; ++i) _mm_prefetch(x + (2 * count + i) * ld + l, _MM_HINT_T1);
    transpose(rows);
    for (int i = 0; i < n; ++i) _mm512_storeu_ps(out + (l + i) * step, rows[i]);
  }
}

/// x, up to 16 elements of C in the tile's column `column`, to `to`; the residual's are at `at`.
[[TROUPE_AVX512, gnu::always_inline]] inline void store(const TileEnd<float>& end, __m512 x, __mmask16 mask,
                                                        float* to, int64_t at, int64_t column) {
  if (end.add) x = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), x);
  if (end.bias) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(mask, end.bias + column));
  if (end.relu)
    x = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ),
                           _mm512_setzero_ps());  // NaN stays
  if (end.residual) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(mask, end.residual + at));
  _mm512_mask_storeu_ps(to, mask, x);
}

}  // namespace troupe::ops::on_cpu
#endif
