// Kernels of ops/reduce.h. The order of summation is fixed: 32 running sums over a row, then those in halves.
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "ops/cpu/loops/loops.h"
#include "ops/cpu/loops/math.h"
#include "ops/cpu/loops/rows.h"
#include "ops/dispatch/check.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

constexpr int kLanes = 32;

// x as contiguous [outer, n, inner], to be reduced over n.
struct Rows {
  Tensor x;
  int64_t outer = 1, n = 1, inner = 1;
};

// Neighbouring reduced dimensions are taken as they lie; otherwise (or if `last`) they are moved to the end
// by a copy.
Rows rows_of(const Tensor& x, const std::array<bool, kMaxDims>& reduced, bool last = false) {
  Rows r{x};
  int stage = 0;  // 0 before, 1 in, 2 after the reduced dimensions
  bool adjacent = x.is_contiguous();
  for (int i = 0; i < x.dim(); ++i) {
    if (reduced[i]) {
      adjacent &= stage < 2;
      stage = 1;
      r.n *= x.shape()[i];
    } else {
      stage = stage ? 2 : 0;
      (stage ? r.inner : r.outer) *= x.shape()[i];
    }
  }
  if (adjacent && !(last && r.inner > 1)) return r;
  Shape shape, strides;
  for (const bool wanted : {false, true})
    for (int i = 0; i < x.dim(); ++i)
      if (reduced[i] == wanted) {
        shape.push_back(x.shape()[i]);
        strides.push_back(x.strides()[i]);
      }
  r.x = x.alias(shape, strides, x.storage_offset()).contiguous_data();
  r.outer *= r.inner;
  r.inner = 1;
  return r;
}

Rows rows_of(const Call& c, bool last = false) {
  return rows_of(c.in[0], dim_flags(c, c.in[0].shape(), c.attrs.ints("dim")), last);
}

// One row: running values, joined in halves. For vectorized().
template <int kRunning = kLanes, class A, class T, class Fold, class Merge>
[[gnu::always_inline]] inline A fold_row(const T* row, int64_t n, A start, const Fold& fold,
                                         const Merge& merge) {
  Running<A, kRunning> values(start);
  values.take(row, n, fold);
  return values.merged(merge);
}

template <int kRunning = kLanes, class A, class T, class Fold, class Merge>
A reduce_row(const T* row, int64_t n, A start, Fold fold, Merge merge) {
  A all;
  vectorized([&all, row, n, start, fold, merge ]()
                 __attribute__((always_inline)) { all = fold_row<kRunning>(row, n, start, fold, merge); });
  return all;
}

// f(row) of each row of r, reduced over its last dimension, to `out`; on several threads if they are many.
template <class T, class F>
void each_row(const Rows& r, const Tensor& out, double element_ns, const F& f) {
  const T* x = r.x.data<T>();
  T* to = out.data<T>();
  const int64_t rows = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, r.n));
  parallel_for((r.outer + rows - 1) / rows, static_cast<double>(rows * r.n) * element_ns, [&](int64_t block) {
    for (int64_t o = block * rows; o < std::min(r.outer, (block + 1) * rows); ++o) to[o] = f(x + o * r.n);
  });
}

