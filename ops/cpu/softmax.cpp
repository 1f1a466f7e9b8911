// Kernels of ops/softmax.h.
#include <algorithm>
#include <cmath>

#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "ops/cpu/loops/loops.h"
#include "ops/cpu/loops/math.h"
#include "ops/cpu/loops/rows.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

constexpr double kElementNs = 1;

constexpr int64_t kFewColumns = 32;  // what is left over of vectors costs more than moving them

// The first N inputs, contiguous, as [outer, size, inner] around the attribute `dim`.
template <class T, size_t N>
struct Operands : Around {
  std::array<Tensor, N> in;
  std::array<const T*, N> from;

  explicit Operands(const Call& c)
      : Around(around(c.in[0].shape(), c.in[0].shape().axis(c.attrs.integer("dim"), c.name()))) {
    for (size_t k = 0; k < N; ++k) set(k, c.in[k].contiguous_data());
  }
  void set(size_t k, const Tensor& t) {
    in[k] = t;
    from[k] = t.data<T>();
  }
  // A contiguous tensor like the inputs, as [outer, inner, size].
  Tensor columns_of(const Tensor& t) const {
    return t.alias({outer, inner, size}, {size * inner, 1, inner}, t.storage_offset());
  }
};

// f(in..., out, n) for every row, inside vectorized().
template <class T, size_t N, class F>
void for_each_row(const Operands<T, N>& x, T* to, F f) {
  const int64_t n = x.size, piece = std::max<int64_t>(1, kGrain / n);  // rows
  parallel_for((x.outer + piece - 1) / piece, kElementNs * static_cast<double>(piece * n),
               [&, from = x.from](int64_t p) {
                 const int64_t end = std::min(x.outer, (p + 1) * piece);
                 vectorized([=]() __attribute__((always_inline)) {
                   for (int64_t o = p * piece; o < end; ++o) {
                     std::array<const T*, N> rows;
                     for (size_t k = 0; k < N; ++k) rows[k] = from[k] + o * n;
                     f(rows, to + o * n, n);
                   }
                 });
               });
}

// What the results of a column take, beside the elements and the sum of the terms.
struct Needs {
  bool top = false;    // the largest element of the first input
  bool terms = false;  // the term of each element
};

// For every column of [size, inner], those of a block side by side: the results finish(elements, top, term,
// of_sum(sum of the terms)), where a term is term(elements, top).
template <Needs kNeeds, class T, size_t N, class Term, class OfSum, class Finish>
void for_each_column(const Operands<T, N>& x, T* out, Term term, OfSum of_sum, Finish finish) {
  const int64_t n = x.size, inner = x.inner;
  const int64_t width = std::min(inner, std::max<int64_t>(64, kGrain / n)),
                pieces = (inner + width - 1) / width;
  parallel_for(x.outer * pieces, kElementNs * static_cast<double>(width * n), [&](int64_t p) {
    const int64_t j0 = p % pieces * width, columns = std::min(width, inner - j0);
    std::vector<T> tops(static_cast<size_t>(columns), -static_cast<T>(__builtin_inf()));
    std::vector<double> sums(static_cast<size_t>(columns));
    std::array<const T*, N> from = x.from;
    for (const T*& each : from) each += p / pieces * n * inner + j0;
    T* const to = out + p / pieces * n * inner + j0;
    vectorized([ =, top = tops.data(), sum = sums.data() ]() __attribute__((always_inline)) {
      const auto elements = [&](int64_t at) __attribute__((always_inline)) {
        std::array<T, N> all;
        for (size_t k = 0; k < N; ++k) all[k] = from[k][at];
        return all;
      };
      if constexpr (kNeeds.top)
        for (int64_t i = 0; i < n; ++i) {
          TROUPE_INDEPENDENT
          for (int64_t j = 0; j < columns; ++j) {
            const T v = from[0][i * inner + j];
            top[j] = v > top[j] ? v : top[j];
          }
        }
      for (int64_t i = 0; i < n; ++i) {
        TROUPE_INDEPENDENT
        for (int64_t j = 0; j < columns; ++j) {
          const T t = term(elements(i * inner + j), top[j]);
          if constexpr (kNeeds.terms) to[i * inner + j] = t;
          sum[j] += static_cast<double>(t);
        }
      }
      for (int64_t j = 0; j < columns; ++j) sum[j] = of_sum(sum[j]);
      for (int64_t i = 0; i < n; ++i) {
        TROUPE_INDEPENDENT
        for (int64_t j = 0; j < columns; ++j) {
          const int64_t at = i * inner + j;
          to[at] = finish(elements(at), top[j], kNeeds.terms ? to[at] : T{0}, static_cast<T>(sum[j]));
        }
      }
    });
  });
}

