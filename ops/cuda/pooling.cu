// Kernels of ops/pooling.h. A gradient is gathered: the thread of an element of the image goes through the
// windows that cover it, in their order.
#include "ops/cuda/elementwise.cuh"
#include "ops/dispatch/window.h"

namespace troupe::ops::on_cuda {
namespace {

struct Range {
  int64_t begin, end;
};

// Planes of images, and how the window goes over each. Two values: of the height and of the width.
struct Planes {
  int64_t kernel[2], stride[2], padding[2], in[2], out[2], count;

  Planes(const Call& c, const Tensor& image, const Tensor& pooled) {
    const Window w = pool_window(c);
    for (int i = 0; i < 2; ++i) {
      const auto d = static_cast<size_t>(i);
      kernel[i] = w.kernel[d], stride[i] = w.stride[d], padding[i] = w.padding[d];
      in[i] = image.shape()[2 + i], out[i] = pooled.shape()[2 + i];
    }
    count = image.shape()[0] * image.shape()[1];
  }
  int64_t all_in() const { return count * in[0] * in[1]; }
  int64_t all_out() const { return count * out[0] * out[1]; }
  // What of window number `at` lies inside the image.
  __device__ Range window(int d, int64_t at) const {
    const int64_t start = at * stride[d] - padding[d], end = start + kernel[d];
    return {start > 0 ? start : 0, end < in[d] ? end : in[d]};
  }
  // The windows that cover place `at`.
  __device__ Range covering(int d, int64_t at) const {
    const int64_t after = at + padding[d], first = after - kernel[d] + 1;
    const int64_t last = after / stride[d] + 1;
    return {first > 0 ? (first + stride[d] - 1) / stride[d] : 0, last < out[d] ? last : out[d]};
  }
  // Where in its plane the first largest element of a window is; the last NaN if there is one. A: what
  // elements are compared as.
  template <class A, class T>
  __device__ int64_t largest(const T* x, int64_t oy, int64_t ox) const {
    const Range rows = window(0, oy), columns = window(1, ox);
    int64_t at = rows.begin * in[1] + columns.begin;
    for (int64_t i = rows.begin; i < rows.end; ++i)
      for (int64_t j = columns.begin; j < columns.end; ++j) {
        const A v = static_cast<A>(x[i * in[1] + j]);
        if (v > static_cast<A>(x[at]) || v != v) at = i * in[1] + j;
      }
    return at;
  }
};

// out: values where x is largest in each window; of x itself, that is the maximum. T: what is stored; A: what
// is computed with.
template <class T, class A>
struct PickLargest {
  T* out;
  const T *values, *x;
  Planes p;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, values, x);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t ox = i % p.out[1], rest = i / p.out[1], plane = rest / p.out[0] * p.in[0] * p.in[1];
    out[i] = values[plane + p.template largest<A>(x + plane, rest % p.out[0], ox)];
  }
};
template <class T, class A>
struct MaxGrad {
  T* out;
  const T *g, *x;
  Planes p;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, g, x);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t size = p.in[0] * p.in[1], plane = i / size, at = i % size;
    const Range rows = p.covering(0, at / p.in[1]), columns = p.covering(1, at % p.in[1]);
    A sum = 0;
    for (int64_t oy = rows.begin; oy < rows.end; ++oy)
      for (int64_t ox = columns.begin; ox < columns.end; ++ox)
        if (p.template largest<A>(x + plane * size, oy, ox) == at)
          sum += static_cast<A>(g[(plane * p.out[0] + oy) * p.out[1] + ox]);
    out[i] = static_cast<T>(sum);
  }
};
template <class T, class A>
struct Average {
  T* out;
  const T* x;
  A scale;
  Planes p;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t ox = i % p.out[1], rest = i / p.out[1];
    const Range rows = p.window(0, rest % p.out[0]), columns = p.window(1, ox);
    const T* plane = x + rest / p.out[0] * p.in[0] * p.in[1];
    A total = 0;
    for (int64_t r = rows.begin; r < rows.end; ++r)
      for (int64_t q = columns.begin; q < columns.end; ++q) total += static_cast<A>(plane[r * p.in[1] + q]);
    out[i] = static_cast<T>(total * scale);
  }
};
template <class T, class A>
struct AverageGrad {
  T* out;
  const T* g;
  A scale;
  Planes p;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, g);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t size = p.in[0] * p.in[1], plane = i / size, at = i % size;
    const Range rows = p.covering(0, at / p.in[1]), columns = p.covering(1, at % p.in[1]);
    A sum = 0;
    for (int64_t oy = rows.begin; oy < rows.end; ++oy)
      for (int64_t ox = columns.begin; ox < columns.end; ++ox)
        sum += static_cast<A>(g[(plane * p.out[0] + oy) * p.out[1] + ox]) * scale;
    out[i] = static_cast<T>(sum);
  }
};

void pick(const Call& c, const Tensor& given, const Tensor& image, const Tensor& out) {
  const Tensor values = given.contiguous_data(), x = image.contiguous_data();
  const Planes p(c, x, out);
  visit_stored(x.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    for_each(c.name(), x.device(), p.all_out(),
             PickLargest<T, A>{elements<T>(out), elements<const T>(values), elements<const T>(x), p});
  });
}
void max_pool2d(const Call& c, Tensors& out) { pick(c, c.in[0], c.in[0], out[0]); }
void max_pool2d_pick(const Call& c, Tensors& out) { pick(c, c.in[0], c.in[1], out[0]); }
void max_pool2d_grad(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), x = c.in[1].contiguous_data();
  const Planes p(c, x, g);
  visit_stored(x.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    for_each(c.name(), x.device(), p.all_in(),
             MaxGrad<T, A>{elements<T>(out[0]), elements<const T>(g), elements<const T>(x), p});
  });
}
double share(const Planes& p) {
  return 1 / (static_cast<double>(p.kernel[0]) * static_cast<double>(p.kernel[1]));
}
void avg_pool2d(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  const Planes p(c, x, out[0]);
  visit_stored(x.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    for_each(c.name(), x.device(), p.all_out(),
             Average<T, A>{elements<T>(out[0]), elements<const T>(x), static_cast<A>(share(p)), p});
  });
}
void avg_pool2d_grad(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data();
  const Planes p(c, out[0], g);
  visit_stored(g.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    for_each(c.name(), g.device(), p.all_in(),
             AverageGrad<T, A>{elements<T>(out[0]), elements<const T>(g), static_cast<A>(share(p)), p});
  });
}

}  // namespace

KernelTable pooling_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"max_pool2d", max_pool2d, nullptr, true},
      {"max_pool2d_grad", max_pool2d_grad, nullptr, true},
      {"max_pool2d_pick", max_pool2d_pick, nullptr, true},
      {"avg_pool2d", avg_pool2d, nullptr, true},
      {"avg_pool2d_grad", avg_pool2d_grad, nullptr, true},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