// fold(state, element) goes along n; `merge` joins states; `finish` makes the result. Long rows are cut in
// pieces of kGrain, many rows in blocks of about that size.
template <class T, class A, class R, int kRunning = kLanes, class Fold, class Merge, class Finish>
void reduce(const Rows& r, const Tensor& out, A start, Fold fold, Merge merge, Finish finish) {
  const T* x = r.x.data<T>();
  R* to = out.data<R>();
  const int64_t n = r.n, inner = r.inner;
  constexpr double kElementNs = 0.3;
  if (out.numel() == 0) return;
  if (inner == 1 && n > 2 * kGrain) {
    const int64_t pieces = (n + kGrain - 1) / kGrain;
    std::vector<A> parts(static_cast<size_t>(pieces));
    for (int64_t o = 0; o < r.outer; ++o) {
      parallel_for(pieces, kGrain * kElementNs, [&](int64_t i) {
        const int64_t from = i * kGrain;
        parts[static_cast<size_t>(i)] =
            reduce_row<kRunning>(x + o * n + from, std::min(kGrain, n - from), start, fold, merge);
      });
      A all = parts[0];
      for (size_t i = 1; i < parts.size(); ++i) all = merge(all, parts[i]);
      to[o] = finish(all);
    }
    return;
  }
  if (inner == 1) {
    const int64_t rows = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, n));
    parallel_for((r.outer + rows - 1) / rows, static_cast<double>(rows * n) * kElementNs, [&](int64_t block) {
      const int64_t end = std::min(r.outer, (block + 1) * rows);
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t o = block * rows; o < end; ++o)
          to[o] = finish(fold_row<kRunning>(x + o * n, n, start, fold, merge));
      });
    });
    return;
  }
  // Pieces of whole columns, wide enough that each row's part is read as a stream.
  const int64_t width = std::min(inner, std::max<int64_t>(256, kGrain / std::max<int64_t>(1, n)));
  const int64_t per_row = (inner + width - 1) / width;
  parallel_for(r.outer * per_row, static_cast<double>(width * n) * kElementNs, [&](int64_t piece) {
    const int64_t o = piece / per_row, from = piece % per_row * width, count = std::min(width, inner - from);
    std::vector<A> sums(static_cast<size_t>(count), start);
    A* s = sums.data();
    const T* base = x + o * n * inner + from;
    vectorized([=]() __attribute__((always_inline)) {
      int64_t i = 0;
      for (; i + 4 <= n; i += 4) {  // so that what is summed up is read and written less often
        const T* row = base + i * inner;
        TROUPE_INDEPENDENT
        for (int64_t j = 0; j < count; ++j)
          s[j] = fold(fold(fold(fold(s[j], row[j]), row[inner + j]), row[2 * inner + j]), row[3 * inner + j]);
      }
      for (; i < n; ++i) {
        TROUPE_INDEPENDENT
        for (int64_t j = 0; j < count; ++j) s[j] = fold(s[j], base[i * inner + j]);
      }
    });
    for (int64_t j = 0; j < count; ++j) to[o * inner + from + j] = finish(sums[static_cast<size_t>(j)]);
  });
}

// float32 is summed in double: accurate whatever the length, and the loop waits for memory anyway.
template <class T, class Finish>
void sum_floating(const Rows& r, const Tensor& out, Finish finish) {
  reduce<T, double, T>(
      r, out, 0.0, [](double a, T v) { return a + static_cast<double>(v); },
      [](double a, double b) { return a + b; }, finish);
}

template <class T>
void sum_integers(const Rows& r, const Tensor& out) {
  reduce<T, uint64_t, int64_t>(
      r, out, uint64_t{0}, [](uint64_t a, T v) { return a + static_cast<uint64_t>(v); },
      [](uint64_t a, uint64_t b) { return a + b; }, [](uint64_t a) { return static_cast<int64_t>(a); });
}

// The better one, or a NaN: two selections and no `||`, so no branch.
template <class T, class F>
auto picking(F better) {
  return [better](T a, T v) __attribute__((always_inline)) {
    const T best = better(v, a) ? v : a;
    return v != v ? v : best;
  };
}

// start: below or above all.
template <class F>
void extremum(const Call& c, Tensors& out, double start, F better) {
  visit_numeric(c.in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    T first{};
    if constexpr (!std::is_integral_v<T>)
      first = static_cast<T>(start);
    else
      first = start < 0 ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
    reduce<T, T, T, 2 * kLanes>(rows_of(c), out[0], first, picking<T>(better), picking<T>(better),
                                [](T a) { return a; });
  });
}

