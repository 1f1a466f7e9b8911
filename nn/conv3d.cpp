#include "nn/conv3d.h"

#include <fmt/format.h>

#include "core/tensor/creation.h"
#include "nn/kernels.h"

namespace troupe::nn {

Conv3d::Conv3d(int64_t in, int64_t out, ops::Triple kernel, const Options& o) : options_(o) {
  check_kernels("conv3d", in, out, kernel, o.groups);
  check_padding_mode("conv3d", o.padding_mode);
  weight = empty({out, in / o.groups, kernel[0], kernel[1], kernel[2]}, o.dtype).requires_grad_();
  if (o.bias) bias = empty({out}, o.dtype).requires_grad_();
  start();
}

Tensor Conv3d::forward(const Tensor& x) {
  const Options& o = options_;
  const auto of = [&](const Tensor& in, const ops::Triple& padding) {
    return ops::conv3d(in, weight, bias, o.stride, padding, o.dilation, o.groups);
  };
  return o.padding_mode == "zeros" ? of(x, o.padding) : of(padded(x, o.padding, o.padding_mode), {});
}

void Conv3d::reset(Generator& generator) { start_uniform(weight, bias, generator); }

std::string Conv3d::str() const {
  return fmt::format("Conv3d({}, {}, {}x{}x{})", weight.size(1) * options_.groups, weight.size(0),
                     weight.size(2), weight.size(3), weight.size(4));
}

}  // namespace troupe::nn
