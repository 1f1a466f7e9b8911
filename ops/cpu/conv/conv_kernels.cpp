// Kernels of ops/conv.h: float32 by oneDNN, float64 as matrix products.
#include "ops/cpu/conv/conv_kernels.h"

#include <algorithm>

#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

bool empty(const Convolution& v) {
  return v.n == 0 || v.outputs == 0 || v.channels == 0 || v.in_plane() == 0;
}

template <class T>
void convolve(ConvKind kind, const Convolution& v, const ConvArrays<T>& a) {
  if constexpr (std::is_same_v<T, float>)
    if (conv_onednn(kind, v, a)) return;
  conv_columns(kind, v, a);
}

template <class T>
void clear(const Tensor& t) {
  std::fill_n(t.data<T>(), t.numel(), T{0});
}

void conv2d(const Call& c, Tensors& out) {
  const Convolution v = conv2d_sizes(c);
  const Tensor x = c.in[0].contiguous_data(), w = c.in[1].contiguous_data();
  const Tensor bias = c.in.size() == 3 ? c.in[2].contiguous_data() : Tensor();
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T *b = bias.defined() ? bias.data<T>() : nullptr, *y = out[0].data<T>();
    if (!empty(v)) return convolve<T>(ConvKind::forward, v, {x.data<T>(), w.data<T>(), b, y});
    clear<T>(out[0]);
    for (int64_t i = 0; b && i < v.n * v.outputs; ++i, y += v.out_plane())
      std::fill_n(y, v.out_plane(), b[i % v.outputs]);
  });
}

void conv2d_input_grad(const Call& c, Tensors& out) {
  const Convolution v = conv2d_input_grad_sizes(c);
  const Tensor g = c.in[0].contiguous_data(), w = c.in[1].contiguous_data();
  visit_floating(g.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (empty(v)) return clear<T>(out[0]);
    convolve<T>(ConvKind::input_grad, v, {out[0].data<T>(), w.data<T>(), nullptr, g.data<T>()});
  });
}

void conv2d_weight_grad(const Call& c, Tensors& out) {
  const Convolution v = conv2d_weight_grad_sizes(c);
  const Tensor x = c.in[0].contiguous_data(), g = c.in[1].contiguous_data();
  visit_floating(g.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T *bias = out[1].data<T>(), *from = g.data<T>();
    if (!empty(v)) return convolve<T>(ConvKind::weight_grad, v, {x.data<T>(), out[0].data<T>(), bias, from});
    clear<T>(out[0]);
    clear<T>(out[1]);
    for (int64_t i = 0; i < v.n * v.outputs; ++i)
      for (int64_t j = 0; j < v.out_plane(); ++j) bias[i % v.outputs] += *from++;
  });
}

}  // namespace

KernelTable conv_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"conv2d", conv2d},
      {"conv2d_input_grad", conv2d_input_grad},
      {"conv2d_weight_grad", conv2d_weight_grad},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
