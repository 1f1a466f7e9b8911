// Tiles of float32 products in AVX-512: 8 x 48.
#include "ops/cpu/gemm/gemm_kernels.h"
#include "ops/cpu/gemm/gemm_pack.h"
#include "ops/cpu/gemm/tiled_product.h"

#if defined(__x86_64__)
#include <utility>

namespace troupe::ops::on_cpu {
namespace {

template <int V>
[[TROUPE_AVX512, gnu::always_inline]] inline void ask_for_row(const Tile<float>& t, int64_t row) {
  TROUPE_UNROLL(4)
  for (int v = 0; v < V; ++v) _mm_prefetch(t.c + row * t.ldc + v * kLanes, _MM_HINT_ET0);
  if (!t.end.residual) return;
  TROUPE_UNROLL(4)
  for (int v = 0; v < V; ++v) _mm_prefetch(t.end.residual + row * t.ldc + v * kLanes, _MM_HINT_T0);
}

// totals[r] += part[r], for the lanes of the mask.
[[TROUPE_AVX512]] inline void add_totals(double* totals, __mmask8 mask, __m256 part) {
  const __m512d before = _mm512_maskz_loadu_pd(mask, totals);
  _mm512_mask_storeu_pd(totals, mask, _mm512_add_pd(before, _mm512_cvtps_pd(part)));
}

template <int R, int V, bool copies>
[[TROUPE_AVX512]] void multiply(const Tile<float>& t) {
  __m512 sums[R][V];
  TROUPE_UNROLL(16)
  for (int r = 0; r < R; ++r) {
    TROUPE_UNROLL(4)
    for (int v = 0; v < V; ++v) sums[r][v] = _mm512_setzero_ps();
  }
  constexpr __mmask8 kRows = (1 << R) - 1;
  const __mmask16 last = first(t.columns - (V - 1) * kLanes);
  const float *a = t.a, *b = t.b, *next = t.next;
  const int64_t a_row = t.a_row, a_step = t.a_step, b_step = t.b_step;
  float *copy_a = t.copy_a, *copy_b = t.copy_b;
  // C is written at the end: its lines are asked for now, a row at a time.
  int64_t asked = 0;
  for (; asked < R - t.k / kLanes; ++asked) ask_for_row<V>(t, asked);
  for (int64_t left = t.k; left > 0; left -= kLanes, next += kLanes * a_step) {
    if (asked < R) ask_for_row<V>(t, asked++);
    if (a_step == 1) {
      TROUPE_UNROLL(16)
      for (int r = 0; r < R; ++r) _mm_prefetch(next + r * a_row, _MM_HINT_T1);
    }
    t.ahead->turn();
    __m256 part = _mm256_setzero_ps();
    for (int64_t l = std::min<int64_t>(left, kLanes); l > 0; --l, a += a_step, b += b_step) {
      __m512 row[V];
      TROUPE_UNROLL(4)
      for (int v = 0; v < V - 1; ++v) row[v] = _mm512_loadu_ps(b + v * kLanes);
      row[V - 1] = _mm512_maskz_loadu_ps(last, b + (V - 1) * kLanes);
      if (copies && copy_b) {
        TROUPE_UNROLL(4)
        for (int v = 0; v < V; ++v) _mm512_store_ps(copy_b + v * kLanes, row[v]);
        copy_b += kTileN;
      }
      if (copies && copy_a) {
        const __m256 column = _mm256_maskz_loadu_ps(kRows, a);
        _mm256_store_ps(copy_a, column);
        _mm_prefetch(a + 2 * kTileM, _MM_HINT_T1);
        copy_a += kTileM;
        part = _mm256_add_ps(part, column);
      }
      TROUPE_UNROLL(16)
      for (int r = 0; r < R; ++r) {
        const __m512 x = _mm512_set1_ps(a[r * a_row]);
        TROUPE_UNROLL(4)
        for (int v = 0; v < V; ++v) sums[r][v] = _mm512_fmadd_ps(x, row[v], sums[r][v]);
      }
    }
    if (copies && t.totals) add_totals(t.totals, kRows, part);
  }
  float* c = t.c;
  TROUPE_UNROLL(16)
  for (int r = 0; r < R; ++r, c += t.ldc) {
    TROUPE_UNROLL(4)
    for (int v = 0; v < V; ++v) {
      const __mmask16 mask = v == V - 1 ? last : first(kLanes);
      float* to = c + v * kLanes;
      store(t.end, sums[r][v], mask, to, r * t.ldc + v * kLanes, v * kLanes);
    }
  }
}

template <int V, int... R>
void multiply(int rows, const Tile<float>& t, std::integer_sequence<int, R...>) {
  static constexpr void (*kPlain[])(const Tile<float>&) = {multiply<R + 1, V, false>...};
  static constexpr void (*kCopying[])(const Tile<float>&) = {multiply<R + 1, V, true>...};
  (t.copy_a || t.copy_b ? kCopying : kPlain)[rows - 1](t);
}

void multiply(int64_t rows, const Tile<float>& t) {
  constexpr std::make_integer_sequence<int, static_cast<int>(kTileM)> all;
  const int r = static_cast<int>(rows);
  if (t.columns > 2 * kLanes) return multiply<3>(r, t, all);
  if (t.columns > kLanes) return multiply<2>(r, t, all);
  multiply<1>(r, t, all);
}

// A panel of B is 48 KiB, a block of A 256 KiB.
struct Kernel {
  using Number = float;
  static constexpr int64_t kTileM = on_cpu::kTileM, kTileN = on_cpu::kTileN, kBlockK = 256,
                           kWide = 96 * kTileN;
  static constexpr int64_t kLanes = on_cpu::kLanes, kAcross = kLanes, kPad = 1;
  static constexpr bool kCopiesA = true;
  static int64_t block_m() { return 256; }
  // Copied is what several tiles read where it lies across or far apart.
  static bool packs_a(int64_t, int64_t n, const Matrix<float>& a) { return a.transposed && n > 4 * kTileN; }
  static bool packs_b(int64_t m, int64_t, const Matrix<float>& b) { return b.transposed || m > 8 * kTileM; }
  static bool shares_b(int64_t, int64_t, const Matrix<float>& b) { return b.transposed; }
  static void pack_across(const float* x, int64_t ld, int64_t count, int64_t k, float* out, int64_t step) {
    on_cpu::pack_across(x, ld, count, k, out, step);
  }
  static void multiply(int64_t rows, const Tile<float>& t) { on_cpu::multiply(rows, t); }
};

}  // namespace

void gemm_avx512(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
                 float* c, const Finish<float>& finish, float* sums, PackedMatrix* kept) {
  TiledProduct<Kernel>{m, n, k, a, b, beta, c, finish}.run(sums, kept);
}

}  // namespace troupe::ops::on_cpu
#endif