// The first NaN, if there is one.
template <class F>
void best_places(const Call& c, Tensors& out, F better) {
  std::array<bool, kMaxDims> reduced{};
  reduced[c.in[0].shape().axis(c.attrs.integer("dim"), c.name())] = true;
  const Rows r = rows_of(c.in[0], reduced, true);
  visit_dtype(c.in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t o = 0; o < r.outer; ++o) {
      const T* row = r.x.data<T>() + o * r.n;
      int64_t best = 0;
      for (int64_t i = 1; i < r.n && row[best] == row[best]; ++i)
        if (better(row[i], row[best]) || row[i] != row[i]) best = i;
      out[0].data<int64_t>()[o] = best;
    }
  });
}

// Several rows at a time: each waits for its own additions.
template <class A, class T>
void sums_along_rows(const T* x, T* to, int64_t rows, int64_t n) {
  constexpr int64_t kRows = 8;
  int64_t o = 0;
  for (; o + kRows <= rows; o += kRows, x += kRows * n, to += kRows * n) {
    A sums[kRows] = {};
    for (int64_t i = 0; i < n; ++i) {
      TROUPE_UNROLL(8)
      for (int64_t k = 0; k < kRows; ++k)
        to[k * n + i] = static_cast<T>(sums[k] += static_cast<A>(x[k * n + i]));
    }
  }
  for (; o < rows; ++o, x += n, to += n) {
    A sum = 0;
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(sum += static_cast<A>(x[i]));
  }
}

constexpr double kInf = std::numeric_limits<double>::infinity();

template <bool kRoot>
void spread(const Call& c, Tensors& out) {
  const Rows r = rows_of(c, true);
  const double n = static_cast<double>(r.n);
  const double divisor = std::max(0.0, c.attrs.flag("unbiased") ? n - 1 : n);
  visit_floating(c.in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_row<T>(r, out[0], 0.3, [size = r.n, n, divisor](const T* row) {
      const auto plus = [](double a, double b) { return a + b; };
      const double mean =
          reduce_row(
              row, size, 0.0, [](double a, T v) { return a + static_cast<double>(v); }, plus) /
          n;
      const double squares = reduce_row(
          row, size, 0.0,
          [mean](double a, T v) {
            const double d = static_cast<double>(v) - mean;
            return a + d * d;
          },
          plus);
      return static_cast<T>(kRoot ? std::sqrt(squares / divisor) : squares / divisor);
    });
  });
}

// Squares of numbers below 1e-154 or above 1e154 do not fit float64: those are divided by the largest first.
void rescue_norm(const Tensor& x, double& norm) {
  if ((norm >= 1e-140 && norm <= 1e150) || norm != norm) return;
  const double* p = x.data<double>();
  const int64_t n = x.numel();
  double largest = 0, sum = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(p[i]));
  if (!(largest > 0) || std::isinf(largest)) return;
  for (int64_t i = 0; i < n; ++i) sum += p[i] / largest * (p[i] / largest);
  norm = largest * std::sqrt(sum);
}

void sum(const Call& c, Tensors& out) {
  const Rows r = rows_of(c);
  switch (c.in[0].dtype()) {
    case DType::int64:
      return sum_integers<int64_t>(r, out[0]);
    case DType::boolean:
      return sum_integers<bool>(r, out[0]);
    default:
      break;
  }
  visit_floating(c.in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    sum_floating<T>(r, out[0], [](double a) { return static_cast<T>(a); });
  });
}

void prod(const Call& c, Tensors& out) {
  const Rows r = rows_of(c);
  visit_numeric(c.in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    using A = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;  // integers wrap around
    const auto times = [](A a, auto v) { return a * static_cast<A>(v); };
    reduce<T, A, T>(r, out[0], A{1}, times, times, [](A a) { return static_cast<T>(a); });
  });
}

