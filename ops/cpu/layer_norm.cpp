// Kernels of ops/layer_norm.h: a row is read from memory once and its statistics taken while it is in cache.
// The backward pass takes them anew, which costs less than keeping them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/tensor/creation.h"
#include "ops/cpu/loops/loops.h"
#include "ops/cpu/loops/rows.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

constexpr int64_t kPiece = 64;  // rows that one thread takes at a time; their weight gradients are one term
constexpr double kElementNs = 0.3;

template <class T>
struct Statistics {
  T mean = 0, scale = 0;  // scale: 1 / deviation
};

// The rounding of the mean shows in the sum of the deviations from it, and is taken off: a row of equal
// numbers gives zeros, however small eps (Chan, Golub and LeVeque's corrected two-pass algorithm).
template <bool centered, class T>
[[gnu::always_inline]] inline Statistics<T> statistics(const T* x, int64_t n, T eps) {
  Statistics<T> s;
  RowSums<T> sums;
  if constexpr (centered) {
    sums.run(
        n, [x](auto& a, auto&, int64_t i)
               __attribute__((always_inline)) { a += at<std::remove_reference_t<decltype(a)>>(x, i); });
    s.mean = sums.first / static_cast<T>(n);
  }
  sums.run(
      n, [ x, mean = s.mean ](auto& a, auto& b, int64_t i) __attribute__((always_inline)) {
        const auto d = at<std::remove_reference_t<decltype(a)>>(x, i) - mean;
        a += d * d;
        if constexpr (centered) b += d;
      });
  T squares = sums.first;
  if constexpr (centered) {
    const T lost = sums.second / static_cast<T>(n);
    s.mean += lost;
    squares -= sums.second * lost;
    if (squares < 0) squares = 0;
  }
  s.scale = 1 / std::sqrt(squares / static_cast<T>(n) + eps);
  if constexpr (centered)  // squares beyond T's range: no number is right
    if (s.scale == 0) s.scale = std::numeric_limits<T>::quiet_NaN();
  return s;
}

template <bool centered>
void forward(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data(), weight = c.in[1].contiguous_data();
  const Tensor bias = c.in.size() == 3 ? c.in[2].contiguous_data() : Tensor{};
  const int64_t n = weight.numel(), rows = n ? x.numel() / n : 0;
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *from = x.data<T>(), *w = weight.data<T>(), *b = bias.defined() ? bias.data<T>() : nullptr;
    T* to = out[0].data<T>();
    const T eps = static_cast<T>(c.attrs.number("eps"));
    parallel_for((rows + kPiece - 1) / kPiece, kElementNs * static_cast<double>(kPiece * n), [=](int64_t p) {
      const int64_t first = p * kPiece, last = std::min(rows, first + kPiece);
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t r = first; r < last; ++r) {
          const T* row = from + r * n;
          T* result = to + r * n;
          const Statistics<T> s = statistics<centered>(row, n, eps);
          if (b) {
            TROUPE_INDEPENDENT
            for (int64_t i = 0; i < n; ++i) result[i] = (row[i] - s.mean) * s.scale * w[i] + b[i];
          } else {
            TROUPE_INDEPENDENT
            for (int64_t i = 0; i < n; ++i) result[i] = (row[i] - s.mean) * s.scale * w[i];
          }
        }
      });
    });
  });
}

// The rows of one piece. The gradients of weight and bias are summed into dw and db, that of x to `added`.
template <bool centered, class T>
void backward(const T* g, const T* x, const T* w, const T* added, T* dx, T* dw, T* db, int64_t rows,
              int64_t n, T eps) {
  vectorized([=]() __attribute__((always_inline)) {
    for (int64_t at_row = 0; at_row < rows * n; at_row += n) {
      const T *row = x + at_row, *gradient = g + at_row;
      T* result = dx + at_row;
      const Statistics<T> s = statistics<centered>(row, n, eps);
      RowSums<T> sums;
      sums.run(
          n, [=](auto& a, auto& b, int64_t i) __attribute__((always_inline)) {
            using V = std::remove_reference_t<decltype(a)>;
            const auto gw = at<V>(gradient, i) * at<V>(w, i);
            a += gw;
            b += gw * (at<V>(row, i) - s.mean);
          });
      const T k = 1 / static_cast<T>(n), shift = centered ? sums.first * k : T{0};
      const T slope = sums.second * k * s.scale * s.scale;
      TROUPE_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) {
        const T d = row[i] - s.mean;
        result[i] = (gradient[i] * w[i] - shift - d * slope) * s.scale;
        dw[i] += gradient[i] * (d * s.scale);
        if constexpr (centered) db[i] += gradient[i];
      }
      if (!added) continue;
      TROUPE_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) result[i] = added[at_row + i] + result[i];
    }
  });
}

template <bool centered>
void backward(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), x = c.in[1].contiguous_data(),
               weight = c.in[2].contiguous_data(),
               added = c.in.size() > 3 ? c.in[3].contiguous_data() : Tensor();
  const int64_t n = weight.numel(), rows = n ? x.numel() / n : 0, pieces = (rows + kPiece - 1) / kPiece;
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int64_t kSums = centered ? 2 : 1;
    const Tensor partial = zeros({pieces, kSums, n}, x.dtype());
    const T eps = static_cast<T>(c.attrs.number("eps"));
    const T *gradient = g.data<T>(), *from = x.data<T>(), *w = weight.data<T>();
    const T* to_add = added.defined() ? added.data<T>() : nullptr;
    T *dx = out[0].data<T>(), *sums = partial.data<T>();
    parallel_for(pieces, 3 * kElementNs * static_cast<double>(kPiece * n), [=](int64_t p) {
      const int64_t first = p * kPiece;
      T* dw = sums + p * kSums * n;
      backward<centered, T>(gradient + first * n, from + first * n, w, to_add ? to_add + first * n : nullptr,
                            dx + first * n, dw, dw + n, std::min(kPiece, rows - first), n, eps);
    });
    for (int64_t k = 0; k < kSums; ++k) {
      T* to = out[static_cast<size_t>(1 + k)].template data<T>();
      for (int64_t i = 0; i < n; ++i) {
        double total = 0;
        for (int64_t p = 0; p < pieces; ++p) total += static_cast<double>(sums[(p * kSums + k) * n + i]);
        to[i] = static_cast<T>(total);
      }
    }
  });
}

void layer_norm(const Call& c, Tensors& out) { forward<true>(c, out); }
void rms_norm(const Call& c, Tensors& out) { forward<false>(c, out); }
void layer_norm_grad(const Call& c, Tensors& out) { backward<true>(c, out); }
void rms_norm_grad(const Call& c, Tensors& out) { backward<false>(c, out); }

}  // namespace

KernelTable layer_norm_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"layer_norm", layer_norm},
      {"rms_norm", rms_norm},
      {"layer_norm_grad", layer_norm_grad},
      {"rms_norm_grad", rms_norm_grad},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
