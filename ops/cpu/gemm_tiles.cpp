// float32 products where oneDNN is slower: small ones, and those by a transposed matrix, as in linear, whose
// bias and activation are applied to a tile of C while it is in registers (8 x 48 of them; Goto, van de Geijn
// 2008). Blocks of B are packed into panels.
#include "ops/cpu/gemm.h"
#include "ops/cpu/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // g++ 12 means its own headers (bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#define TROUPE_AVX512 gnu::target("avx512f,avx512vl,avx512bw,avx512dq,prfchw,prefer-vector-width=512")

namespace troupe::ops::cpu {
namespace {

constexpr int kLanes = 16, kTileM = 8, kVectors = 3;
constexpr int64_t kTileN = kVectors * kLanes;
constexpr int64_t kBlockM = 32 * kTileM, kBlockN = 20 * kTileN, kBlockK = 256;  // a panel of B is 48 KiB

int64_t parts(int64_t n, int64_t most) { return (n + most - 1) / most; }

[[TROUPE_AVX512, gnu::always_inline]] inline __mmask16 first(int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1);
}

// One tile of C: element (i, l) of A at a[i * a_row + l * a_step], row l of B at b + l * b_step.
struct Tile {
  int64_t k, columns;
  const float* a;
  int64_t a_row, a_step;
  const float* b;
  int64_t b_step;
  float* c;
  int64_t ldc;
  bool add;
  const float* bias;
  bool relu;
};

template <int R, int V>
[[TROUPE_AVX512]] void multiply(const Tile& t) {
  __m512 sums[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[r][v] = _mm512_setzero_ps();
  const __mmask16 last = first(t.columns - (V - 1) * kLanes);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)  // C is written at the end: its lines are asked for now
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) _mm_prefetch(t.c + r * t.ldc + v * kLanes, _MM_HINT_ET0);
  const float *a = t.a, *b = t.b;
  const int64_t a_row = t.a_row, a_step = t.a_step, b_step = t.b_step;
  for (int64_t l = t.k; l > 0; --l, a += a_step, b += b_step) {
    __m512 row[V];
#pragma GCC unroll 4
    for (int v = 0; v < V - 1; ++v) row[v] = _mm512_loadu_ps(b + v * kLanes);
    row[V - 1] = _mm512_maskz_loadu_ps(last, b + (V - 1) * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const __m512 x = _mm512_set1_ps(a[r * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] = _mm512_fmadd_ps(x, row[v], sums[r][v]);
    }
  }
  float* c = t.c;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r, c += t.ldc)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const __mmask16 mask = v == V - 1 ? last : first(kLanes);
      float* to = c + v * kLanes;
      __m512 x = sums[r][v];
      if (t.add) x = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), x);
      if (t.bias) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(mask, t.bias + v * kLanes));
      if (t.relu)
        x = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ),
                               _mm512_setzero_ps());  // NaN stays
      _mm512_mask_storeu_ps(to, mask, x);
    }
}

template <int V, int... R>
void multiply(int rows, const Tile& t, std::integer_sequence<int, R...>) {
  static constexpr void (*kByRows[])(const Tile&) = {multiply<R + 1, V>...};
  kByRows[rows - 1](t);
}

void multiply(int rows, const Tile& t) {
  constexpr std::make_integer_sequence<int, kTileM> all;
  if (t.columns > 2 * kLanes) return multiply<3>(rows, t, all);
  if (t.columns > kLanes) return multiply<2>(rows, t, all);
  multiply<1>(rows, t, all);
}

// Rows become columns of the 16 x 16 block.
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

// out[l * step + i] = x[i * ld + l] for i < count, l < k; writes kLanes elements for each l.
[[TROUPE_AVX512]] void pack_across(const float* x, int64_t ld, int64_t count, int64_t k, float* out,
                                   int64_t step) {
  __m512 rows[kLanes];
  for (int64_t l = 0; l < k; l += kLanes) {
    const int64_t n = std::min<int64_t>(kLanes, k - l);
    for (int i = 0; i < kLanes; ++i)
      rows[i] = i < count ? _mm512_maskz_loadu_ps(first(n), x + i * ld + l) : _mm512_setzero_ps();
    transpose(rows);
    for (int i = 0; i < n; ++i) _mm512_storeu_ps(out + (l + i) * step, rows[i]);
  }
}

// Panels, kept by each thread: 1.1 MiB at most.
class Buffer {
 public:
  float* reserve(int64_t n) {
    if (n > size_) {
      p_.reset();
      size_ = parts(n, kLanes) * kLanes;
      p_.reset(static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(size_) * sizeof(float))));
      if (!p_) {
        size_ = 0;
        throw std::bad_alloc();
      }
    }
    return p_.get();
  }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> p_;
  int64_t size_ = 0;
};

}  // namespace

bool has_gemm_tiles() { return simd_level() == Simd::avx512; }

void gemm_tiles(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
                float* c, int64_t ldc, const Finish<float>& finish) {
  thread_local Buffer buffer;
  const int64_t depth = parts(parts(k, parts(k, kBlockK)), 4) * 4;
  const int64_t tiles = parts(m, kTileM), blocks = parts(tiles, kBlockM / kTileM);
  const int64_t width = parts(parts(n, parts(n, kBlockN)), kTileN) * kTileN;
  const bool pack_b = b.transposed;
  float* panels = pack_b ? buffer.reserve(depth * (std::min(n, width) + kTileN)) : nullptr;
  const auto row = [&](int64_t tile) { return m * tile / tiles; };
  for (int64_t l0 = 0; l0 < k; l0 += depth)
    for (int64_t j0 = 0; j0 < n; j0 += width) {
      const int64_t kc = std::min(depth, k - l0), nc = std::min(width, n - j0);
      for (int64_t j = 0; pack_b && j < nc; j += kLanes)
        pack_across(b.p + (j0 + j) * b.ld + l0, b.ld, std::min<int64_t>(kLanes, nc - j), kc,
                    panels + j / kTileN * kTileN * kc + j % kTileN, kTileN);
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t begin = tiles * block / blocks, end = tiles * (block + 1) / blocks;
        for (int64_t j = 0; j < nc; j += kTileN)
          for (int64_t t = begin; t < end; ++t) {
            Tile tile{.k = kc, .columns = std::min(kTileN, nc - j)};
            if (a.transposed)
              tile.a = a.p + l0 * a.ld + row(t), tile.a_row = 1, tile.a_step = a.ld;
            else
              tile.a = a.p + row(t) * a.ld + l0, tile.a_row = a.ld, tile.a_step = 1;
            if (pack_b)
              tile.b = panels + j * kc, tile.b_step = kTileN;
            else
              tile.b = b.p + l0 * b.ld + j0 + j, tile.b_step = b.ld;
            tile.c = c + row(t) * ldc + j0 + j, tile.ldc = ldc;
            tile.add = l0 > 0 || beta != 0;
            const bool last = l0 + kc == k;
            tile.bias = last && finish.bias ? finish.bias + j0 + j : nullptr;
            tile.relu = last && finish.relu;
            multiply(static_cast<int>(row(t + 1) - row(t)), tile);
          }
      }
    }
}

}  // namespace troupe::ops::cpu

#else

namespace troupe::ops::cpu {

bool has_gemm_tiles() { return false; }
void gemm_tiles(int64_t, int64_t, int64_t, const Matrix<float>&, const Matrix<float>&, float, float*, int64_t,
                const Finish<float>&) {}

}  // namespace troupe::ops::cpu

#endif
