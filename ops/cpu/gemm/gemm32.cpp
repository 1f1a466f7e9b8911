// float32 products: by gemm_amx, gemm_tiles or oneDNN, whichever is fastest, cut into pieces for the threads.
//
// dnnl_sgemm takes transposed operands and needs no primitive: it is as fast as the matmul primitive from n =
// 64 on (one AVX-512 core of Zen 4: 115 of 118 GFLOP/s) and five times faster at n = 8, with nothing to
// cache.
#include <dnnl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "core/base/error.h"
#include "ops/cpu/gemm/gemm.h"
#include "ops/cpu/loops/level.h"
#include "ops/cpu/loops/parallel_for.h"
#include "ops/cpu/loops/simd.h"

namespace troupe::ops::on_cpu {
namespace {

constexpr double kPiece = 1 << 26;  // multiplications: about 1.2 ms
constexpr int64_t kStep = 48;       // pieces end at whole tiles

bool is_intel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

// Whether gemm_amx is the fastest: where cutting up both operands, and what is done to each tile of C, is
// little beside the product. In narrower ones it gains 8 % at most, and loses 17 where another program works
// on the core's second thread.
bool use_amx(int64_t m, int64_t n, int64_t k, double work) {
  return std::min(m, n) >= 192 && k >= 256 && work >= 2e6 && has_gemm_amx();
}

// Whether gemm_tiles is the faster one of the rest. As above, by shapes, not by threads. In AVX2 the tiles
// are, unless there is little to gain from them. In AVX-512 Intel's processors run oneDNN's kernels faster
// but for the smallest products and B that is packed already, AMD's the tiles. A few shapes keep the tiles'
// sums all the same (docs/contributing/decisions.md).
bool use_tiles(int64_t m, int64_t n, int64_t k, double work, const Matrix<float>& a, const Matrix<float>& b,
               bool kept) {
  if (!has_gemm_tiles()) return false;
  if (level() == CpuLevel::avx2)
    return kept || work <= 16 * 16 * 16 || (n > 3 && m > (b.transposed ? 31 : 3));
  if (work <= 64 * 64 * 64 || (m >= 8 && work <= 2e6)) return true;
  static const bool on_intel = is_intel();
  if (on_intel) return (kept && m < 48) || (b.transposed && m >= 32 && m <= 64 && work <= 8e6);
  return kept || (a.transposed ? n >= 192 && k >= 128 : m >= (b.transposed ? 32 : 128));
}

}  // namespace

bool may_use_tiles() {
  static const bool may = [] {
    const char* text = std::getenv("TROUPE_TILES");
    const std::string_view value = text && *text ? text : "1";
    if (value != "0" && value != "1")
      throw_invalid(fmt::format("TROUPE_TILES is \"{}\", expected 0 or 1", value));
    return value == "1";
  }();
  return may;
}
bool has_gemm_tiles() {
  static const bool has = may_use_tiles() && level() >= CpuLevel::avx2;
  return has;
}
bool has_gemm_amx() {
  static const bool has = may_use_tiles() && level() == CpuLevel::amx;
  return has;
}

// Large products are cut along their longer side into an even number of pieces, the same whatever the number
// of threads. Few: each packs, and reads from beyond the second-level cache, all of the other operand.
void gemm(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
          float* c, const Finish<float>& finish, float* sums, PackedMatrix* kept) {
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  if (use_amx(m, n, k, work)) return gemm_amx(m, n, k, a, b, beta, c, finish, sums, kept);
  if (use_tiles(m, n, k, work, a, b, kept != nullptr))
    return gemm_tiles(m, n, k, a, b, beta, c, finish, sums, kept);
  if (sums) row_sums(m, k, a, sums);
  const bool by_rows = m >= n;
  const int64_t side = by_rows ? m : n, most = std::max<int64_t>(1, side / (2 * kStep));
  const auto wanted = static_cast<int64_t>(std::min(work / kPiece, 1e9));
  const int64_t about = std::min(most, work < kPiece / 2 ? 1 : std::max<int64_t>(1, (wanted + 1) / 2) * 2);
  const int64_t per_piece = ((side + about - 1) / about + kStep - 1) / kStep * kStep;
  const int64_t pieces = (side + per_piece - 1) / per_piece;
  const int64_t ldc = finish.ldc ? finish.ldc : n;
  std::atomic<int> status{dnnl_success};
  parallel_for(pieces, work / static_cast<double>(pieces) / 50, [&](int64_t piece) {
    const int64_t from = piece * per_piece, size = std::min(per_piece, side - from);
    const auto part = [from](Matrix<float> x, bool rows) {
      x.p += from * (rows == x.transposed ? 1 : x.ld);
      return x;
    };
    const Matrix<float> x = by_rows ? part(a, true) : a, y = by_rows ? b : part(b, false);
    const int64_t rows = by_rows ? size : m, columns = by_rows ? n : size;
    float* to = c + (by_rows ? from * ldc : from);
    keep_onednn_on_this_thread();
    const dnnl_status_t s = dnnl_sgemm(x.transposed ? 'T' : 'N', y.transposed ? 'T' : 'N', rows, columns, k,
                                       1.f, x.p, x.ld, y.p, y.ld, beta, to, ldc);
    if (s != dnnl_success) status = s;
    finish_rows(rows, columns, to, ldc, finish.part(to - c, by_rows ? 0 : from));
  });
  if (status != dnnl_success)
    throw_error(ErrorKind::failed, fmt::format("[matmul] oneDNN refused [{}, {}] x [{}, {}]: status {}", m, k,
                                               k, n, status.load()));
}

}  // namespace troupe::ops::on_cpu
