// float32 products on the matrix unit of a processor (AMX), which multiplies pairs of bfloat16 and adds up in
// float32. Each element is cut into three bfloat16 that hold all its 24 bits; of the nine products of two
// elements six are made, and the others are below 2^-24 of the whole (Henry, Tang, Heinecke 2019, "Leveraging
// the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations"). Six such multiplications
// take 0.4 of the time of one in vectors.
//
// The unit takes numbers below 2^-126 for 0, and infinities would be cut into NaN: tiles of C with too large,
// too small, or no numbers among their factors are left to gemm_tiles.
#include "ops/cpu/gemm/gemm.h"
#include "ops/cpu/gemm/gemm_blocks.h"
#include "ops/cpu/gemm/gemm_split.h"
#include "ops/cpu/loops/simd.h"

#if defined(__x86_64__)
#include <optional>

namespace troupe::ops::on_cpu {
namespace {

constexpr int64_t kBlockM = 128, kBlockK = 512;  // a strip of B is 96 KiB, a block of A 384 KiB

// What the tile registers are: eight of 16 rows of 64 bytes. While they are in use they are part of the
// thread's state, 8 KiB more to save whenever it is interrupted.
class [[nodiscard]] TileRegisters {
 public:
  [[TROUPE_AMX]] TileRegisters() {
    alignas(64) struct {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    asm volatile("" ::: "memory");
    _tile_loadconfig(&config);
  }
  [[TROUPE_AMX]] ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

// out [32, 32] = a strip of A times a strip of B, of which I and J tiles count. In each step the
// small products come first.
template <int I, int J>
[[TROUPE_AMX, gnu::noinline]] void multiply(const char* a, const char* b, int64_t steps, float* out) {
  asm volatile("" ::: "memory");  // the compiler does not know that tile loads read
  const auto load_a = [&](int64_t part) __attribute__((always_inline, target(TROUPE_AMX_SET))) {
    _tile_loadd(4, a + 2 * part * kTileBytes, 64);
    if constexpr (I > 1) _tile_loadd(5, a + (2 * part + 1) * kTileBytes, 64);
  };
  const auto load_b = [&](int64_t part) __attribute__((always_inline, target(TROUPE_AMX_SET))) {
    _tile_loadd(6, b + 2 * part * kTileBytes, 64);
    if constexpr (J > 1) _tile_loadd(7, b + (2 * part + 1) * kTileBytes, 64);
  };
  const auto multiply_add = []() __attribute__((always_inline, target(TROUPE_AMX_SET))) {
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (J > 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (I > 1) _tile_dpbf16ps(2, 5, 6);
    if constexpr (I > 1 && J > 1) _tile_dpbf16ps(3, 5, 7);
  };
  constexpr int64_t kHigh = 0, kMiddle = 1, kLow = 2;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (; steps > 0; --steps, a += kStepBytes, b += kStepBytes) {
    load_a(kLow), load_b(kHigh), multiply_add();
    load_a(kMiddle), multiply_add();
    load_b(kMiddle), multiply_add();
    load_a(kHigh), multiply_add();
    load_b(kLow), multiply_add();
    load_b(kHigh), multiply_add();
  }
  constexpr int64_t kRow = kStrip * sizeof(float);
  _tile_stored(0, out, kRow);
  if constexpr (J > 1) _tile_stored(1, out + 16, kRow);
  if constexpr (I > 1) _tile_stored(2, out + 16 * kStrip, kRow);
  if constexpr (I > 1 && J > 1) _tile_stored(3, out + 16 * kStrip + 16, kRow);
  asm volatile("" ::: "memory");
}

void multiply(int64_t rows, int64_t columns, const char* a, const char* b, int64_t steps, float* out) {
  if (rows > 16)
    columns > 16 ? multiply<2, 2>(a, b, steps, out) : multiply<2, 1>(a, b, steps, out);
  else
    columns > 16 ? multiply<1, 2>(a, b, steps, out) : multiply<1, 1>(a, b, steps, out);
}

[[TROUPE_AVX512]] void ask_for(const float* c, int64_t ldc, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    _mm_prefetch(c + r * ldc, _MM_HINT_ET0);
    _mm_prefetch(c + r * ldc + kLanes, _MM_HINT_ET0);
  }
}

[[TROUPE_AVX512]] void write(const float* x, int64_t rows, int64_t columns, float* c, int64_t ldc,
                             const TileEnd<float>& end) {
  for (int64_t v = 0; v < columns; v += kLanes) {
    const __mmask16 mask = first(std::min<int64_t>(kLanes, columns - v));
    for (int64_t r = 0; r < rows; ++r)
      store(end, _mm512_load_ps(x + r * kStrip + v), mask, c + r * ldc + v, r * ldc + v, v);
  }
}

// Whether sums of `depth` products of numbers up to x and y come out as they should: without overflow on the
// way, and with what is lost below 2^-126 far below the largest of them. False if one is NaN.
bool fits(float x, float y, int64_t depth) {
  constexpr float kLeast = 0x1p-80f, kMost = 0x1p126f;
  const double product = static_cast<double>(x) * static_cast<double>(y);
  if (!(x < kMost && y < kMost)) return false;
  return product == 0 ||
         (x > kLeast && y > kLeast && product > 0x1p-80 && product * static_cast<double>(depth) < 0x1p126);
}

struct Product {
  Cut cut;
  Matrix<float> a, b;
  float beta;
  float* c;
  Finish<float> finish;
  int64_t ldc = finish.ldc ? finish.ldc : cut.n;

  // Floats of a panel: a strip of B, and its largest number at the end.
  int64_t panel_size() const { return parts(cut.depth, kSteps) * (kStepBytes / 4) + kLanes; }

  // panels: null where only this part reads its strips of B.
  void add(const Part& part, Panels<float>* panels, double* totals) const {
    const auto& [l0, rows, begin, end, j0, from, to] = part;
    const int64_t steps = parts(rows, kSteps), strip_bytes = steps * kStepBytes, strips = end - begin;
    const bool last = l0 + rows == cut.k, gelu = last && finish.activation == Activation::gelu;
    const Tensor memory = empty({panel_size() + strips * strip_bytes / 4 + strips});
    float* own = memory.data<float>();
    char* packed = reinterpret_cast<char*>(own + panel_size());
    float* largest = reinterpret_cast<float*>(packed + strips * strip_bytes);
    const auto panel_of_b = [&](int64_t j) -> const float* {
      const auto pack = [&](float* out) {
        out[panel_size() - 1] =
            pack_strip(b, false, j, std::min(kStrip, to - j), l0, rows, reinterpret_cast<char*>(out));
      };
      if (panels) return panels->get(cut.number(*panels, part, j), pack);
      pack(own);
      return own;
    };
    alignas(64) float tile[kStrip * kStrip];
    const TileRegisters registers;
    for (int64_t j = from; j < to; j += kStrip) {
      const int64_t columns = std::min(kStrip, to - j);
      const float* right = panel_of_b(j);
      for (int64_t s = 0; s < strips; ++s) {
        const int64_t top = (begin + s) * kStrip, high = std::min(kStrip, cut.m - top), at = top * ldc + j;
        char* strip = packed + s * strip_bytes;
        if (j == from)
          largest[s] = pack_strip(a, true, top, high, l0, rows, strip, totals ? totals + top : nullptr);
        if (!fits(largest[s], right[panel_size() - 1], rows)) {
          by_vectors(part, top, high, j, columns);
          continue;
        }
        ask_for(c + at, ldc, high);
        multiply(high, columns, strip, reinterpret_cast<const char*>(right), steps, tile);
        write(tile, high, columns, c + at, ldc, tile_end(finish, last, l0 > 0 || beta != 0, at, j));
        if (!gelu) continue;
        Finish<float> rest = finish.part(at, 0);
        rest.bias = nullptr;  // is in
        finish_rows(high, columns, c + at, ldc, rest);
      }
    }
  }

  void by_vectors(const Part& part, int64_t top, int64_t rows, int64_t j, int64_t columns) const {
    const auto from = [&](Matrix<float> x, int64_t row, int64_t column) {
      x.p += x.transposed ? column * x.ld + row : row * x.ld + column;
      return x;
    };
    const bool last = part.l0 + part.rows == cut.k;
    Finish<float> end = last ? finish.part(top * ldc + j, j) : Finish<float>();
    end.ldc = ldc;
    gemm_tiles(rows, columns, part.rows, from(a, top, part.l0), from(b, part.l0, j), part.l0 > 0 ? 1 : beta,
               c + top * ldc + j, end, nullptr);
  }
};

}  // namespace

void gemm_amx(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
              float* c, const Finish<float>& finish, float* sums, PackedMatrix* kept) {
  const Product p{{{kStrip, kStrip, kBlockM, kBlockK, kSteps, 96 * kStrip}, m, n, k}, a, b, beta, c, finish};
  std::optional<Panels<float>> own;
  Panels<float>* panels = nullptr;
  if (kept || p.cut.blocks() > 1)
    panels = &p.cut.panels(kept, PackedMatrix::Form::strips, p.panel_size(), own);
  with_row_sums(a.transposed, m, k, a, sums, [&](double* totals) {
    p.cut.run(panels, [&](const Part& part) { p.add(part, panels, part.from == 0 ? totals : nullptr); });
  });
}

}  // namespace troupe::ops::on_cpu

#else

namespace troupe::ops::on_cpu {

void gemm_amx(int64_t, int64_t, int64_t, const Matrix<float>&, const Matrix<float>&, float, float*,
              const Finish<float>&, float*, PackedMatrix*) {}

}  // namespace troupe::ops::on_cpu

#endif
