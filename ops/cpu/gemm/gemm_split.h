// Copies of parts of float32 matrices as three bfloat16 each, in the order in which gemm_amx reads them. For
// AVX-512.
#pragma once
#include "ops/cpu/gemm/gemm_pack.h"
#if defined(__x86_64__)

namespace troupe::ops::on_cpu {

/// Tiles hold 16 rows of 64 bytes. A strip is 32 rows of A or columns of B: for each 32 steps of the depth,
/// two tiles of high parts, two of middle ones, two of low ones.
constexpr int64_t kTileBytes = 1024, kStrip = 32, kSteps = 32, kStepBytes = 6 * kTileBytes;

/// x = high + middle + low exactly, each with 8 bits, in the upper half of each lane (half of 2^-8 is the
/// most that is left of a number after each cut; below 2^-126 a part is lost).
struct Split {
  __m512i part[3];
};

[[TROUPE_AVX512, gnu::always_inline]] inline Split split(__m512 x) {
  const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  const auto rounded = [=](__m512 y) __attribute__((always_inline, target(TROUPE_AVX512_SET))) {
    return _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(y), half), upper);
  };
  Split s;
  s.part[0] = rounded(x);
  x = _mm512_sub_ps(x, _mm512_castsi512_ps(s.part[0]));
  s.part[1] = rounded(x);
  s.part[2] = _mm512_castps_si512(_mm512_sub_ps(x, _mm512_castsi512_ps(s.part[1])));
  return s;
}

/// The largest magnitude of what was packed, as bits: above those of infinity where there was a NaN.
class Largest {
 public:
  [[TROUPE_AVX512, gnu::always_inline]] Largest() : bits_(_mm512_setzero_si512()) {}
  [[TROUPE_AVX512, gnu::always_inline]] void see(__m512 x) {
    bits_ = _mm512_max_epu32(bits_, _mm512_castps_si512(_mm512_abs_ps(x)));
  }
  [[TROUPE_AVX512, gnu::always_inline]] float value() const {
    return _mm_cvtss_f32(
        _mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(_mm512_reduce_max_epu32(bits_)))));
  }

 private:
  __m512i bits_;
};

/// Steps come in pairs, l and l + 16 of 32: writes a row of 16 pairs for each part, 2 tiles apart.
[[TROUPE_AVX512, gnu::always_inline]] inline void store_pairs(__m512 x, __m512 x16, char* out) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  const Split a = split(x), b = split(x16);
  TROUPE_UNROLL(3)
  for (int p = 0; p < 3; ++p)  // a >> 16 | (b & upper)
    _mm512_store_si512(out + 2 * p * kTileBytes,
                       _mm512_ternarylogic_epi32(_mm512_srli_epi32(a.part[p], 16), b.part[p], upper, 0xf8));
}

/// A tile of each part, of x(i, l) for i < count <= 16 and steps l < k <= 32; 0 beyond. They lie `along`, at
/// x[i * ld + l], or across, at x[l * ld + i]. Row i of the tiles holds the pairs of x(i, ..) or, if
/// `flip`ped against how they lie, row l the pair l of x(.., l). Across, what is read is added to sums[i].
template <bool along, bool flip>
[[TROUPE_AVX512, gnu::always_inline]] inline void pack_tile(const float* x, int64_t ld, int64_t count,
                                                            int64_t k, char* out, Largest& largest,
                                                            __m512& sums) {
  [[maybe_unused]] __m512 lo[kLanes], hi[kLanes];
  const __mmask16 wide = first(count), left = first(std::min<int64_t>(k, kLanes)),
                  right = first(std::max<int64_t>(k - kLanes, 0));
  for (int64_t i = 0; i < kLanes; ++i) {
    __m512 x0, x16;
    if constexpr (along) {
      const float* row = x + i * ld;
      x0 = _mm512_maskz_loadu_ps(i < count ? left : 0, row);
      x16 = _mm512_maskz_loadu_ps(i < count ? right : 0, row + kLanes);
      _mm_prefetch(row + 4 * kLanes, _MM_HINT_T0);
      _mm_prefetch(row + 5 * kLanes, _MM_HINT_T0);
    } else {
      x0 = _mm512_maskz_loadu_ps(i < k ? wide : 0, x + i * ld);
      x16 = _mm512_maskz_loadu_ps(i + kLanes < k ? wide : 0, x + (i + kLanes) * ld);
      sums = _mm512_add_ps(sums, _mm512_add_ps(x0, x16));
    }
    largest.see(x0), largest.see(x16);
    if constexpr (flip)
      lo[i] = x0, hi[i] = x16;
    else
      store_pairs(x0, x16, out + 64 * i);
  }
  if constexpr (flip) {
    transpose(lo), transpose(hi);
    for (int i = 0; i < kLanes; ++i) store_pairs(lo[i], hi[i], out + 64 * i);
  }
}

template <bool along, bool flip>
[[TROUPE_AVX512]] float pack_strip(const float* x, int64_t ld, int64_t count, int64_t k, char* out,
                                   double* totals) {
  Largest largest;
  for (int64_t l = 0; l < k; l += kSteps, out += kStepBytes)
    for (int64_t i = 0; i < count; i += kLanes) {
      const int64_t wide = std::min<int64_t>(kLanes, count - i);
      __m512 sums = _mm512_setzero_ps();
      pack_tile<along, flip>(x + (along ? i * ld + l : l * ld + i), ld, wide, std::min(kSteps, k - l),
                             out + i / kLanes * kTileBytes, largest, sums);
      if (along || !totals) continue;
      alignas(64) float part[kLanes];
      _mm512_store_ps(part, sums);
      for (int64_t s = 0; s < wide; ++s) totals[i + s] += static_cast<double>(part[s]);
    }
  return largest.value();
}

/// A strip: `count` (at most 32) rows of x from `from` on, or columns if not `rows`, at depths l0 to l0 + k.
/// Returns the largest magnitude, NaN if there is one. totals: null, or takes their sums, if x is transposed.
inline float pack_strip(const Matrix<float>& x, bool rows, int64_t from, int64_t count, int64_t l0, int64_t k,
                        char* out, double* totals = nullptr) {
  const bool along = rows != x.transposed;  // steps lie side by side
  const float* at = x.p + (along ? from * x.ld + l0 : l0 * x.ld + from);
  if (rows)
    return along ? pack_strip<true, false>(at, x.ld, count, k, out, nullptr)
                 : pack_strip<false, true>(at, x.ld, count, k, out, totals);
  return along ? pack_strip<true, true>(at, x.ld, count, k, out, nullptr)
               : pack_strip<false, false>(at, x.ld, count, k, out, totals);
}

}  // namespace troupe::ops::on_cpu
#endif
