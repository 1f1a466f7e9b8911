// Convolutions as products of matrices: the windows of one image and group are the columns of a matrix.
#include <algorithm>
#include <vector>

#include "ops/cpu/conv/conv_kernels.h"
#include "ops/cpu/gemm/gemm.h"

namespace troupe::ops::on_cpu {
namespace {

// Calls f(at, from) for every element of the columns [depth, places]: at counts them row by row, and from is
// the element of the group's image that is there, -1 in the padding.
template <class F>
void for_each_column_element(const Convolution& v, F f) {
  const Window& w = v.window;
  int64_t at = 0;
  for (int64_t c = 0; c < v.channels / v.groups; ++c)
    for (int64_t i = 0; i < w.kernel[0]; ++i)
      for (int64_t j = 0; j < w.kernel[1]; ++j)
        for (int64_t oy = 0; oy < v.out[0]; ++oy) {
          const int64_t y = oy * w.stride[0] - w.padding[0] + i * w.dilation[0];
          const bool inside = y >= 0 && y < v.in[0];
          const int64_t row = (c * v.in[0] + y) * v.in[1];
          for (int64_t ox = 0; ox < v.out[1]; ++ox, ++at) {
            const int64_t x = ox * w.stride[1] - w.padding[1] + j * w.dilation[1];
            f(at, inside && x >= 0 && x < v.in[1] ? row + x : -1);
          }
        }
}

template <class T>
void columns(ConvKind kind, const Convolution& v, const ConvArrays<T>& a) {
  const int64_t places = v.out_plane(), depth = v.depth(), outputs = v.outputs / v.groups;
  const int64_t image = v.channels / v.groups * v.in_plane();
  std::vector<T> cols(static_cast<size_t>(depth * places));
  std::vector<T> product(kind == ConvKind::weight_grad ? static_cast<size_t>(outputs * depth) : 0);
  if (kind == ConvKind::weight_grad) {
    std::fill_n(a.weight, v.outputs * depth, T{0});
    std::fill_n(a.bias, v.outputs, T{0});
  }
  for (int64_t n = 0; n < v.n; ++n)
    for (int64_t g = 0; g < v.groups; ++g) {
      T *x = a.x + (n * v.groups + g) * image, *y = a.y + (n * v.groups + g) * outputs * places;
      T* weight = a.weight + g * outputs * depth;
      if (kind != ConvKind::input_grad)
        for_each_column_element(
            v, [&](int64_t at, int64_t from) { cols[static_cast<size_t>(at)] = from < 0 ? T{0} : x[from]; });
      if (kind == ConvKind::forward) {
        for (int64_t o = 0; o < outputs; ++o)
          std::fill_n(y + o * places, places, a.bias ? a.bias[g * outputs + o] : T{0});
        gemm(outputs, places, depth, Matrix<T>{weight, depth, false}, Matrix<T>{cols.data(), places, false},
             T{1}, y);
      } else if (kind == ConvKind::input_grad) {
        gemm(depth, places, outputs, Matrix<T>{weight, depth, true}, Matrix<T>{y, places, false}, T{0},
             cols.data());
        std::fill_n(x, image, T{0});
        for_each_column_element(v, [&](int64_t at, int64_t to) {
          if (to >= 0) x[to] += cols[static_cast<size_t>(at)];
        });
      } else {
        gemm(outputs, depth, places, Matrix<T>{y, places, false}, Matrix<T>{cols.data(), places, true}, T{0},
             product.data());
        for (int64_t i = 0; i < outputs * depth; ++i) weight[i] += product[static_cast<size_t>(i)];
        for (int64_t o = 0; o < outputs; ++o) {
          T total{0};
          for (int64_t i = 0; i < places; ++i) total += y[o * places + i];
          a.bias[g * outputs + o] += total;
        }
      }
    }
}

}  // namespace

void conv_columns(ConvKind kind, const Convolution& v, const ConvArrays<float>& a) { columns(kind, v, a); }
void conv_columns(ConvKind kind, const Convolution& v, const ConvArrays<double>& a) { columns(kind, v, a); }

}  // namespace troupe::ops::on_cpu
