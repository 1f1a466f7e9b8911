#include "nn/conv.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "nn/kernels.h"
#include "ops/conv.h"
#include "ops/conv_forms.h"
#include "ops/pooling.h"
#include "ops/reshape_ops.h"
#include "ops/resize.h"
#include "ops/view.h"

namespace troupe::nn {

Conv2d::Conv2d(int64_t in, int64_t out, ops::Pair kernel, const Options& o) : options_(o) {
  check_kernels("conv2d", in, out, kernel, o.groups);
  check_padding_mode("conv2d", o.padding_mode);
  weight = empty({out, in / o.groups, kernel[0], kernel[1]}, o.dtype).requires_grad_();
  if (o.bias) bias = empty({out}, o.dtype).requires_grad_();
  start();
}

Tensor Conv2d::forward(const Tensor& x) {
  const Options& o = options_;
  if (o.padding_mode == "zeros")
    return ops::conv2d(x, weight, bias, o.stride, o.padding, o.dilation, o.groups);
  return ops::conv2d(padded(x, o.padding, o.padding_mode), weight, bias, o.stride, {0, 0}, o.dilation,
                     o.groups);
}

void Conv2d::reset(Generator& generator) { start_uniform(weight, bias, generator); }

std::string Conv2d::str() const {
  return fmt::format("Conv2d({}, {}, {}x{})", weight.size(1) * options_.groups, weight.size(0),
                     weight.size(2), weight.size(3));
}

Conv1d::Conv1d(int64_t in, int64_t out, int64_t kernel, const Options& o) : options_(o) {
  check_kernels("conv1d", in, out, {&kernel, 1}, o.groups);
  check_padding_mode("conv1d", o.padding_mode);
  weight = empty({out, in / o.groups, kernel}, o.dtype).requires_grad_();
  if (o.bias) bias = empty({out}, o.dtype).requires_grad_();
  start();
}

Tensor Conv1d::forward(const Tensor& x) {
  const Options& o = options_;
  if (o.padding_mode == "zeros")
    return ops::conv1d(x, weight, bias, o.stride, o.padding, o.dilation, o.groups);
  return ops::conv1d(padded(x, {&o.padding, 1}, o.padding_mode), weight, bias, o.stride, 0, o.dilation,
                     o.groups);
}

void Conv1d::reset(Generator& generator) { start_uniform(weight, bias, generator); }

std::string Conv1d::str() const {
  return fmt::format("Conv1d({}, {}, {})", weight.size(1) * options_.groups, weight.size(0), weight.size(2));
}

ConvTranspose2d::ConvTranspose2d(int64_t in, int64_t out, ops::Pair kernel, const Options& o) : options_(o) {
  check_kernels("conv_transpose2d", in, out, kernel, o.groups);
  weight = empty({in, out / o.groups, kernel[0], kernel[1]}, o.dtype).requires_grad_();
  if (o.bias) bias = empty({out}, o.dtype).requires_grad_();
  start();
}

Tensor ConvTranspose2d::forward(const Tensor& x) {
  return ops::conv_transpose2d(x, weight, bias, options_.stride, options_.padding, options_.output_padding,
                               options_.groups, options_.dilation);
}

void ConvTranspose2d::reset(Generator& generator) { start_uniform(weight, bias, generator); }

std::string ConvTranspose2d::str() const {
  return fmt::format("ConvTranspose2d({}, {}, {}x{})", weight.size(0), weight.size(1) * options_.groups,
                     weight.size(2), weight.size(3));
}

ConvTranspose1d::ConvTranspose1d(int64_t in, int64_t out, int64_t kernel, const Options& o) : options_(o) {
  check_kernels("conv_transpose1d", in, out, {&kernel, 1}, o.groups);
  weight = empty({in, out / o.groups, kernel}, o.dtype).requires_grad_();
  if (o.bias) bias = empty({out}, o.dtype).requires_grad_();
  start();
}

Tensor ConvTranspose1d::forward(const Tensor& x) {
  return ops::conv_transpose1d(x, weight, bias, options_.stride, options_.padding, options_.output_padding,
                               options_.groups, options_.dilation);
}

void ConvTranspose1d::reset(Generator& generator) { start_uniform(weight, bias, generator); }

std::string ConvTranspose1d::str() const {
  return fmt::format("ConvTranspose1d({}, {}, {})", weight.size(0), weight.size(1) * options_.groups,
                     weight.size(2));
}

Tensor AdaptiveAvgPool2d::forward(const Tensor& x) {
  return ops::adaptive_avg_pool2d(x, {output_size_[0], output_size_[1]});
}
Tensor AdaptiveMaxPool2d::forward(const Tensor& x) {
  return ops::adaptive_max_pool2d(x, {output_size_[0], output_size_[1]});
}
Tensor PixelShuffle::forward(const Tensor& x) { return ops::pixel_shuffle(x, factor_); }

Tensor MaxPool2d::forward(const Tensor& x) { return ops::max_pool2d(x, kernel_, stride_, padding_, form_); }
Tensor AvgPool2d::forward(const Tensor& x) { return ops::avg_pool2d(x, kernel_, stride_, padding_, form_); }

Tensor Flatten::forward(const Tensor& x) {
  const int64_t rank = x.defined() ? x.dim() : 0, first = start_dim_ < 0 ? start_dim_ + rank : start_dim_,
                last = end_dim_ < 0 ? end_dim_ + rank : end_dim_;
  if (first < 0 || last >= rank || (first > last && !(first == 1 && rank == 1)))
    throw_invalid(fmt::format("[flatten] got {}, expected one with dimensions {} to {}", x.summary(),
                              start_dim_, end_dim_));
  return first > last ? ops::reshape(x, {x.size(0), 1}) : ops::flatten(x, first, last);
}

}  // namespace troupe::nn
