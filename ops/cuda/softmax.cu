// Kernels of ops/softmax.h: a block of threads for each line along the dimension.
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

template <class T, bool log>
struct Softmax {
  T* out;
  const T* x;
  Lines lines;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x);
  }
  __device__ void operator()(int64_t row) const {
    const int64_t begin = lines.begin(row), step = lines.inner, width = blockDim.x;
    const T* in = x + begin;
    T* to = out + begin;
    T top = -std::numeric_limits<T>::infinity(), sum = 0;
    for (int64_t i = threadIdx.x; i < lines.n; i += width) top = in[i * step] > top ? in[i * step] : top;
    top = block_largest(top);
    for (int64_t i = threadIdx.x; i < lines.n; i += width) {
      const T e = std::exp(in[i * step] - top);
      if constexpr (!log) to[i * step] = e;
      sum += e;
    }
    sum = block_sum(sum);
    const T scale = 1 / sum, log_total = std::log(sum);
    for (int64_t i = threadIdx.x; i < lines.n; i += width) {
      if constexpr (log)
        to[i * step] = (in[i * step] - top) - log_total;
      else
        to[i * step] *= scale;
    }
  }
};

template <class T, bool log>
struct SoftmaxGrad {
  T* out;
  const T *g, *y;
  Lines lines;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, g, y);
  }
  __device__ void operator()(int64_t row) const {
    const int64_t begin = lines.begin(row), step = lines.inner, width = blockDim.x;
    T sum = 0;
    for (int64_t i = threadIdx.x; i < lines.n; i += width) {
      const int64_t at = begin + i * step;
      sum += log ? g[at] : g[at] * y[at];
    }
    sum = block_sum(sum);
    for (int64_t i = threadIdx.x; i < lines.n; i += width) {
      const int64_t at = begin + i * step;
      out[at] = log ? g[at] - std::exp(y[at]) * sum : y[at] * (g[at] - sum);
    }
  }
};

template <bool log>
void softmax(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  if (x.numel() == 0) return;
  const Lines lines = lines_along(c, x.shape());
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row(c.name(), x.device(), lines.rows(), lines.n,
                 Softmax<T, log>{elements<T>(out[0]), elements<const T>(x), lines});
  });
}
template <bool log>
void softmax_grad(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), y = c.in[1].contiguous_data();
  if (g.numel() == 0) return;
  const Lines lines = lines_along(c, g.shape());
  visit_floating(g.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row(c.name(), g.device(), lines.rows(), lines.n,
                 SoftmaxGrad<T, log>{elements<T>(out[0]), elements<const T>(g), elements<const T>(y), lines});
  });
}

}  // namespace

KernelTable softmax_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"softmax", softmax<false>},
      {"log_softmax", softmax<true>},
      {"softmax_grad", softmax_grad<false>},
      {"log_softmax_grad", softmax_grad<true>},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
