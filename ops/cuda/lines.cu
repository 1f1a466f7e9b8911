// Kernels that go along lines: cumsum of ops/reduce.h, and ops/cumulative.h.
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "ops/cuda/scan.cuh"

namespace troupe::ops::on_cuda {
namespace {

// Integers wrap around; float32 is added and multiplied in double.
template <class T, bool product>
struct Cumulate {
  using A = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  T* out;
  const T* x;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x);
  }
  __device__ A zero() const { return product ? 1 : 0; }
  __device__ A value(int64_t at) const { return static_cast<A>(x[at]); }
  __device__ A join(A a, A b) const { return product ? a * b : a + b; }
  __device__ void write(int64_t at, A before, A own) const { out[at] = static_cast<T>(join(before, own)); }
};
// A thread for each line: where neighbouring threads have neighbouring lines, and for short ones.
template <class T, bool product>
struct CumulateLine {
  Cumulate<T, product> body;
  Lines lines;
  template <class F>
  void visit(F&& f) {
    body.visit(f);
  }
  __device__ void operator()(int64_t row) const {
    auto total = body.zero();
    int64_t at = lines.begin(row);
    for (int64_t i = 0; i < lines.n; ++i, at += lines.inner) {
      const auto own = body.value(at);
      body.write(at, total, own);
      total = body.join(total, own);
    }
  }
};
template <bool product>
void cumulate(const Call& c, Tensors& out) {
  Tensor x = c.in[0].contiguous_data();
  if (x.dtype() != out[0].dtype()) {
    const Tensor same = empty(x.shape(), {out[0].dtype(), x.device()});
    copy_elements(same, x);
    x = same;
  }
  const Lines lines = lines_along(c, x.shape());
  visit_numeric(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using Body = Cumulate<T, product>;
    const Body body{elements<T>(out[0]), elements<const T>(x)};
    if (lines.n <= 64 || (lines.inner > 1 && lines.rows() >= (1 << 14)))
      for_each(c.name(), x.device(), lines.rows(), CumulateLine<T, product>{body, lines});
    else
      scan_lines<typename Body::A>(c.name(), x.device(), lines, body);
  });
}

// Before the first zero of a line: the sum of what comes from here to there, through x itself; at it: what
// depends on it up to the next zero; behind it nothing.
template <class T>
struct CumprodGrad {
  T* out;
  const T *g, *x, *y;
  Lines lines;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, g, x, y);
  }
  __device__ void operator()(int64_t row) const {
    const int64_t first = lines.begin(row), step = lines.inner, n = lines.n;
    int64_t none = 0;  // the first zero
    while (none < n && x[first + none * step] != 0) ++none;
    double sum = 0;
    for (int64_t i = none - 1; i >= 0; --i) {
      const int64_t at = first + i * step;
      sum += static_cast<double>(y[at]) * static_cast<double>(g[at]);
      out[at] = static_cast<T>(sum / static_cast<double>(x[at]));
    }
    if (none == n) return;
    const int64_t zero = first + none * step;
    double through = static_cast<double>(g[zero]), behind = 1;
    for (int64_t i = none + 1; i < n && x[first + i * step] != 0; ++i) {
      behind *= static_cast<double>(x[first + i * step]);
      through += behind * static_cast<double>(g[first + i * step]);
    }
    out[zero] = static_cast<T>(through * (none ? static_cast<double>(y[zero - step]) : 1));
    for (int64_t i = none + 1; i < n; ++i) out[first + i * step] = T{0};
  }
};
void cumprod_grad(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), x = c.in[1].contiguous_data(), y = c.in[2].contiguous_data();
  const Lines lines = lines_along(c, x.shape());
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each(c.name(), x.device(), lines.rows(),
             CumprodGrad<T>{elements<T>(out[0]), elements<const T>(g), elements<const T>(x),
                            elements<const T>(y), lines});
  });
}

}  // namespace

KernelTable line_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"cumsum", cumulate<false>},
      {"cumprod", cumulate<true>},
      {"cumprod_grad", cumprod_grad},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
