// Kernels of ops/reduce.h and ops/min_max.h.
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

template <class T>
struct IntegerSum {
  __device__ uint64_t start() const { return 0; }
  __device__ uint64_t fold(uint64_t a, T v) const { return a + static_cast<uint64_t>(v); }
  __device__ uint64_t merge(uint64_t a, uint64_t b) const { return a + b; }
  __device__ int64_t finish(uint64_t a) const { return static_cast<int64_t>(a); }
};
template <class T, class A>
struct Product {
  __device__ A start() const { return 1; }
  __device__ A fold(A a, T v) const { return a * static_cast<A>(v); }
  __device__ A merge(A a, A b) const { return a * b; }
  __device__ T finish(A a) const { return static_cast<T>(a); }
};
// The better one, or a NaN. T: what is stored; A: what is compared.
template <class T, class A, bool larger>
struct Extremum {
  A first;
  __device__ A start() const { return first; }
  __device__ A fold(A a, T v) const { return merge(a, static_cast<A>(v)); }
  __device__ A merge(A a, A v) const {
    const A best = (larger ? v > a : v < a) ? v : a;
    return v != v ? v : best;
  }
  __device__ T finish(A a) const { return static_cast<T>(a); }
};
template <class T>
struct Norm {
  __device__ double start() const { return 0; }
  __device__ double fold(double a, T v) const { return a + convert<double>(v) * convert<double>(v); }
  __device__ double merge(double a, double b) const { return a + b; }
  __device__ T finish(double a) const { return from_double<T>(std::sqrt(a)); }
};

template <class A, class T, class R, class Op>
void reduce_rows(const Call& c, const Rows& r, const Tensor& out, const Op& op) {
  reduce<A>(c.name(), out.device(), r.lines, elements<const T>(r.x), elements<R>(out), op);
}

void floating_sum(const Call& c, const Rows& r, const Tensor& out, double divisor) {
  visit_stored(c.in[0].dtype(), [&](auto stored, auto) {
    using T = decltype(stored);
    reduce_rows<double, T, T>(c, r, out, Sum<T, T>{divisor});
  });
}
void sum(const Call& c, Tensors& out) {
  const Rows r = rows_of(c);
  if (c.in[0].dtype() == int64)
    return reduce_rows<uint64_t, int64_t, int64_t>(c, r, out[0], IntegerSum<int64_t>{});
  if (c.in[0].dtype() == boolean)
    return reduce_rows<uint64_t, bool, int64_t>(c, r, out[0], IntegerSum<bool>{});
  floating_sum(c, r, out[0], 1);
}
void mean(const Call& c, Tensors& out) {
  const Rows r = rows_of(c);
  floating_sum(c, r, out[0], static_cast<double>(r.lines.n));
}
void prod(const Call& c, Tensors& out) {
  const Rows r = rows_of(c);
  if (c.in[0].dtype() == int64)  // integers wrap around
    return reduce_rows<uint64_t, int64_t, int64_t>(c, r, out[0], Product<int64_t, uint64_t>{});
  visit_stored(c.in[0].dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    reduce_rows<A, T, T>(c, r, out[0], Product<T, A>{});
  });
}
template <bool larger>
void extremum(const Call& c, Tensors& out) {
  const auto run = [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    using Limits = std::numeric_limits<A>;
    const A top = Limits::has_infinity ? Limits::infinity() : Limits::max(),
            bottom = Limits::has_infinity ? -Limits::infinity() : Limits::min();
    reduce_rows<A, T, T>(c, rows_of(c), out[0], Extremum<T, A, larger>{larger ? bottom : top});
  };
  c.in[0].dtype() == int64 ? run(int64_t{}, int64_t{}) : visit_stored(c.in[0].dtype(), run);
}

// Squares of numbers below 1e-154 or above 1e154 do not fit float64: those are divided by the largest first.
struct RescueNorm {
  double* norm;
  const double* x;
  int64_t n;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, norm, x);
  }
  __device__ void operator()(int64_t) const {
    const double first = *norm;
    if ((first >= 1e-140 && first <= 1e150) || first != first) return;
    double top = 0, sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) top = std::fmax(top, std::fabs(x[i]));
    top = block_largest(top);
    if (!(top > 0) || std::isinf(top)) return;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += x[i] / top * (x[i] / top);
    sum = block_sum(sum);
    if (threadIdx.x == 0) *norm = top * std::sqrt(sum);
  }
};
void norm(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  const Rows all{x, {1, x.numel(), 1}};
  visit_stored(x.dtype(), [&](auto stored, auto) {
    using T = decltype(stored);
    reduce_rows<double, T, T>(c, all, out[0], Norm<T>{});
  });
  if (x.dtype() == float64)
    for_each_row(c.name(), x.device(), 1, x.numel(),
                 RescueNorm{elements<double>(out[0]), elements<const double>(x), x.numel()});
}

