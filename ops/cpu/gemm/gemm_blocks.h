// What products of our own share, whatever their instructions: how C is cut into parts, and what is done to C
// before it leaves the registers.
#pragma once
#if defined(__x86_64__)
#include <algorithm>
#include <optional>
#include <type_traits>

#include "core/tensor/creation.h"
#include "ops/cpu/gemm/gemm.h"
#include "ops/cpu/gemm/panels.h"
#include "ops/cpu/loops/parallel_for.h"

namespace troupe::ops::on_cpu {

/// How many parts of at most that size hold n.
inline int64_t parts(int64_t n, int64_t most) { return (n + most - 1) / most; }

/// Sizes that a kind of product is made for.
struct Sizes {
  int64_t tile_m, tile_n;    ///< of a tile of C, which stays in registers
  int64_t block_m, block_k;  ///< of the block of A that stays in the second-level cache
  int64_t step;              ///< depths are multiples of it, but for the last one
  int64_t wide;              ///< columns of B whose panels live at the same time, at most
};

/// What one thread makes at a time: what rows l0 to l0 + rows of B add to tiles `begin` to `end` (each of
/// tile_m rows, about), columns `from` to `to`. Panels begin at column j0.
struct Part {
  int64_t l0, rows, begin, end, j0, from, to;
};

/// How a product is cut: by shapes only, never by the number of threads.
struct Cut {
  Sizes size;
  int64_t m, n, k;
  int64_t tiles = parts(m, size.tile_m),
          depth = parts(parts(k, parts(k, size.block_k)), size.step) * size.step;
  int64_t width = parts(parts(n, parts(n, size.wide)), size.tile_n) * size.tile_n;

  /// Those of `kept`, or those that live at the same time, of panel_size numbers each.
  template <class T>
  Panels<T>& panels(PackedMatrix* kept, PackedMatrix::Form form, int64_t panel_size,
                    std::optional<Panels<T>>& own) const {
    if constexpr (std::is_same_v<T, float>)
      if (kept) return kept->panels(form, parts(k, depth) * parts(n, size.tile_n), panel_size);
    return own.emplace(parts(std::min(width, n), size.tile_n), panel_size, false);
  }
  /// Number of the panel of column j.
  template <class T>
  int64_t number(const Panels<T>& panels, const Part& part, int64_t j) const {
    return panels.whole() ? part.l0 / depth * parts(n, size.tile_n) + j / size.tile_n
                          : (j - part.j0) / size.tile_n;
  }

  /// Blocks of rows, with groups of columns where there are few rows: an even number of pieces, if it pays.
  int64_t blocks() const {
    const int64_t count = parts(m, size.block_m);
    return work() < kTwoThreads || is_low() ? count : parts(count, 2) * 2;
  }

  /// f(part), for each part once, on several threads; parts of the same rows of B together. panels: cleared
  /// where they begin anew, unless they stay; null: there are none.
  template <class T, class F>
  void run(Panels<T>* panels, const F& f) const {
    for (int64_t l0 = 0; l0 < k; l0 += depth)
      for (int64_t j0 = 0; j0 < n; j0 += width) {
        const int64_t rows = std::min(depth, k - l0), columns = std::min(width, n - j0);
        const int64_t count = blocks(),
                      wide = parts(parts(columns, groups(columns)), size.tile_n) * size.tile_n;
        const int64_t pieces = count * groups(columns);
        const double ns = 0.02 * work() * static_cast<double>(rows) / static_cast<double>(k * pieces);
        if (panels && !panels->whole()) panels->clear();
        parallel_for(pieces, ns, [&](int64_t piece) {
          const int64_t block = piece % count, from = piece / count * wide;
          if (from < columns)
            f(Part{l0, rows, tiles * block / count, tiles * (block + 1) / count, j0, j0 + from,
                   j0 + std::min(columns, from + wide)});
        });
      }
  }

 private:
  static constexpr double kTwoThreads = 1 << 25;  // multiplications: about 0.6 ms
  double work() const { return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
  bool is_low() const { return tiles * size.tile_m < 128; }
  int64_t groups(int64_t columns) const {
    if (work() < kTwoThreads || !is_low()) return 1;
    return std::min(parts(columns, 4 * size.tile_n),
                    2 * parts(static_cast<int64_t>(work()), int64_t{1} << 27));
  }
};

/// f(totals), which makes a product. sums: null, or takes the sums of the rows of A, and totals is null, or
/// takes them where the product adds them up `on_the_way`.
template <class T, class F>
void with_row_sums(bool on_the_way, int64_t m, int64_t k, const Matrix<T>& a, T* sums, const F& f) {
  if (sums && !on_the_way) row_sums(m, k, a, sums);
  if (!sums || !on_the_way) return f(nullptr);
  const Tensor memory = zeros({m}, float64);
  const double* totals = memory.data<double>();
  f(memory.data<double>());
  for (int64_t i = 0; i < m; ++i) sums[i] = static_cast<T>(totals[i]);
}

/// What is done to elements of a tile of C before they are written: the finish of gemm.h but for gelu, after
/// which the residual comes. Each instruction set has its store().
template <class T>
struct TileEnd {
  bool add = false;         ///< to what C has
  const T* bias = nullptr;  ///< of the tile's first column
  bool relu = false;
  const T* residual = nullptr;  ///< of the tile's first element
};

/// The end of a tile at element `at` and column j of C.
template <class T>
TileEnd<T> tile_end(const Finish<T>& finish, bool last, bool add, int64_t at, int64_t j) {
  if (!last) return {.add = add};
  const bool gelu = finish.activation == Activation::gelu;
  return {.add = add,
          .bias = finish.bias ? finish.bias + j : nullptr,
          .relu = finish.activation == Activation::relu,
          .residual = finish.residual && !gelu ? finish.residual + at : nullptr};
}

}  // namespace troupe::ops::on_cpu
#endif
