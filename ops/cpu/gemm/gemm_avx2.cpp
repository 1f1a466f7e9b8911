// Tiles of products in AVX2, of 6 rows and two vectors: 6 x 16 float, 6 x 8 double. That is 12 of the 16
// registers; two hold a row of B, one a number of A.
#include <unistd.h>

#include <utility>

#include "ops/cpu/gemm/avx2_lanes.h"
#include "ops/cpu/gemm/gemm_kernels.h"
#include "ops/cpu/gemm/tiled_product.h"

#if defined(__x86_64__)
namespace troupe::ops::on_cpu {
namespace {

constexpr int kRows = 6;

// Numbers of a cache line.
template <class L>
constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(typename L::Number));

// The first n elements (all if `whole`) of a vector; the others are 0.
template <class L, bool whole>
[[TROUPE_AVX2, gnu::always_inline]] inline typename L::Vector load(const typename L::Number* x, int64_t n) {
  if constexpr (whole)
    return L::load(x);
  else
    return L::load(x, L::first(n));
}

// x, the vector of C in the tile's column `column`, of which the first n count (all if `whole`), to `to`; the
// residual's are at `at`.
template <class L, bool whole>
[[TROUPE_AVX2, gnu::always_inline]] inline void store(const TileEnd<typename L::Number>& end,
                                                      typename L::Vector x, int64_t n, typename L::Number* to,
                                                      int64_t at, int64_t column) {
  if (end.add) x = L::add(load<L, whole>(to, n), x);
  if (end.bias) x = L::add(x, load<L, whole>(end.bias + column, n));
  if (end.relu) x = L::relu(x);
  if (end.residual) x = L::add(x, load<L, whole>(end.residual + at, n));
  if (whole || n == L::kCount)
    L::store(to, x);
  else
    L::store(to, x, n);
}

// Where A and B are: both packed, as they lie, or B to be packed on the way.
enum class Where { packed, lie, copied };

// R rows and V vectors, the last of which is `whole` or not.
template <class L, int R, int V, bool whole, Where where>
[[TROUPE_AVX2]] void multiply(const Tile<typename L::Number>& t) {
  using T = typename L::Number;
  using Vector = typename L::Vector;
  constexpr int N = L::kCount;
  constexpr bool packed = where == Where::packed;
  // C is written at the end: its lines are asked for now.
  TROUPE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    _mm_prefetch(t.c + r * t.ldc, _MM_HINT_T0);
    _mm_prefetch(t.c + r * t.ldc + t.columns - 1, _MM_HINT_T0);
  }
  Vector sums[R][V];
  TROUPE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    TROUPE_UNROLL(2)
    for (int v = 0; v < V; ++v) sums[r][v] = L::zero();
  }
  const int64_t rest = t.columns - (V - 1) * N;
  const T *a = t.a, *b = t.b, *next = t.next;
  const int64_t a_row = packed ? 1 : t.a_row, a_step = packed ? kRows : t.a_step,
                b_step = packed ? 2 * N : t.b_step;
  T* copy = t.copy_b;
  const auto step = [&]() __attribute__((always_inline, target(TROUPE_AVX2_SET))) {
    Vector row[V];
    TROUPE_UNROLL(2)
    for (int v = 0; v < V; ++v) row[v] = v < V - 1 ? L::load(b + v * N) : load<L, whole>(b + v * N, rest);
    if constexpr (where == Where::copied) {
      TROUPE_UNROLL(2)
      for (int v = 0; v < V; ++v) L::store(copy + v * N, row[v]);
      copy += 2 * N;
    }
    const T* a3 = a + 3 * a_row;  // one address for all would be made step by step
    TROUPE_UNROLL(8)
    for (int r = 0; r < R; ++r) {
      const Vector x = L::same(r < 3 ? a + r * a_row : a3 + (r - 3) * a_row);
      TROUPE_UNROLL(2)
      for (int v = 0; v < V; ++v) sums[r][v] = L::multiply_add(x, row[v], sums[r][v]);
    }
    a += a_step, b += b_step;
  };
  for (int64_t left = t.k; left > 0; left -= kLine<L>, next += kLine<L>) {
    if (!packed && a_step == 1) {
      TROUPE_UNROLL(8)
      for (int r = 0; r < R; ++r) _mm_prefetch(next + r * a_row, _MM_HINT_T1);
    }
    t.ahead->turn();
    constexpr int64_t kTogether = packed ? 4 : 1;
    int64_t steps = std::min(left, kLine<L>);
    for (; steps >= kTogether; steps -= kTogether) {
      TROUPE_UNROLL(4)
      for (int64_t i = 0; i < kTogether; ++i) step();
    }
    for (; packed && steps > 0; --steps) step();
  }
  const auto each = [&](const TileEnd<T>& end) __attribute__((always_inline, target(TROUPE_AVX2_SET))) {
    T* c = t.c;
    TROUPE_UNROLL(8)
    for (int r = 0; r < R; ++r, c += t.ldc) {
      TROUPE_UNROLL(2)
      for (int v = 0; v < V; ++v) {
        const int64_t at = r * t.ldc + v * N;
        if (v < V - 1)
          store<L, true>(end, sums[r][v], N, c + v * N, at, v * N);
        else
          store<L, whole>(end, sums[r][v], rest, c + v * N, at, v * N);
      }
    }
  };
  // Most tiles have no more to do than the first or the second; the rest asks for each vector.
  if (t.end.bias || t.end.relu || t.end.residual)
    each(t.end);
  else if (t.end.add)
    each({.add = true});
  else
    each({});
}

