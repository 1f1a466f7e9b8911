// Kernels of ops/conv.h. Most are products on the matrix unit (conv_products.cu); with a window of one
// element and of float64 products of conv_columns.cu. Groups of a few channels, whose products would be tiny:
// directly, a thread for each element of a result or, for weights, which sum over all images, a block.
#include "core/tensor/elements.h"
#include "ops/cuda/conv.cuh"
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

// T: what is stored; A: what is computed with.
template <class T, class A>
struct Forward {
  T* y;
  const T *x, *weight, *bias;
  ConvSizes s;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, y, x, weight, bias);
  }
  __device__ void operator()(int64_t at) const {
    const int64_t ox = at % s.out[1], rest = at / s.out[1], oy = rest % s.out[0];
    const int64_t o = rest / s.out[0] % s.outputs, image = rest / s.out[0] / s.outputs;
    const int64_t first = o / s.group_outputs * s.group_channels;
    A sum = bias ? static_cast<A>(bias[o]) : A{0};
    for (int64_t c = 0; c < s.group_channels; ++c)
      for (int64_t i = 0; i < s.kernel[0]; ++i) {
        const int64_t py = s.reach(0, oy, i);
        if (py < 0 || py >= s.in[0]) continue;
        for (int64_t j = 0; j < s.kernel[1]; ++j) {
          const int64_t px = s.reach(1, ox, j);
          if (px < 0 || px >= s.in[1]) continue;
          sum += static_cast<A>(weight[s.weight_place(o, c, i, j)]) *
                 static_cast<A>(x[s.in_place(image, first + c, py, px)]);
        }
      }
    y[at] = static_cast<T>(sum);
  }
};

template <class T, class A>
struct InputGrad {
  T* dx;
  const T *g, *weight;
  ConvSizes s;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, dx, g, weight);
  }
  __device__ void operator()(int64_t at) const {
    const int64_t px = at % s.in[1], rest = at / s.in[1], py = rest % s.in[0];
    const int64_t channel = rest / s.in[0] % s.channels, image = rest / s.in[0] / s.channels;
    const int64_t c = channel % s.group_channels, first = channel / s.group_channels * s.group_outputs;
    A sum = 0;
    for (int64_t i = 0; i < s.kernel[0]; ++i) {
      const int64_t oy = s.from(0, py, i);
      if (oy < 0) continue;
      for (int64_t j = 0; j < s.kernel[1]; ++j) {
        const int64_t ox = s.from(1, px, j);
        if (ox < 0) continue;
        for (int64_t o = first; o < first + s.group_outputs; ++o)
          sum += static_cast<A>(weight[s.weight_place(o, c, i, j)]) *
                 static_cast<A>(g[s.out_place(image, o, oy, ox)]);
      }
    }
    dx[at] = static_cast<T>(sum);
  }
};

template <class T, class A>
struct WeightGrad {
  T* dw;
  const T *g, *x;
  ConvSizes s;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, dw, g, x);
  }
  __device__ void operator()(int64_t at) const {
    const int64_t j = at % s.kernel[1], rest = at / s.kernel[1], i = rest % s.kernel[0];
    const int64_t c = rest / s.kernel[0] % s.group_channels, o = rest / s.kernel[0] / s.group_channels;
    const int64_t channel = o / s.group_outputs * s.group_channels + c;
    const int64_t plane = s.out[0] * s.out[1];
    A sum = 0;
    for (int64_t k = threadIdx.x; k < s.n * plane; k += blockDim.x) {
      const int64_t image = k / plane, oy = k % plane / s.out[1], ox = k % s.out[1];
      const int64_t py = s.reach(0, oy, i), px = s.reach(1, ox, j);
      if (py >= 0 && py < s.in[0] && px >= 0 && px < s.in[1])
        sum += static_cast<A>(g[s.out_place(image, o, oy, ox)]) *
               static_cast<A>(x[s.in_place(image, channel, py, px)]);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) dw[at] = static_cast<T>(sum);
  }
};
template <class T, class A>
struct BiasGrad {
  T* db;
  const T* g;
  int64_t n, outputs, plane;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, db, g);
  }
  __device__ void operator()(int64_t o) const {
    A sum = 0;
    for (int64_t k = threadIdx.x; k < n * plane; k += blockDim.x)
      sum += static_cast<A>(g[(k / plane * outputs + o) * plane + k % plane]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) db[o] = static_cast<T>(sum);
  }
};

// Whether one product of all channels needs no columns to be made.
bool given_as_columns(const ConvSizes& s) { return s.one_group() && s.pointwise(); }

void conv2d(const Call& c, Tensors& out) {
  const ConvSizes s(conv2d_sizes(c));
  if (out[0].numel() == 0) return;
  const Tensor x = c.in[0].contiguous_data(), w = c.in[1].contiguous_data();
  const Tensor bias = c.in.size() == 3 ? c.in[2].contiguous_data() : Tensor();
  if (!given_as_columns(s) && multiplies_conv(s, x.dtype()))
    return conv_by_products(c.name(), s, x, w, bias, out[0]);
  if (s.one_group()) return conv_by_columns(c.name(), s, x, w, bias, out[0]);
  visit_stored(x.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    for_each(c.name(), x.device(), out[0].numel(),
             Forward<T, A>{elements<T>(out[0]), elements<const T>(x), elements<const T>(w),
                           elements<const T>(bias), s});
  });
}
void conv2d_input_grad(const Call& c, Tensors& out) {
  const ConvSizes s(conv2d_input_grad_sizes(c));
  if (out[0].numel() == 0) return;
  const Tensor g = c.in[0].contiguous_data(), w = c.in[1].contiguous_data();
  if (g.numel() == 0) return fill_elements(out[0], 0);
  if (!given_as_columns(s) && multiplies_conv(s, g.dtype()))
    return conv_input_grad_by_products(c.name(), s, g, w, out[0]);
  if (s.one_group()) return conv_input_grad_by_columns(c.name(), s, g, w, out[0]);
  visit_stored(g.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    for_each(c.name(), g.device(), out[0].numel(),
             InputGrad<T, A>{elements<T>(out[0]), elements<const T>(g), elements<const T>(w), s});
  });
}
void conv2d_weight_grad(const Call& c, Tensors& out) {
  const ConvSizes s(conv2d_weight_grad_sizes(c));
  const Tensor x = c.in[0].contiguous_data(), g = c.in[1].contiguous_data();
  const int64_t plane = s.out[0] * s.out[1];
  const bool multiplies = multiplies_conv(s, g.dtype());
  if (g.numel() == 0 || out[0].numel() == 0)
    fill_elements(out[0], 0);
  else if (multiplies)
    conv_weight_grad_by_products(c.name(), s, g, x, out[0]);
  else if (s.one_group())
    conv_weight_grad_by_columns(c.name(), s, g, x, out[0]);
  visit_stored(g.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    if (!multiplies && !s.one_group())
      for_each_row(c.name(), g.device(), out[0].numel(), s.n * plane,
                   WeightGrad<T, A>{elements<T>(out[0]), elements<const T>(g), elements<const T>(x), s});
    for_each_row(c.name(), g.device(), s.outputs, s.n * plane,
                 BiasGrad<T, A>{elements<T>(out[1]), elements<const T>(g), s.n, s.outputs, plane});
  });
}

}  // namespace

KernelTable conv_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"conv2d", conv2d, nullptr, true},
      {"conv2d_input_grad", conv2d_input_grad, nullptr, true},
      {"conv2d_weight_grad", conv2d_weight_grad, nullptr, true},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
