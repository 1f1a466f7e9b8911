// The frame of products in tiles of C that stay in registers (Goto, van de Geijn 2008), where bias and
// activation are applied too; a kernel for each instruction set makes the tiles. Blocks of rows of C are made
// on several threads, each in panels of columns. What is read again is packed on the way: B by the first tile
// of a panel, A across by the first panel; what needs a pass of its own, by whoever comes first, for all. The
// panel after is asked for early.
#pragma once
#include "ops/cpu/gemm/gemm_blocks.h"
#if defined(__x86_64__)
#include <immintrin.h>

namespace troupe::ops::on_cpu {

/// Rows of a matrix that will be needed soon, asked for line by line into the second-level cache.
template <class T>
class Ahead {
 public:
  Ahead() = default;
  /// `rows` rows of n elements, ld apart, over that many turns.
  Ahead(const T* x, int64_t ld, int64_t rows, int64_t n, int64_t turns)
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
  static constexpr int64_t kLine = 64 / sizeof(T);
  const T* x_ = nullptr;
  int64_t ld_ = 0, rows_ = 0, n_ = 0, at_ = 0, per_turn_ = 0;
};

/// One tile of C: element (i, l) of A at a[i * a_row + l * a_step], row l of B at b + l * b_step. `next`: the
/// a of the tile after this one, asked for on the way.
template <class T>
struct Tile {
  int64_t k, columns;
  const T* a;
  int64_t a_row, a_step;
  const T* b;
  int64_t b_step;
  T* c;
  int64_t ldc;
  const T* next;
  Ahead<T>* ahead;
  T *copy_a, *copy_b;  ///< take a panel of A (with a_row 1) and of B; null: none
  double* totals;      ///< sums of the rows of A are added to these; null: not wanted, or there is no copy_a
  TileEnd<T> end;
};

/// The product, and how it is cut: by shapes only, never by the number of threads. A Kernel has
/// - Number, kTileM, kTileN, kBlockK: what it computes, its tile, the depth of a block, which decides the
/// bits;
/// - kLanes: depths of blocks are multiples of it;
/// - block_m(), kWide: rows of a block of A; columns of B whose panels live at the same time;
/// - packs_a(m, n, a), packs_b(m, n, b), shares_b(m, n, b): what is copied; whether B is, for all blocks at
/// once;
/// - kAcross, pack_across(): out[l * step + i] = x[i * ld + l] for i < count <= kAcross and l < k; may write
///   kAcross elements for each l;
/// - kPad: panels are 0 from B's last column to a multiple of it;
/// - multiply(rows, tile): makes a tile of that many rows;
/// - kCopiesA: multiply() packs A, which lies across wherever packs_a(). If not, kChunk and pack_along():
///   out[l * kTileM + i] = x[l * ld + i] for i < count <= kTileM and l < k <= kChunk, and totals[i], unless
///   that is null, is added to; may read `room` and write kTileM + kLanes elements for each l.
template <class Kernel>
struct TiledProduct {
  using T = typename Kernel::Number;
  static constexpr int64_t kTileM = Kernel::kTileM, kTileN = Kernel::kTileN, kLanes = Kernel::kLanes;
  int64_t m, n, k;
  Matrix<T> a, b;
  T beta;
  T* c;
  Finish<T> finish;
  int64_t ldc = finish.ldc ? finish.ldc : n;
  Cut cut{{kTileM, kTileN, Kernel::block_m(), Kernel::kBlockK, kLanes, Kernel::kWide}, m, n, k};
  int64_t tiles = cut.tiles, height = m / tiles, higher = m % tiles;  // so many are one row higher

  bool packs_a() const { return Kernel::packs_a(m, n, a); }
  bool packs_b() const { return Kernel::packs_b(m, n, b); }

  void run(T* sums, PackedMatrix* kept) const {
    std::optional<Panels<T>> own;
    Panels<T>* panels = nullptr;
    if (kept || Kernel::shares_b(m, n, b))
      panels = &cut.panels(kept, PackedMatrix::Form::tiles, cut.depth * kTileN, own);
    // What packs A across adds it up as well.
    with_row_sums(a.transposed && packs_a(), m, k, a, sums, [&](double* totals) {
      cut.run(panels, [&](const Part& part) { add(part, panels, part.from == 0 ? totals : nullptr); });
    });
  }

