#include "nn/conv.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "nn/init.h"
#include "ops/conv.h"
#include "ops/pooling.h"
#include "ops/view.h"

namespace troupe::nn {

Conv2d::Conv2d(int64_t in, int64_t out, ops::Pair kernel, const Options& o) : options_(o) {
  if (in < 1 || out < 1 || kernel[0] < 1 || kernel[1] < 1)
    throw_invalid(fmt::format("[conv2d] sizes must be at least 1, got in {}, out {}, kernel {} x {}", in, out,
                              kernel[0], kernel[1]));
  if (o.groups < 1 || in % o.groups != 0 || out % o.groups != 0)
    throw_invalid(
        fmt::format("[conv2d] {} groups do not divide {} inputs and {} outputs", o.groups, in, out));
  weight = empty({out, in / o.groups, kernel[0], kernel[1]}, o.dtype).requires_grad_();
  if (o.bias) bias = empty({out}, o.dtype).requires_grad_();
  start();
}

Tensor Conv2d::forward(const Tensor& x) {
  return ops::conv2d(x, weight, bias, options_.stride, options_.padding, options_.dilation, options_.groups);
}

void Conv2d::reset(Generator& generator) {
  const double bound = 1 / std::sqrt(static_cast<double>(weight.numel() / weight.size(0)));
  init::uniform_(weight, -bound, bound, generator);
  if (bias.defined()) init::uniform_(bias, -bound, bound, generator);
}

std::string Conv2d::str() const {
  return fmt::format("Conv2d({}, {}, {}x{})", weight.size(1) * options_.groups, weight.size(0),
                     weight.size(2), weight.size(3));
}

Tensor MaxPool2d::forward(const Tensor& x) { return ops::max_pool2d(x, kernel_, stride_, padding_); }
Tensor AvgPool2d::forward(const Tensor& x) { return ops::avg_pool2d(x, kernel_, stride_, padding_); }

Tensor Flatten::forward(const Tensor& x) {
  if (!x.defined() || x.dim() < 1) throw_invalid("[flatten] got " + x.summary() + ", expected [N, ..]");
  int64_t rest = 1;
  for (int d = 1; d < x.dim(); ++d) rest *= x.shape()[d];
  return ops::reshape(x, {x.size(0), rest});
}

}  // namespace troupe::nn