template <class L, int V, bool whole, int... R>
void multiply(int rows, const Tile<typename L::Number>& t, std::integer_sequence<int, R...>) {
  using Make = void(const Tile<typename L::Number>&);
  static constexpr Make* kPacked[] = {multiply<L, R + 1, V, whole, Where::packed>...};
  static constexpr Make* kLying[] = {multiply<L, R + 1, V, whole, Where::lie>...};
  static constexpr Make* kCopied[] = {multiply<L, R + 1, V, whole, Where::copied>...};
  const bool packed = t.a_row == 1 && t.a_step == kRows && t.b_step == 2 * L::kCount;
  (t.copy_b ? kCopied : packed ? kPacked : kLying)[rows - 1](t);
}

// As many rows of A, of `bytes` each, as take half of the second-level cache or little more. Nothing else
// depends on the machine: the depth of a block decides the bits. Its panel of B, 32 KiB, passes through the
// first-level cache in order, in time for the twelve products of each row.
int64_t rows_of_block(int64_t bytes) {
  static const int64_t cache = [] {
    constexpr int64_t kLeast = 256 << 10, kMost = 1 << 20;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    return std::clamp<int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE), kLeast, kMost);  // 0 or -1: not known
#else
    return kLeast;
#endif
  }();
  return parts(cache / 2 / bytes, kRows) * kRows;
}

// pack_across() of `count` rows, R if that is not 0.
template <class L, int R>
[[TROUPE_AVX2]] void pack_rows(const typename L::Number* x, int64_t ld, int64_t k, typename L::Number* out,
                               int64_t step, int64_t count = R) {
  constexpr int N = L::kCount;
  typename L::Vector columns[N];
  const int64_t rows = R ? R : count;
  int64_t l = 0;
  for (; l + N <= k; l += N) {
    L::load_across(x + l, ld, rows, columns);
    TROUPE_UNROLL(8)
    for (int i = 0; i < N; ++i) L::store(out + (l + i) * step, columns[i]);
  }
  for (; l < k; ++l) {
    typename L::Number column[N] = {};
    for (int64_t i = 0; i < rows; ++i) column[i] = x[i * ld + l];
    L::store(out + l * step, L::load(column));
  }
}

