// Kernels of cross_entropy: the loss of a row in one reading of its scores, the gradient in another. No
// probabilities are kept in between.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "ops/cpu/loops/loops.h"
#include "ops/cpu/loops/math.h"
#include "ops/cpu/loops/rows.h"
#include "ops/dispatch/check.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

// Scores [rows, classes] and what else the rows need. Classes that are not the last dimension are moved
// there.
struct Problem {
  Tensor scores, target;
  Shape moved, moved_strides;  // the geometry of the scores with the classes last
  int64_t rows = 1, classes = 1, ignored, counted = 0;
  double smoothing;

  Problem(const Call& c, const Tensor& x, const Tensor& t)
      : target(t.contiguous_data()),
        ignored(c.attrs.integer("ignore_index")),
        smoothing(c.attrs.number("label_smoothing")) {
    const int dim = x.dim() > 1 ? 1 : 0;
    moved = last(x.shape(), dim);
    scores = x.alias(moved, last(x.strides(), dim), x.storage_offset()).contiguous_data();
    moved_strides = last(x.shape().contiguous_strides(), dim);
    classes = moved.back();
    rows = target.numel();
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t k = target.data<int64_t>()[i];
      if (k == ignored) continue;
      if (k < 0 || k >= classes)
        reject(c, fmt::format("target {} is out of range for {} classes", k, classes));
      ++counted;
    }
  }

  static Shape last(Shape s, int dim) {
    const int64_t size = s[dim];
    s.erase(dim);
    s.push_back(size);
    return s;
  }
};

// Sum of exp(x - top), with the exponentials in `to` if there is one.
template <class T>
[[gnu::always_inline]] inline T exponentials(const T* x, int64_t n, T top, T* to) {
  constexpr int64_t kPart = 1024;
  T part[kPart], total = 0;
  for (int64_t first = 0; first < n; first += kPart) {
    const int64_t count = std::min(kPart, n - first);
    T* e = to ? to + first : part;
    TROUPE_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) e[i] = decay(x[first + i] - top);
    RowSums<T> sums;
    sums.run(
        count, [e](auto& a, auto&, int64_t i)
                   __attribute__((always_inline)) { a += at<std::remove_reference_t<decltype(a)>>(e, i); });
    total += sums.first;
  }
  return total;
}

// f(begin, end) for pieces of the rows, inside vectorized().
template <class F>
void for_pieces(int64_t rows, int64_t n, F f) {
  const int64_t piece = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, n));
  parallel_for((rows + piece - 1) / piece, static_cast<double>(piece * n), [=](int64_t p) {
    vectorized([=]() __attribute__((always_inline)) { f(p * piece, std::min(rows, (p + 1) * piece)); });
  });
}

// Losses of all rows, 0 where ignored.
template <class T>
void losses(const Problem& p, T* to) {
  const T* scores = p.scores.data<T>();
  const int64_t *target = p.target.data<int64_t>(), n = p.classes, rows = p.rows, ignored = p.ignored;
  const T picked = static_cast<T>(1 - p.smoothing), all = static_cast<T>(p.smoothing);
  for_pieces(
      rows, n, [=](int64_t begin, int64_t end) __attribute__((always_inline)) {
        for (int64_t r = begin; r < end; ++r) {
          to[r] = 0;
          if (target[r] == ignored) continue;
          const T *x = scores + r * n, top = largest(x, n);
          const T log_total = std::log(exponentials<T>(x, n, top, nullptr));
          to[r] = picked * (log_total - (x[target[r]] - top));
          if (all == 0) continue;
          RowSums<T> sums;
          sums.run(
              n, [ x, top ](auto& a, auto&, int64_t i) __attribute__((always_inline)) {
                a += at<std::remove_reference_t<decltype(a)>>(x, i) - top;
              });
          to[r] += all * (log_total - sums.first / static_cast<T>(n));
        }
      });
}

template <class T>
void gradients(const Problem& p, const T* weights, bool each, T* to) {
  const T* scores = p.scores.data<T>();
  const int64_t *target = p.target.data<int64_t>(), n = p.classes, rows = p.rows, ignored = p.ignored;
  const T picked = static_cast<T>(1 - p.smoothing),
          all = static_cast<T>(p.smoothing / static_cast<double>(n));
  for_pieces(
      rows, n, [=](int64_t begin, int64_t end) __attribute__((always_inline)) {
        for (int64_t r = begin; r < end; ++r) {
          T* d = to + r * n;
          if (target[r] == ignored) {
            for (int64_t i = 0; i < n; ++i) d[i] = 0;
            continue;
          }
          const T *x = scores + r * n, weight = weights[each ? r : 0];
          const T scale = weight / exponentials<T>(x, n, largest(x, n), d), rest = all * weight;
          for (int64_t i = 0; i < n; ++i) d[i] = d[i] * scale - rest;
          d[target[r]] -= picked * weight;
        }
      });
}

void cross_entropy(const Call& c, Tensors& out) {
  const Problem p(c, c.in[0], c.in[1]);
  const std::string& reduction = c.attrs.text("reduction");
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (reduction == "none") return losses(p, out[0].data<T>());
    const Tensor each = empty({p.rows}, out[0].dtype());
    losses(p, each.data<T>());
    double total = 0;
    for (int64_t r = 0; r < p.rows; ++r) total += static_cast<double>(each.data<T>()[r]);
    *out[0].data<T>() = static_cast<T>(reduction == "mean" ? total / static_cast<double>(p.counted) : total);
  });
}

void cross_entropy_grad(const Call& c, Tensors& out) {
  const Problem p(c, c.in[1], c.in[2]);
  const std::string& reduction = c.attrs.text("reduction");
  const bool in_place =
      out[0].is_contiguous() && p.moved == out[0].shape() && p.moved_strides == out[0].strides();
  const Tensor rows = in_place ? out[0] : empty(p.moved, out[0].dtype());
  const Tensor g = c.in[0].contiguous_data();
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (reduction == "none") return gradients(p, g.data<T>(), true, rows.data<T>());
    T weight = *g.data<T>();
    if (reduction == "mean")
      weight = static_cast<T>(static_cast<double>(weight) / static_cast<double>(p.counted));
    gradients(p, &weight, false, rows.data<T>());
  });
  if (!in_place) copy_elements(out[0].alias(p.moved, p.moved_strides, out[0].storage_offset()), rows);
}

}  // namespace

KernelTable cross_entropy_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"cross_entropy", cross_entropy},
      {"cross_entropy_grad", cross_entropy_grad},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