void mean(const Call& c, Tensors& out) {
  const Rows r = rows_of(c);
  const double n = static_cast<double>(r.n);
  visit_floating(c.in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    sum_floating<T>(r, out[0], [n](double a) { return static_cast<T>(a / n); });
  });
}

void amax(const Call& c, Tensors& out) {
  extremum(c, out, -kInf, [](auto v, auto a) { return v > a; });
}
void amin(const Call& c, Tensors& out) {
  extremum(c, out, kInf, [](auto v, auto a) { return v < a; });
}

void logsumexp(const Call& c, Tensors& out) {
  const Rows r = rows_of(c, true);
  visit_floating(c.in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto larger = picking<T>([](T v, T a) { return v > a; });
    each_row<T>(r, out[0], 0.8, [n = r.n, larger](const T* row) {
      const T top = reduce_row<2 * kLanes>(row, n, -std::numeric_limits<T>::infinity(), larger, larger);
      if (std::isinf(top)) return top;  // all -inf, or a +inf: top - top would be NaN
      double total = 0;
      vectorized([&total, row, n, top ]() __attribute__((always_inline)) {
        constexpr int64_t kPart = 1024;
        T part[kPart];
        Running<double, kLanes> sums(0);
        for (int64_t first = 0; first < n; first += kPart) {
          const int64_t count = std::min(kPart, n - first);
          TROUPE_INDEPENDENT
          for (int64_t i = 0; i < count; ++i) part[i] = decay(row[first + i] - top);
          sums.take(part, count, [](double a, T v) { return a + static_cast<double>(v); });
        }
        total = sums.merged(std::plus<double>());
      });
      return static_cast<T>(static_cast<double>(top) + std::log(total));
    });
  });
}

void var(const Call& c, Tensors& out) { spread<false>(c, out); }
void stddev(const Call& c, Tensors& out) { spread<true>(c, out); }

void argmax(const Call& c, Tensors& out) {
  best_places(c, out, [](auto v, auto best) { return v > best; });
}
void argmin(const Call& c, Tensors& out) {
  best_places(c, out, [](auto v, auto best) { return v < best; });
}

void norm(const Call& c, Tensors& out) {
  std::array<bool, kMaxDims> all;
  all.fill(true);
  visit_floating(c.in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    reduce<T, double, T>(
        rows_of(c.in[0], all), out[0], 0.0,
        [](double a, T v) { return a + static_cast<double>(v) * static_cast<double>(v); },
        [](double a, double b) { return a + b; }, [](double a) { return static_cast<T>(std::sqrt(a)); });
  });
  if (out[0].dtype() == float64) rescue_norm(c.in[0].contiguous_data(), *out[0].data<double>());
}

void cumsum(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  const Around a = around(x.shape(), x.shape().axis(c.attrs.integer("dim"), c.name()));
  visit_numeric(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using A = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
    const T* in = x.data<T>();
    T* to = out[0].data<T>();
    if (a.inner == 1) return sums_along_rows<A>(in, to, a.outer, a.size);
    std::vector<A> sums(static_cast<size_t>(a.inner));
    for (int64_t o = 0; o < a.outer; ++o) {
      std::fill(sums.begin(), sums.end(), A{0});
      for (int64_t i = 0; i < a.size; ++i, in += a.inner, to += a.inner)
        vectorized([ in, to, n = a.inner, s = sums.data() ]() __attribute__((always_inline)) {
          TROUPE_INDEPENDENT
          for (int64_t j = 0; j < n; ++j) to[j] = static_cast<T>(s[j] += static_cast<A>(in[j]));
        });
    }
  });
}

}  // namespace

KernelTable reduce_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"sum", sum},       {"prod", prod},           {"mean", mean}, {"amax", amax},
      {"amin", amin},     {"logsumexp", logsumexp}, {"var", var},   {"std", stddev},
      {"argmax", argmax}, {"argmin", argmin},       {"norm", norm}, {"cumsum", cumsum},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
