// What the ways to convolve share: sizes, and where a window is.
#pragma once
#include "ops/cuda/elementwise.cuh"
#include "ops/dispatch/window.h"

namespace troupe::ops::on_cuda {

/// Of a convolution, for kernels. Two values are of the height and of the width.
struct ConvSizes {
  int64_t n, groups, channels, outputs;  // of one group where it says so
  int64_t group_channels, group_outputs;
  int64_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];

  explicit ConvSizes(const Convolution& v)
      : n(v.n),
        groups(v.groups),
        channels(v.channels),
        outputs(v.outputs),
        group_channels(v.channels / v.groups),
        group_outputs(v.outputs / v.groups) {
    for (size_t d = 0; d < 2; ++d) {
      in[d] = v.in[d], out[d] = v.out[d], kernel[d] = v.window.kernel[d], stride[d] = v.window.stride[d];
      padding[d] = v.window.padding[d], dilation[d] = v.window.dilation[d];
    }
  }
  bool one_group() const { return groups == 1; }
  // Whether the columns are the image itself.
  bool pointwise() const {
    bool all = true;
    for (size_t d = 0; d < 2; ++d) all &= kernel[d] == 1 && stride[d] == 1 && padding[d] == 0;
    return all;
  }
  int64_t image_size() const { return channels * in[0] * in[1]; }
  __host__ __device__ int64_t window_size() const { return channels * kernel[0] * kernel[1]; }
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

/// Whether the matrix unit multiplies without columns: not float64, nor groups of a few channels.
bool multiplies_conv(const ConvSizes& s, DType t);
/// All tensors are contiguous and of one dtype, and no result is empty. `bias` may be undefined.
void conv_by_products(const char* name, const ConvSizes& s, const Tensor& x, const Tensor& w,
                      const Tensor& bias, const Tensor& y);
void conv_input_grad_by_products(const char* name, const ConvSizes& s, const Tensor& g, const Tensor& w,
                                 const Tensor& dx);
void conv_weight_grad_by_products(const char* name, const ConvSizes& s, const Tensor& g, const Tensor& x,
                                  const Tensor& dw);

/// By products with columns. All tensors are contiguous and of one floating dtype, there is one group, and no
/// result is empty. `bias` may be undefined; the gradient g has elements.
void conv_by_columns(const char* name, const ConvSizes& s, const Tensor& x, const Tensor& w,
                     const Tensor& bias, const Tensor& y);
void conv_input_grad_by_columns(const char* name, const ConvSizes& s, const Tensor& g, const Tensor& w,
                                const Tensor& dx);
void conv_weight_grad_by_columns(const char* name, const ConvSizes& s, const Tensor& g, const Tensor& x,
                                 const Tensor& dw);

}  // namespace troupe::ops::on_cuda
