// float32 products in tiles of C that stay in registers (8 x 48; Goto, van de Geijn 2008), where bias and
// activation are applied too. Blocks of rows of C are made on several threads, each in panels of columns.
// What is read again is packed on the way: B by the first tile of a panel, A across by the first panel; Bᵀ by
// whoever comes first, for all. The panel after is asked for early.
#include "ops/cpu/gemm/gemm.h"
#include "ops/cpu/gemm/gemm_blocks.h"
#include "ops/cpu/loops/simd.h"

#if defined(__x86_64__)
#include <optional>
#include <utility>

namespace troupe::ops::on_cpu {
namespace {

constexpr int64_t kBlockM = 256, kBlockK = 256;  // a panel of B is 48 KiB, a block of A 256 KiB

// Rows of a matrix that will be needed soon, asked for line by line into the second-level cache.
class Ahead {
 public:
  Ahead() = default;
  // `rows` rows of n elements, ld apart, over that many turns.
  Ahead(const float* x, int64_t ld, int64_t rows, int64_t n, int64_t turns)
      : x_(x), ld_(ld), rows_(rows), n_(n), at_(0), per_turn_(parts(rows * (n / kLine + 1), turns)) {}

  [[gnu::always_inline]] void turn() {
    for (int64_t i = 0; i < per_turn_ && rows_ > 0; ++i) {
      _mm_prefetch(x_ + std::min(at_, n_ - 1), _MM_HINT_T1);
      at_ += kLine;
      if (at_ < n_ + kLine) continue;
      x_ += ld_, at_ = 0, --rows_;
    }
  }