template <class T, bool root>
struct Spread {
  T* out;
  const T* x;
  Lines lines;
  double divisor;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x);
  }
  __device__ void operator()(int64_t row) const {
    const T* line = x + lines.begin(row);
    double sum = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < lines.n; i += blockDim.x) sum += convert<double>(line[i * lines.inner]);
    const double mean = block_sum(sum) / static_cast<double>(lines.n);
    for (int64_t i = threadIdx.x; i < lines.n; i += blockDim.x) {
      const double d = convert<double>(line[i * lines.inner]) - mean;
      squares += d * d;
    }
    squares = block_sum(squares);
    if (threadIdx.x == 0) out[row] = from_double<T>(root ? std::sqrt(squares / divisor) : squares / divisor);
  }
};
template <bool root>
void spread(const Call& c, Tensors& out) {
  const Rows r = rows_of(c);
  const double n = static_cast<double>(r.lines.n);
  visit_stored(c.in[0].dtype(), [&](auto stored, auto) {
    using T = decltype(stored);
    for_each_row(c.name(), r.x.device(), r.lines.rows(), r.lines.n,
                 Spread<T, root>{elements<T>(out[0]), elements<const T>(r.x), r.lines,
                                 std::max(0.0, c.attrs.flag("unbiased") ? n - 1 : n)});
  });
}

// The result of halves is float32.
template <class T, class A>
struct LogSumExp {
  A* out;
  const T* x;
  Lines lines;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x);
  }
  __device__ void operator()(int64_t row) const {
    const T* line = x + lines.begin(row);
    const Extremum<T, A, true> larger{-std::numeric_limits<A>::infinity()};
    A top = larger.start();
    for (int64_t i = threadIdx.x; i < lines.n; i += blockDim.x) top = larger.fold(top, line[i * lines.inner]);
    top = block_merge(top, larger);
    if (std::isinf(top)) {  // all -inf, or a +inf: top - top would be NaN
      if (threadIdx.x == 0) out[row] = top;
      return;
    }
    double total = 0;
    for (int64_t i = threadIdx.x; i < lines.n; i += blockDim.x)
      total += static_cast<double>(std::exp(static_cast<A>(line[i * lines.inner]) - top));
    total = block_sum(total);
    if (threadIdx.x == 0) out[row] = static_cast<A>(static_cast<double>(top) + std::log(total));
  }
};
void logsumexp(const Call& c, Tensors& out) {
  const Rows r = rows_of(c);
  visit_stored(c.in[0].dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    for_each_row(c.name(), r.x.device(), r.lines.rows(), r.lines.n,
                 LogSumExp<T, A>{elements<A>(out[0]), elements<const T>(r.x), r.lines});
  });
}

// ---- the first best element of each line, or its first NaN, and where it is

template <class T>
struct Best {
  T value;
  int64_t at;  // -1: none yet
};
template <class T, bool larger>
struct BestPlace {
  T* values;
  int64_t* places;
  const T* x;
  Lines lines;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, values, places, x);
  }
  __device__ Best<T> merge(Best<T> a, Best<T> b) const {
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    const bool odd_a = a.value != a.value, odd_b = b.value != b.value;
    if (odd_a || odd_b) return odd_a && (!odd_b || a.at < b.at) ? a : b;
    if (a.value == b.value) return a.at < b.at ? a : b;
    return (larger ? a.value > b.value : a.value < b.value) ? a : b;
  }
  __device__ void operator()(int64_t row) const {
    const T* line = x + lines.begin(row);
    Best<T> best{T{}, -1};
    for (int64_t i = threadIdx.x; i < lines.n; i += blockDim.x)
      best = merge(best, {line[i * lines.inner], i});
    best = block_merge(best, *this);
    if (threadIdx.x) return;
    if (values) values[row] = best.value;
    if (places) places[row] = best.at;
  }
};
template <bool larger>
void best_of(const Call& c, const Tensor& values, const Tensor& places, bool of_all) {
  const Tensor x = c.in[0].contiguous_data();
  const Lines lines = of_all ? Lines{1, x.numel(), 1} : lines_along(c, x.shape());
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row(
        c.name(), x.device(), lines.rows(), lines.n,
        BestPlace<T, larger>{elements<T>(values), elements<int64_t>(places), elements<const T>(x), lines});
  });
}
template <bool larger>
void best_place(const Call& c, Tensors& out) {
  best_of<larger>(c, {}, out[0], false);
}
template <bool larger>
void best_along(const Call& c, Tensors& out) {
  best_of<larger>(c, out[0], out[1], false);
}
template <bool larger>
void best_of_all(const Call& c, Tensors& out) {
  best_of<larger>(c, out[0], {}, true);
}

}  // namespace

KernelTable reduce_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"sum", sum, nullptr, true},
      {"mean", mean, nullptr, true},
      {"prod", prod, nullptr, true},
      {"amax", extremum<true>, nullptr, true},
      {"amin", extremum<false>, nullptr, true},
      {"norm", norm, nullptr, true},
      {"var", spread<false>, nullptr, true},
      {"std", spread<true>, nullptr, true},
      {"logsumexp", logsumexp, nullptr, true},
      {"argmax", best_place<true>},
      {"argmin", best_place<false>},
      {"max", best_of_all<true>},
      {"min", best_of_all<false>},
      {"max_along", best_along<true>},
      {"min_along", best_along<false>},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
