#include "ops/dispatch/window.h"

#include <fmt/format.h>

#include "ops/dispatch/check.h"

namespace troupe::ops {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;  // sums and products of two stay far from overflow

bool has(const Call& c, std::string_view name) {
  for (const Attr& a : c.attrs.list())
    if (a.name == name) return true;
  return false;
}

}  // namespace

Pair pair_attr(const Call& c, const char* name, int64_t least) {
  const auto& v = c.attrs.ints(name);
  if (v.size() != 1 && v.size() != 2)
    reject(c, fmt::format("{} must be one integer or two, got {}", name, str(AttrValue(v))));
  for (const int64_t i : v)
    if (i < least || i >= kLimit)
      reject(c, fmt::format("{} must be at least {} and below 2^31, got {}", name, least, str(AttrValue(v))));
  return {v.front(), v.back()};
}

Window window_of(const Call& c, const Pair& kernel) {
  Window w{.kernel = kernel};
  w.stride = c.attrs.ints("stride").empty() ? kernel : pair_attr(c, "stride", 1);
  w.padding = pair_attr(c, "padding", 0);
  if (has(c, "dilation")) w.dilation = pair_attr(c, "dilation", 1);
  return w;
}

Window pool_window(const Call& c) { return window_of(c, pair_attr(c, "kernel_size", 1)); }

Pair places(const Call& c, const Shape& image, const Window& w) {
  Pair out{};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t size = image[image.rank() - 2 + static_cast<int>(i)];
    const int64_t reach = w.dilation[i] * (w.kernel[i] - 1) + 1, padded = size + 2 * w.padding[i];
    if (reach > padded)
      reject(c,
             fmt::format("the kernel covers {} {}, but {} has only {} with its padding; use a smaller kernel "
                         "or dilation, or more padding",
                         reach, i ? "columns" : "rows", image.str(), padded));
    out[i] = (padded - reach) / w.stride[i] + 1;
  }
  return out;
}

void require_images(const Call& c, const Tensor& x, const char* what) {
  require_floating(c, x);
  if (x.dim() != 4) reject(c, fmt::format("{} must be [N, C, H, W], got {}", what, x.shape().str()));
  for (int i = 0; i < 4; ++i)
    if (x.shape()[i] >= kLimit) reject(c, fmt::format("{} is too large: {}", what, x.shape().str()));
}

Convolution convolution_of(const Call& c, const Shape& x, const Shape& weight) {
  const int64_t groups = c.attrs.integer("groups");
  if (groups < 1) reject(c, fmt::format("groups must be at least 1, got {}", groups));
  if (x[1] % groups || weight[0] % groups)
    reject(c, fmt::format("groups {} do not divide the channels of input {} and weight {}", groups, x.str(),
                          weight.str()));
  if (weight[1] != x[1] / groups)
    reject(c, fmt::format("weight {} is for {} input channels, but input {} has {}", weight.str(),
                          weight[1] * groups, x.str(), x[1]));
  if (weight[2] < 1 || weight[3] < 1) reject(c, "the kernel has no elements: weight is " + weight.str());
  Convolution v{.n = x[0], .channels = x[1], .outputs = weight[0], .groups = groups, .in = {x[2], x[3]}};
  v.window = window_of(c, {weight[2], weight[3]});
  v.out = places(c, x, v.window);
  return v;
}

namespace {

// `g` must be what the convolution gives.
Convolution with_result(const Call& c, const Convolution& v, const Tensor& g) {
  const Shape expected{v.n, v.outputs, v.out[0], v.out[1]};
  if (g.shape() != expected)
    reject(c, fmt::format("gradient must be {}, got {}", expected.str(), g.shape().str()));
  return v;
}

}  // namespace

Convolution conv2d_sizes(const Call& c) {
  require_images(c, c.in[0], "input");
  const Tensor& w = c.in[1];
  if (w.dim() != 4) reject(c, fmt::format("weight must be [O, C / groups, kh, kw], got {}", w.shape().str()));
  require_images(c, w, "weight");
  require_same_dtype(c);
  const Convolution v = convolution_of(c, c.in[0].shape(), w.shape());
  if (c.in.size() == 3 && c.in[2].shape() != Shape{v.outputs})
    reject(c, fmt::format("bias must be [{}], got {}", v.outputs, c.in[2].shape().str()));
  return v;
}

Convolution conv2d_input_grad_sizes(const Call& c) {
  require_images(c, c.in[0], "gradient");
  require_images(c, c.in[1], "weight");
  require_same_dtype(c);
  const int64_t groups = c.attrs.integer("groups");
  const Pair in = pair_attr(c, "input", 0);
  const Shape& w = c.in[1].shape();
  if (groups < 1 || groups > kLimit) reject(c, fmt::format("groups must be at least 1, got {}", groups));
  return with_result(c, convolution_of(c, {c.in[0].shape()[0], w[1] * groups, in[0], in[1]}, w), c.in[0]);
}

Convolution conv2d_weight_grad_sizes(const Call& c) {
  require_images(c, c.in[0], "input");
  require_images(c, c.in[1], "gradient");
  require_same_dtype(c);
  const int64_t groups = c.attrs.integer("groups");
  const Pair kernel = pair_attr(c, "kernel", 1);
  const Shape& x = c.in[0].shape();
  if (groups < 1) reject(c, fmt::format("groups must be at least 1, got {}", groups));
  return with_result(c, convolution_of(c, x, {c.in[1].shape()[1], x[1] / groups, kernel[0], kernel[1]}),
                     c.in[1]);
}

}  // namespace troupe::ops
