// float32 products in tiles of C that stay in registers (8 x 48; Goto, van de Geijn 2008), where bias and
// activation are applied too. All of B is packed into panels once, then blocks of rows of C are made on
// several threads.
#include "ops/cpu/gemm.h"
#include "ops/cpu/gemm_pack.h"
#include "ops/cpu/simd.h"

#if defined(__x86_64__)
#include <utility>

#include "core/tensor.h"
#include "ops/cpu/parallel.h"

namespace troupe::ops::cpu {
namespace {

constexpr int kTileM = 8;
constexpr int64_t kBlockM = 256, kBlockN = 96 * kTileN, kBlockK = 256;  // a panel of B is 48 KiB
constexpr double kTwoThreads = 1 << 25;                                 // multiplications: about 0.6 ms

int64_t parts(int64_t n, int64_t most) { return (n + most - 1) / most; }

// One tile of C: element (i, l) of A at a[i * a_row + l * a_step], row l of B at b + l * b_step. `ahead`: the
// a of the tile after this one, whose lines are asked for on the way.
struct Tile {
  int64_t k, columns;
  const float* a;
  int64_t a_row, a_step;
  const float* b;
  int64_t b_step;
  float* c;
  int64_t ldc;
  const float* ahead;
  bool add;
  const float* bias;
  bool relu;
};

template <int V>
[[TROUPE_AVX512, gnu::always_inline]] inline void ask_for_row(const float* c) {
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) _mm_prefetch(c + v * kLanes, _MM_HINT_ET0);
}

template <int R, int V>
[[TROUPE_AVX512]] void multiply(const Tile& t) {
  __m512 sums[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[r][v] = _mm512_setzero_ps();
  const __mmask16 last = first(t.columns - (V - 1) * kLanes);
  const float *a = t.a, *b = t.b, *ahead = t.ahead;
  const int64_t a_row = t.a_row, a_step = t.a_step, b_step = t.b_step;
  // C is written at the end: its lines are asked for now, a row at a time.
  float* row_of_c = t.c;
  int64_t rows = R;
  for (; rows > t.k / kLanes; --rows, row_of_c += t.ldc) ask_for_row<V>(row_of_c);
  for (int64_t left = t.k; left > 0; left -= kLanes, ahead += kLanes * a_step) {
    if (rows > 0) {
      ask_for_row<V>(row_of_c);
      --rows, row_of_c += t.ldc;
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) _mm_prefetch(ahead + r * a_row, _MM_HINT_T1);
    for (int64_t l = std::min<int64_t>(left, kLanes); l > 0; --l, a += a_step, b += b_step) {
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

void multiply(int64_t rows, const Tile& t) {
  constexpr std::make_integer_sequence<int, kTileM> all;
  const int r = static_cast<int>(rows);
  if (t.columns > 2 * kLanes) return multiply<3>(r, t, all);
  if (t.columns > kLanes) return multiply<2>(r, t, all);
  multiply<1>(r, t, all);
}

// The product, and how it is cut: by shapes only, never by the number of threads.
struct Product {
  int64_t m, n, k;
  Matrix<float> a, b;
  float beta;
  float* c;
  Finish<float> finish;

  // B is copied where its rows lie across, or are read by several blocks.
  bool packs_b() const { return b.transposed || m > kBlockM; }

  int64_t tiles() const { return parts(m, kTileM); }
  int64_t row(int64_t tile) const { return m * tile / tiles(); }
  double work() const { return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
  // Blocks of rows, and groups of columns where there are few rows: an even number of pieces.
  int64_t blocks() const {
    const int64_t count = parts(m, kBlockM);
    return work() < kTwoThreads || tiles() < 16 ? count : parts(count, 2) * 2;
  }
  int64_t groups(int64_t columns) const {
    if (work() < kTwoThreads || tiles() >= 16) return 1;
    return std::min(parts(columns, 4 * kTileN), 2 * parts(static_cast<int64_t>(work()), int64_t{1} << 27));
  }

  // Rows l0 to l0 + depth of B, columns j0 to j0 + columns, as panels.
  void pack(int64_t l0, int64_t depth, int64_t j0, int64_t columns, float* panels) const {
    if (b.transposed)
      return parallel_for(parts(columns, kTileN), 0.3 * static_cast<double>(kTileN * depth), [&](int64_t p) {
        const int64_t end = std::min(columns, (p + 1) * kTileN);
        for (int64_t j = p * kTileN; j < end; j += kLanes)
          pack_across(b.p + (j0 + j) * b.ld + l0, b.ld, std::min<int64_t>(kLanes, end - j), depth,
                      panels + p * kTileN * depth + j % kTileN, kTileN);
      });
    constexpr int64_t kRows = 32;
    parallel_for(parts(depth, kRows), 0.1 * static_cast<double>(kRows * columns), [&](int64_t p) {
      pack_rows(b.p + (l0 + p * kRows) * b.ld + j0, b.ld, columns, std::min(kRows, depth - p * kRows),
                panels + p * kRows * kTileN, kTileN * depth);
    });
  }

  // What rows l0 to l0 + depth of B add to tiles `begin` to `end` by columns `from` to `to`; column 0 of B is
  // in panels[0], or at j0 of B where there are none.
  void add(int64_t l0, int64_t depth, int64_t begin, int64_t end, int64_t j0, int64_t from, int64_t to,
           const float* panels) const {
    Tile t{.k = depth, .ldc = n, .add = l0 > 0 || beta != 0};
    const bool last = l0 + depth == k;
    t.relu = last && finish.activation == Activation::relu;
    const bool gelu = last && finish.activation == Activation::gelu;
    t.a_row = a.transposed ? 1 : a.ld;
    t.a_step = a.transposed ? a.ld : 1;
    t.b_step = panels ? kTileN : b.ld;
    const auto rows_of = [&](int64_t tile) { return a.p + row(tile) * t.a_row + l0 * t.a_step; };
    for (int64_t j = from; j < to; j += kTileN) {
      t.columns = std::min(kTileN, to - j);
      t.b = panels ? panels + j * depth : b.p + l0 * b.ld + j0 + j;
      t.bias = last && finish.bias ? finish.bias + j0 + j : nullptr;
      for (int64_t tile = begin; tile < end; ++tile) {
        t.a = rows_of(tile);
        t.ahead = rows_of(tile + 1 < end ? tile + 1 : begin);
        t.c = c + row(tile) * n + j0 + j;
        const int64_t rows = row(tile + 1) - row(tile);
        multiply(rows, t);
        if (!gelu) continue;
        Finish<float> rest = finish.part(t.c - c, 0);
        rest.bias = nullptr;  // is in
        finish_rows(rows, t.columns, t.c, n, rest);
      }
    }
  }
};

}  // namespace

bool has_gemm_tiles() { return simd_level() == Simd::avx512; }

void gemm_tiles(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
                float* c, const Finish<float>& finish) {
  const Product p{m, n, k, a, b, beta, c, finish};
  const int64_t depth = parts(parts(k, parts(k, kBlockK)), kLanes) * kLanes;
  const int64_t width = parts(parts(n, parts(n, kBlockN)), kTileN) * kTileN;
  const Tensor memory = p.packs_b() ? Tensor::empty({depth * std::min(width, n + kTileN)}) : Tensor();
  float* panels = memory.defined() ? memory.data<float>() : nullptr;
  const int64_t tiles = p.tiles(), blocks = p.blocks();
  for (int64_t l0 = 0; l0 < k; l0 += depth)
    for (int64_t j0 = 0; j0 < n; j0 += width) {
      const int64_t rows = std::min(depth, k - l0), columns = std::min(width, n - j0);
      if (panels) p.pack(l0, rows, j0, columns, panels);
      const int64_t groups = p.groups(columns), wide = parts(parts(columns, groups), kTileN) * kTileN;
      const double ns =
          0.02 * p.work() * static_cast<double>(rows) / static_cast<double>(k * blocks * groups);
      parallel_for(blocks * groups, ns, [&](int64_t piece) {
        const int64_t block = piece % blocks, from = piece / blocks * wide;
        p.add(l0, rows, tiles * block / blocks, tiles * (block + 1) / blocks, j0, from,
              std::min(columns, from + wide), panels);
      });
    }
}

}  // namespace troupe::ops::cpu

#else

namespace troupe::ops::cpu {

bool has_gemm_tiles() { return false; }
void gemm_tiles(int64_t, int64_t, int64_t, const Matrix<float>&, const Matrix<float>&, float, float*,
                const Finish<float>&) {}

}  // namespace troupe::ops::cpu

#endif
