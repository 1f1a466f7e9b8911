// Kernels of ops/conv.h: a thread for each element of a result, or for weights, which sum over all images, a
// block.
#include "ops/cuda/reduce.cuh"
#include "ops/dispatch/window.h"

namespace troupe::ops::on_cuda {
namespace {

// Two values: of the height and of the width.
struct Sizes {
  int64_t n, channels, outputs;  // of one group where it says so
  int64_t group_channels, group_outputs;
  int64_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];

  explicit Sizes(const Convolution& v)
      : n(v.n),
        channels(v.channels),
        outputs(v.outputs),
        group_channels(v.channels / v.groups),
        group_outputs(v.outputs / v.groups) {
    for (size_t d = 0; d < 2; ++d) {
      in[d] = v.in[d], out[d] = v.out[d], kernel[d] = v.window.kernel[d], stride[d] = v.window.stride[d];
      padding[d] = v.window.padding[d], dilation[d] = v.window.dilation[d];
    }
  }
  __device__ int64_t in_place(int64_t image, int64_t channel, int64_t y, int64_t x) const {
    return ((image * channels + channel) * in[0] + y) * in[1] + x;
  }
  __device__ int64_t out_place(int64_t image, int64_t output, int64_t y, int64_t x) const {
    return ((image * outputs + output) * out[0] + y) * out[1] + x;
  }
  // `channel`: within its group.
  __device__ int64_t weight_place(int64_t output, int64_t channel, int64_t i, int64_t j) const {
    return ((output * group_channels + channel) * kernel[0] + i) * kernel[1] + j;
  }
  // Where element k of the window is in the image when the window is at `at`; outside it may be.
  __device__ int64_t reach(int d, int64_t at, int64_t k) const {
    return at * stride[d] - padding[d] + k * dilation[d];
  }
  // Where the window is when its element k lies on place `at` of the image; -1: nowhere.
  __device__ int64_t from(int d, int64_t at, int64_t k) const {
    const int64_t moved = at + padding[d] - k * dilation[d];
    return moved >= 0 && moved % stride[d] == 0 && moved / stride[d] < out[d] ? moved / stride[d] : -1;
  }
};

template <class T>
struct Forward {
  T* y;
  const T *x, *weight, *bias;
  Sizes s;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, y, x, weight, bias);
  }
  __device__ void operator()(int64_t at) const {
    const int64_t ox = at % s.out[1], rest = at / s.out[1], oy = rest % s.out[0];
    const int64_t o = rest / s.out[0] % s.outputs, image = rest / s.out[0] / s.outputs;
    const int64_t first = o / s.group_outputs * s.group_channels;
    T sum = bias ? bias[o] : T{0};
    for (int64_t c = 0; c < s.group_channels; ++c)
      for (int64_t i = 0; i < s.kernel[0]; ++i) {
        const int64_t py = s.reach(0, oy, i);
        if (py < 0 || py >= s.in[0]) continue;
        for (int64_t j = 0; j < s.kernel[1]; ++j) {
          const int64_t px = s.reach(1, ox, j);
          if (px < 0 || px >= s.in[1]) continue;
          sum += weight[s.weight_place(o, c, i, j)] * x[s.in_place(image, first + c, py, px)];
        }
      }
    y[at] = sum;
  }
};

template <class T>
struct InputGrad {
  T* dx;
  const T *g, *weight;
  Sizes s;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, dx, g, weight);
  }
  __device__ void operator()(int64_t at) const {
    const int64_t px = at % s.in[1], rest = at / s.in[1], py = rest % s.in[0];
    const int64_t channel = rest / s.in[0] % s.channels, image = rest / s.in[0] / s.channels;
    const int64_t c = channel % s.group_channels, first = channel / s.group_channels * s.group_outputs;
    T sum = 0;
    for (int64_t i = 0; i < s.kernel[0]; ++i) {
      const int64_t oy = s.from(0, py, i);
      if (oy < 0) continue;
      for (int64_t j = 0; j < s.kernel[1]; ++j) {
        const int64_t ox = s.from(1, px, j);
        if (ox < 0) continue;
        for (int64_t o = first; o < first + s.group_outputs; ++o)
          sum += weight[s.weight_place(o, c, i, j)] * g[s.out_place(image, o, oy, ox)];
      }
    }
    dx[at] = sum;
  }
};

template <class T>
struct WeightGrad {
  T* dw;
  const T *g, *x;
  Sizes s;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, dw, g, x);
  }
  __device__ void operator()(int64_t at) const {
    const int64_t j = at % s.kernel[1], rest = at / s.kernel[1], i = rest % s.kernel[0];
    const int64_t c = rest / s.kernel[0] % s.group_channels, o = rest / s.kernel[0] / s.group_channels;
    const int64_t channel = o / s.group_outputs * s.group_channels + c;
    const int64_t plane = s.out[0] * s.out[1];
    T sum = 0;
    for (int64_t k = threadIdx.x; k < s.n * plane; k += blockDim.x) {
      const int64_t image = k / plane, oy = k % plane / s.out[1], ox = k % s.out[1];
      const int64_t py = s.reach(0, oy, i), px = s.reach(1, ox, j);
      if (py >= 0 && py < s.in[0] && px >= 0 && px < s.in[1])
        sum += g[s.out_place(image, o, oy, ox)] * x[s.in_place(image, channel, py, px)];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) dw[at] = sum;
  }
};
template <class T>
struct BiasGrad {
  T* db;
  const T* g;
  int64_t n, outputs, plane;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, db, g);
  }
  __device__ void operator()(int64_t o) const {
    T sum = 0;
    for (int64_t k = threadIdx.x; k < n * plane; k += blockDim.x)
      sum += g[(k / plane * outputs + o) * plane + k % plane];
    sum = block_sum(sum);
    if (threadIdx.x == 0) db[o] = sum;
  }
};

void conv2d(const Call& c, Tensors& out) {
  const Sizes s(conv2d_sizes(c));
  const Tensor x = c.in[0].contiguous_data(), w = c.in[1].contiguous_data();
  const Tensor bias = c.in.size() == 3 ? c.in[2].contiguous_data() : Tensor();
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each(c.name(), x.device(), out[0].numel(),
             Forward<T>{elements<T>(out[0]), elements<const T>(x), elements<const T>(w),
                        elements<const T>(bias), s});
  });
}
void conv2d_input_grad(const Call& c, Tensors& out) {
  const Sizes s(conv2d_input_grad_sizes(c));
  const Tensor g = c.in[0].contiguous_data(), w = c.in[1].contiguous_data();
  visit_floating(g.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each(c.name(), g.device(), out[0].numel(),
             InputGrad<T>{elements<T>(out[0]), elements<const T>(g), elements<const T>(w), s});
  });
}
void conv2d_weight_grad(const Call& c, Tensors& out) {
  const Sizes s(conv2d_weight_grad_sizes(c));
  const Tensor x = c.in[0].contiguous_data(), g = c.in[1].contiguous_data();
  const int64_t plane = s.out[0] * s.out[1];
  visit_floating(g.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row(c.name(), g.device(), out[0].numel(), s.n * plane,
                 WeightGrad<T>{elements<T>(out[0]), elements<const T>(g), elements<const T>(x), s});
    for_each_row(c.name(), g.device(), s.outputs, s.n * plane,
                 BiasGrad<T>{elements<T>(out[1]), elements<const T>(g), s.n, s.outputs, plane});
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

}  // namespace troupe::ops::on_cuda