template <class L>
struct Kernel {
  using Number = typename L::Number;
  static constexpr int64_t kTileM = kRows, kTileN = 2 * L::kCount, kBlockK = 512, kWide = 4096;
  static constexpr int64_t kLanes = kLine<L>, kAcross = L::kCount, kPad = L::kCount, kChunk = 8;
  static constexpr bool kCopiesA = false;
  static int64_t block_m() { return rows_of_block(kBlockK * sizeof(Number)); }
  static bool packs_a(int64_t, int64_t n, const Matrix<Number>&) { return n > 2 * kTileN; }
  static bool packs_b(int64_t m, int64_t, const Matrix<Number>& b) { return b.transposed || m > 2 * kTileM; }
  static bool shares_b(int64_t m, int64_t, const Matrix<Number>& b) {
    return b.transposed || m > 4 * block_m();
  }

  static void pack_across(const Number* x, int64_t ld, int64_t count, int64_t k, Number* out, int64_t step) {
    // Written out for as many rows as there are: whole vectors of B, and the rows of a tile of A.
    if (count == kAcross) return pack_rows<L, kAcross>(x, ld, k, out, step);
    if (count == kRows % kAcross) return pack_rows<L, kRows % kAcross>(x, ld, k, out, step);
    pack_rows<L, 0>(x, ld, k, out, step, count);
  }
  [[TROUPE_AVX2]] static void pack_along(const Number* x, int64_t ld, int64_t count, int64_t k, int64_t room,
                                         Number* out, double* totals) {
    constexpr int N = L::kCount, kVectors = (kRows + N - 1) / N;
    typename L::Vector sums[kVectors] = {};
    TROUPE_UNROLL(2)
    for (int v = kVectors - 1; v >= 0; --v) {  // from the end, since each copy writes beyond what it has
      const int64_t inside = std::min<int64_t>(N, room - v * N);
      const auto copy = [&](int64_t rows, const auto& load)
          __attribute__((always_inline, target(TROUPE_AVX2_SET))) {
        for (int64_t l = 0; l < rows; ++l) {
          const typename L::Vector row = load(x + l * ld + v * N);
          _mm_prefetch(x + (l + kChunk) * ld + v * N, _MM_HINT_T0);
          L::store(out + l * kRows + v * N, row);
          sums[v] = L::add(sums[v], row);
        }
      };
      const auto whole = [](const Number* from) __attribute__((always_inline, target(TROUPE_AVX2_SET))) {
        return L::load(from);
      };
      if (inside == N && k == kChunk)
        copy(kChunk, whole);  // written out
      else if (inside == N)
        copy(k, whole);
      else if (inside > 0)
        copy(
            k, [=](const Number* from) __attribute__((always_inline, target(TROUPE_AVX2_SET))) {
              return L::load(from, L::first(inside));
            });
    }
    if (!totals) return;
    alignas(64) Number part[8];
    TROUPE_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) L::store(part + v * N, sums[v]);
    for (int64_t i = 0; i < count; ++i) totals[i] += static_cast<double>(part[i]);
  }
  static void multiply(int64_t rows, const Tile<Number>& t) {
    constexpr std::make_integer_sequence<int, kRows> all;
    const int r = static_cast<int>(rows);
    if (t.columns == kTileN) return on_cpu::multiply<L, 2, true>(r, t, all);
    if (t.columns > L::kCount) return on_cpu::multiply<L, 2, false>(r, t, all);
    on_cpu::multiply<L, 1, false>(r, t, all);
  }
};

}  // namespace

void gemm_avx2(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
               float* c, const Finish<float>& finish, float* sums, PackedMatrix* kept) {
  TiledProduct<Kernel<Floats>>{m, n, k, a, b, beta, c, finish}.run(sums, kept);
}
void gemm_avx2(int64_t m, int64_t n, int64_t k, const Matrix<double>& a, const Matrix<double>& b, double beta,
               double* c, const Finish<double>& finish, double* sums) {
  TiledProduct<Kernel<Doubles>>{m, n, k, a, b, beta, c, finish}.run(sums, nullptr);
}

}  // namespace troupe::ops::on_cpu
#endif
