#include "nn/conv.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "nn/init.h"
#include "ops/conv.h"
#include "ops/conv_forms.h"
#include "ops/pooling.h"
#include "ops/resize.h"
#include "ops/view.h"

namespace troupe::nn {

namespace {

void check_kernels(const char* layer, int64_t in, int64_t out, const ops::Pair& kernel, int64_t groups) {
  if (in < 1 || out < 1 || kernel[0] < 1 || kernel[1] < 1)
    throw_invalid(fmt::format("[{}] sizes must be at least 1, got in {}, out {}, kernel {} x {}", layer, in,
                              out, kernel[0], kernel[1]));
  if (groups < 1 || in % groups != 0 || out % groups != 0)
    throw_invalid(
        fmt::format("[{}] {} groups do not divide {} inputs and {} outputs", layer, groups, in, out));
}

void start_uniform(const Tensor& weight, const Tensor& bias, Generator& generator) {
  const double bound = 1 / std::sqrt(static_cast<double>(weight.numel() / weight.size(0)));
  init::uniform_(weight, -bound, bound, generator);
  if (bias.defined()) init::uniform_(bias, -bound, bound, generator);
}

}  // namespace

Conv2d::Conv2d(int64_t in, int64_t out, ops::Pair kernel, const Options& o) : options_(o) {
  check_kernels("conv2d", in, out, kernel, o.groups);
  weight = empty({out, in / o.groups, kernel[0], kernel[1]}, o.dtype).requires_grad_();
  if (o.bias) bias = empty({out}, o.dtype).requires_grad_();
  start();
}

Tensor Conv2d::forward(const Tensor& x) {
  return ops::conv2d(x, weight, bias, options_.stride, options_.padding, options_.dilation, options_.groups);
}

void Conv2d::reset(Generator& generator) { start_uniform(weight, bias, generator); }

std::string Conv2d::str() const {
  return fmt::format("Conv2d({}, {}, {}x{})", weight.size(1) * options_.groups, weight.size(0),
                     weight.size(2), weight.size(3));
}

Conv1d::Conv1d(int64_t in, int64_t out, int64_t kernel, const Options& o) : options_(o) {
  check_kernels("conv1d", in, out, {1, kernel}, o.groups);
  weight = empty({out, in / o.groups, kernel}, o.dtype).requires_grad_();
  if (o.bias) bias = empty({out}, o.dtype).requires_grad_();
  start();
}

Tensor Conv1d::forward(const Tensor& x) {
  return ops::conv1d(x, weight, bias, options_.stride, options_.padding, options_.dilation, options_.groups);
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

Tensor AdaptiveAvgPool2d::forward(const Tensor& x) {
  return ops::adaptive_avg_pool2d(x, {output_size_[0], output_size_[1]});
}
Tensor AdaptiveMaxPool2d::forward(const Tensor& x) {
  return ops::adaptive_max_pool2d(x, {output_size_[0], output_size_[1]});
}
Tensor PixelShuffle::forward(const Tensor& x) { return ops::pixel_shuffle(x, factor_); }

Tensor MaxPool2d::forward(const Tensor& x) { return ops::max_pool2d(x, kernel_, stride_, padding_); }
Tensor AvgPool2d::forward(const Tensor& x) { return ops::avg_pool2d(x, kernel_, stride_, padding_); }

Tensor Flatten::forward(const Tensor& x) {
  if (!x.defined() || x.dim() < 1) throw_invalid("[flatten] got " + x.summary() + ", expected [N, ..]");
  int64_t rest = 1;
  for (int d = 1; d < x.dim(); ++d) rest *= x.shape()[d];
  return ops::reshape(x, {x.size(0), rest});
}

}  // namespace troupe::nn