 private:
  static constexpr int64_t kLine = 16;
  const float* x_ = nullptr;
  int64_t ld_ = 0, rows_ = 0, n_ = 0, at_ = 0, per_turn_ = 0;
};

// One tile of C: element (i, l) of A at a[i * a_row + l * a_step], row l of B at b + l * b_step. `next`: the
// a of the tile after this one, asked for on the way.
struct Tile {
  int64_t k, columns;
  const float* a;
  int64_t a_row, a_step;
  const float* b;
  int64_t b_step;
  float* c;
  int64_t ldc;
  const float* next;
  Ahead* ahead;
  float *copy_a, *copy_b;  // take a panel of A (with a_row 1) and of B; null: none
  double* totals;  // sums of the rows of A are added to these; null: not wanted, or there is no copy_a
  TileEnd end;
};

template <int V>
[[TROUPE_AVX512, gnu::always_inline]] inline void ask_for_row(const Tile& t, int64_t row) {
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
[[TROUPE_AVX512]] void multiply(const Tile& t) {
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
      t.end.store(sums[r][v], mask, to, r * t.ldc + v * kLanes, v * kLanes);
    }
  }
}

template <int V, int... R>
void multiply(int rows, const Tile& t, std::integer_sequence<int, R...>) {
  static constexpr void (*kPlain[])(const Tile&) = {multiply<R + 1, V, false>...};
  static constexpr void (*kCopying[])(const Tile&) = {multiply<R + 1, V, true>...};
  (t.copy_a || t.copy_b ? kCopying : kPlain)[rows - 1](t);
}

void multiply(int64_t rows, const Tile& t) {
  constexpr std::make_integer_sequence<int, static_cast<int>(kTileM)> all;
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
  int64_t ldc = finish.ldc ? finish.ldc : n;
  Cut cut{{kTileM, kTileN, kBlockM, kBlockK, kLanes}, m, n, k};
  int64_t tiles = cut.tiles, height = m / tiles, higher = m % tiles;  // so many are one row higher

  // Copied is what several tiles read where it lies across or far apart.
  bool packs_b() const { return b.transposed || m > 8 * kTileM; }
  bool packs_a() const { return a.transposed && n > 4 * kTileN; }

  int64_t row(int64_t tile) const { return tile * height + std::min(tile, higher); }
  // The panel of B at row l0 and column j, to be read over so many turns.
  Ahead ahead(int64_t l0, int64_t j, int64_t turns) const {
    if (l0 >= k) return {};
    const int64_t rows = std::min(cut.depth, k - l0), columns = std::min(kTileN, n - j);
    if (b.transposed) return {b.p + j * b.ld + l0, b.ld, columns, rows, turns};
    return {b.p + l0 * b.ld + j, b.ld, rows, columns, turns};
  }
  void pack(int64_t l0, int64_t rows, int64_t j, float* panel) const {
    const int64_t end = std::min(n, j + kTileN);
    if (!b.transposed) {
      for (int64_t l = 0; l < rows; ++l) std::copy_n(b.p + (l0 + l) * b.ld + j, end - j, panel + l * kTileN);
      return;
    }
    for (int64_t i = j; i < end; i += kLanes)
      pack_across(b.p + i * b.ld + l0, b.ld, std::min<int64_t>(kLanes, end - i), rows, panel + (i - j),
                  kTileN);
  }

  // totals: by row, takes the sums of A.
  void add(const Part& part, Panels* panels, double* totals) const {
    const auto& [l0, rows, begin, end, j0, from, to] = part;
    alignas(64) float own[kBlockK * kTileN];
    const int64_t count = parts(to - from, kTileN), turns = (end - begin) * parts(rows, kLanes);
    // Distance of packed tiles of A: without the last line all would share a few sets of the cache.
    const int64_t apart = rows * kTileM + kLanes;
    const Tensor memory = packs_a() ? empty({(end - begin) * apart}) : Tensor();
    float* packed = memory.defined() ? memory.data<float>() : nullptr;
    const bool last = l0 + rows == k, gelu = last && finish.activation == Activation::gelu;
    Ahead next;
    Tile t{.k = rows, .ldc = ldc, .ahead = &next};
    t.a_row = a.transposed ? 1 : a.ld;
    for (int64_t i = 0; i < count; ++i) {
      // Threads that share panels begin with different ones.
      const auto column = [&](int64_t x) { return from + (begin * count / tiles + x) % count * kTileN; };
      const int64_t j = column(i), after = column(i + 1);
      t.columns = std::min(kTileN, to - j);
      next = {};
      if (packs_b() && !(panels && panels->whole())) {
        if (i + 1 == count)
          next = ahead(l0 + rows, from, turns);
        else if (!panels || !panels->has(cut.number(*panels, part, after)))
          next = ahead(l0, after, turns);
      }
      const auto packing = [&](float* p) { pack(l0, rows, j, p); };
      const float* panel = panels ? panels->get(cut.number(*panels, part, j), packing) : own;
      const float* lies = a.p + l0 * (a.transposed ? a.ld : 1);
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t top = row(tile), bottom = row(tile + 1), at = top * ldc + j;
        const bool has_b = panels || (packs_b() && tile > begin), has_a = packed && i > 0;
        t.b = has_b ? panel : b.p + l0 * b.ld + j;
        t.b_step = has_b ? kTileN : b.ld;
        t.copy_b = packs_b() && !has_b ? own : nullptr;
        float* copy = packed ? packed + (tile - begin) * apart : nullptr;
        t.a = has_a ? copy : lies + top * t.a_row;
        t.a_step = has_a ? kTileM : a.transposed ? a.ld : 1;
        t.next = lies + (tile + 1 < end ? bottom : row(begin)) * t.a_row;
        t.copy_a = packed && !has_a ? copy : nullptr;
        t.totals = t.copy_a && totals ? totals + top : nullptr;
        t.c = c + at;
        t.end = tile_end(finish, last, l0 > 0 || beta != 0, at, j);
        multiply(bottom - top, t);
        if (!gelu) continue;
        Finish<float> rest = finish.part(at, 0);
        rest.bias = nullptr;  // is in
        finish_rows(bottom - top, t.columns, t.c, ldc, rest);
      }
    }
  }
};

}  // namespace

bool has_gemm_tiles() {
  static const bool here = !is_switched_off("TROUPE_TILES") && simd_level() == Simd::avx512;
  return here;
}

void gemm_tiles(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
                float* c, const Finish<float>& finish, float* sums, PackedMatrix* kept) {
  const Product p{m, n, k, a, b, beta, c, finish};
  std::optional<Panels> own;
  Panels* panels = nullptr;
  if (kept || b.transposed)
    panels = &p.cut.panels(kept, PackedMatrix::Form::tiles, p.cut.depth * kTileN, own);
  with_row_sums(p.packs_a(), m, k, a, sums, [&](double* totals) {
    p.cut.run(panels, [&](const Part& part) { p.add(part, panels, part.from == 0 ? totals : nullptr); });
  });
}

}  // namespace troupe::ops::on_cpu

#else

namespace troupe::ops::on_cpu {

bool has_gemm_tiles() {
  (void)is_switched_off("TROUPE_TILES");  // what is wrong with the variable is said everywhere
  return false;
}
void gemm_tiles(int64_t, int64_t, int64_t, const Matrix<float>&, const Matrix<float>&, float, float*,
                const Finish<float>&, float*, PackedMatrix*) {}

}  // namespace troupe::ops::on_cpu

#endif