 private:
  int64_t row(int64_t tile) const { return tile * height + std::min(tile, higher); }
  // The panel of B at row l0 and column j, to be read over so many turns.
  Ahead<T> ahead(int64_t l0, int64_t j, int64_t turns) const {
    if (l0 >= k) return {};
    const int64_t rows = std::min(cut.depth, k - l0), columns = std::min(kTileN, n - j);
    if (b.transposed) return {b.p + j * b.ld + l0, b.ld, columns, rows, turns};
    return {b.p + l0 * b.ld + j, b.ld, rows, columns, turns};
  }
  void pack_b(int64_t l0, int64_t rows, int64_t j, T* panel) const {
    const int64_t end = std::min(n, j + kTileN), columns = end - j;
    if (b.transposed) {
      for (int64_t i = j; i < end; i += Kernel::kAcross)
        Kernel::pack_across(b.p + i * b.ld + l0, b.ld, std::min<int64_t>(Kernel::kAcross, end - i), rows,
                            panel + (i - j), kTileN);
      return;
    }
    const T* from = b.p + l0 * b.ld + j;
    const int64_t pad = parts(columns, Kernel::kPad) * Kernel::kPad - columns;
    for (int64_t l = 0; l < rows; ++l, from += b.ld, panel += kTileN)
      if (columns == kTileN)
        std::copy_n(from, kTileN, panel);
      else
        std::fill_n(std::copy_n(from, columns, panel), pad, T{0});
  }
  // A's part in tiles, which lie `apart`.
  void pack_a(const Part& part, T* to, int64_t apart, double* totals) const {
    if constexpr (!Kernel::kCopiesA) {
      const int64_t step = a.transposed ? Kernel::kChunk : part.rows;  // across, rows are read to their end
      for (int64_t l = 0; l < part.rows; l += step)
        for (int64_t tile = part.begin; tile < part.end; ++tile) {
          const int64_t top = row(tile), count = row(tile + 1) - top, rows = std::min(step, part.rows - l);
          T* copy = to + (tile - part.begin) * apart + l * kTileM;
          if (a.transposed) {
            Kernel::pack_along(a.p + (part.l0 + l) * a.ld + top, a.ld, count, rows, m - top, copy,
                               totals ? totals + top : nullptr);
            continue;
          }
          // From the end, since each copy writes beyond what it has.
          for (int64_t i = (count - 1) / Kernel::kAcross * Kernel::kAcross; i >= 0; i -= Kernel::kAcross)
            Kernel::pack_across(a.p + (top + i) * a.ld + part.l0, a.ld,
                                std::min<int64_t>(Kernel::kAcross, count - i), rows, copy + i, kTileM);
        }
    }
  }

  // totals: by row, takes the sums of A.
  void add(const Part& part, Panels<T>* panels, double* totals) const {
    const auto& [l0, rows, begin, end, j0, from, to] = part;
    alignas(64) T own[Kernel::kBlockK * kTileN];
    const int64_t count = parts(to - from, kTileN), turns = (end - begin) * parts(rows, kLanes);
    // Distance of packed tiles of A: without the last line all would share a few sets of the cache.
    const int64_t apart = rows * kTileM + kLanes;
    const Tensor memory =
        packs_a() ? empty({(end - begin) * apart}, sizeof(T) == 8 ? float64 : float32) : Tensor();
    T* packed = memory.defined() ? memory.data<T>() : nullptr;
    if (packed) pack_a(part, packed, apart, totals);
    const bool last = l0 + rows == k, gelu = last && finish.activation == Activation::gelu;
    Ahead<T> next;
    Tile<T> t{.k = rows, .ldc = ldc, .ahead = &next};
    const int64_t lies_row = a.transposed ? 1 : a.ld;
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
      const auto packing = [&](T* p) { pack_b(l0, rows, j, p); };
      const T* panel = panels ? panels->get(cut.number(*panels, part, j), packing) : own;
      const T* lies = a.p + l0 * (a.transposed ? a.ld : 1);
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t top = row(tile), bottom = row(tile + 1), at = top * ldc + j;
        T* copy = packed ? packed + (tile - begin) * apart : nullptr;
        const bool has_b = panels || (packs_b() && tile > begin),
                   has_a = packed && (i > 0 || !Kernel::kCopiesA);
        t.b = has_b ? panel : b.p + l0 * b.ld + j;
        t.b_step = has_b ? kTileN : b.ld;
        t.copy_b = packs_b() && !has_b ? own : nullptr;
        t.a = has_a ? copy : lies + top * lies_row;
        t.a_row = has_a ? 1 : lies_row;
        t.a_step = has_a ? kTileM : a.transposed ? a.ld : 1;
        t.next = lies + (tile + 1 < end ? bottom : row(begin)) * lies_row;
        t.copy_a = packed && !has_a ? copy : nullptr;
        t.totals = t.copy_a && totals ? totals + top : nullptr;
        t.c = c + at;
        t.end = tile_end(finish, last, l0 > 0 || beta != 0, at, j);
        Kernel::multiply(bottom - top, t);
        if (!gelu) continue;
        Finish<T> rest = finish.part(at, 0);
        rest.bias = nullptr;  // is in
        finish_rows(bottom - top, t.columns, t.c, ldc, rest);
      }
    }
  }
};

}  // namespace troupe::ops::on_cpu
#endif
