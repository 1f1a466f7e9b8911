// float32 products by oneDNN, and the number of its threads.
//
// dnnl_sgemm takes transposed operands and needs no primitive: it is as fast as the matmul primitive from n =
// 64 on (220 to 255 GFLOP/s, one AVX-512 core) and five times faster at n = 8 (0.2 against 1.05 us), with
// nothing to cache.
#include <dnnl.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "ops/cpu/gemm.h"
#include "ops/threads.h"

namespace troupe::ops {
namespace {

constexpr int kMaxThreads = 1024;

void check_threads(int n) {
  if (n < 1 || n > kMaxThreads)
    throw_invalid(fmt::format("[threads] {} threads asked for, expected 1 to {}", n, kMaxThreads));
}

std::atomic<int>& thread_count() {
  static std::atomic<int> count = [] {
    const char* text = std::getenv("TROUPE_NUM_THREADS");
    if (!text || !*text) return 1;
    int n = 0;
    const char* end = text + std::strlen(text);
    if (const auto [stop, error] = std::from_chars(text, end, n); error != std::errc{} || stop != end)
      throw_invalid(fmt::format("[threads] TROUPE_NUM_THREADS is \"{}\", expected a number", text));
    check_threads(n);
    return n;
  }();
  return count;
}

// oneDNN runs on the thread that calls it: how it cuts a product, and so the bits, depend on the number of
// threads that it sees. OpenMP keeps that number per calling thread.
void keep_to_this_thread() {
  thread_local bool set = false;
  if (!set) omp_set_num_threads(1);
  set = true;
}

}  // namespace

void set_num_threads(int n) {
  check_threads(n);
  thread_count().store(n, std::memory_order_relaxed);
}

int num_threads() { return thread_count().load(std::memory_order_relaxed); }

namespace cpu {
namespace {

constexpr double kPiece = 1 << 23;  // multiplications: about 80 us
constexpr int64_t kStep = 192;      // thinner pieces make oneDNN slower

dnnl_status_t multiply(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b,
                       float beta, float* c, int64_t ldc) {
  return dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.f, a.p, a.ld, b.p, b.ld,
                    beta, c, ldc);
}

}  // namespace

// Large products are cut along their longer side, in the same pieces whatever the number of threads: so the
// bits are the same too.
void gemm(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
          float* c) {
  keep_to_this_thread();
  const bool by_rows = m >= n;
  const int64_t side = by_rows ? m : n;
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const auto wanted = static_cast<int64_t>(std::clamp(work / kPiece, 1.0, 1e9));
  const int64_t steps = (side + kStep - 1) / kStep, per_piece = (steps + wanted - 1) / wanted * kStep;
  const int64_t pieces = (side + per_piece - 1) / per_piece;
  std::atomic<int> status{dnnl_success};
  const auto run = [&](int64_t piece) {
    const int64_t from = piece * per_piece, size = std::min(per_piece, side - from);
    const auto part = [from](Matrix<float> x, bool rows) {
      x.p += from * (rows == x.transposed ? 1 : x.ld);
      return x;
    };
    const dnnl_status_t s = by_rows ? multiply(size, n, k, part(a, true), b, beta, c + from * n, n)
                                    : multiply(m, size, k, a, part(b, false), beta, c + from, n);
    if (s != dnnl_success) status = s;
  };
  const int threads = static_cast<int>(std::min<int64_t>(num_threads(), pieces));
  if (threads == 1) {
    for (int64_t i = 0; i < pieces; ++i) run(i);
  } else {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t i = 0; i < pieces; ++i) run(i);
  }
  if (status != dnnl_success)
    throw_error(ErrorKind::failed, fmt::format("[matmul] oneDNN refused [{}, {}] x [{}, {}]: status {}", m, k,
                                               k, n, status.load()));
}

}  // namespace cpu
}  // namespace troupe::ops