// All of it: rows where they lie together, columns otherwise. `row` makes the results of a row, the other
// functions those of columns.
template <Needs kNeeds, size_t N, class Row, class Term, class OfSum, class Finish>
void along(const Call& c, const Tensor& out, Row row, Term term, OfSum of_sum, Finish finish) {
  visit_floating(out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    Operands<T, N> x(c);
    if (out.numel() == 0) return;
    if (x.inner == 1) return for_each_row(x, out.data<T>(), row);
    if (x.inner >= kFewColumns) return for_each_column<kNeeds>(x, out.data<T>(), term, of_sum, finish);
    const Tensor to = x.columns_of(out), rows = empty(to.shape(), out.dtype());
    for (size_t k = 0; k < N; ++k) x.set(k, x.columns_of(x.in[k]).contiguous_data());
    x.outer *= x.inner;
    for_each_row(x, rows.data<T>(), row);
    copy_elements(to, rows);
  });
}

// exp(x - largest x); the sum is returned, the largest in `top`.
template <class T>
[[gnu::always_inline]] inline T exponentials(const T* x, T* to, int64_t n, T& top) {
  const T high = top = largest(x, n);
  TROUPE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) to[i] = decay(x[i] - high);
  RowSums<T> sums;
  sums.run(
      n, [to](auto& a, auto&, int64_t i)
             __attribute__((always_inline)) { a += at<std::remove_reference_t<decltype(a)>>(to, i); });
  return sums.first;
}

void softmax(const Call& c, Tensors& out) {
  along<Needs{.top = true, .terms = true}, 1>(
      c, out[0], [](const auto& rows, auto* to, int64_t n) __attribute__((always_inline)) {
        std::remove_reference_t<decltype(*to)> top;
        const auto scale = 1 / exponentials(rows[0], to, n, top);
        for (int64_t i = 0; i < n; ++i) to[i] *= scale;
      },
      [](const auto& x, auto top) __attribute__((always_inline)) { return decay(x[0] - top); },
      [](double sum) __attribute__((always_inline)) { return 1 / sum; },
      [](const auto&, auto, auto term, auto scale) __attribute__((always_inline)) { return term * scale; });
}

void log_softmax(const Call& c, Tensors& out) {
  along<Needs{.top = true}, 1>(
      c, out[0], [](const auto& rows, auto* to, int64_t n) __attribute__((always_inline)) {
        std::remove_reference_t<decltype(*to)> top;
        const auto* x = rows[0];
        const auto log_total = std::log(exponentials(x, to, n, top));
        TROUPE_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) to[i] = (x[i] - top) - log_total;
      },
      [](const auto& x, auto top) __attribute__((always_inline)) { return decay(x[0] - top); },
      [](double sum) __attribute__((always_inline)) { return std::log(sum); },
      [](const auto& x, auto top, auto, auto log_total)
          __attribute__((always_inline)) { return (x[0] - top) - log_total; });
}

void softmax_grad(const Call& c, Tensors& out) {
  along<Needs{}, 2>(
      c, out[0], [](const auto& rows, auto* to, int64_t n) __attribute__((always_inline)) {
        const auto *g = rows[0], *y = rows[1];
        RowSums<std::remove_reference_t<decltype(*to)>> sums;
        sums.run(
            n, [=](auto& a, auto&, int64_t i) __attribute__((always_inline)) {
              using V = std::remove_reference_t<decltype(a)>;
              a += at<V>(g, i) * at<V>(y, i);
            });
        TROUPE_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) to[i] = y[i] * (g[i] - sums.first);
      },
      [](const auto& gy, auto) __attribute__((always_inline)) { return gy[0] * gy[1]; },
      [](double sum) __attribute__((always_inline)) { return sum; },
      [](const auto& gy, auto, auto, auto sum)
          __attribute__((always_inline)) { return gy[1] * (gy[0] - sum); });
}

void log_softmax_grad(const Call& c, Tensors& out) {
  along<Needs{}, 2>(
      c, out[0], [](const auto& rows, auto* to, int64_t n) __attribute__((always_inline)) {
        const auto *g = rows[0], *y = rows[1];
        RowSums<std::remove_reference_t<decltype(*to)>> sums;
        sums.run(
            n, [g](auto& a, auto&, int64_t i)
                   __attribute__((always_inline)) { a += at<std::remove_reference_t<decltype(a)>>(g, i); });
        TROUPE_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) to[i] = g[i] - decay(y[i]) * sums.first;
      },
      [](const auto& gy, auto) __attribute__((always_inline)) { return gy[0]; },
      [](double sum) __attribute__((always_inline)) { return sum; },
      [](const auto& gy, auto, auto, auto sum)
          __attribute__((always_inline)) { return gy[0] - decay(gy[1]) * sum; });
}

}  // namespace

KernelTable softmax_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"softmax", softmax},
      {"log_softmax", log_softmax},
      {"softmax_grad", softmax_grad},
      {"log_softmax_grad", log_softmax_grad},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
