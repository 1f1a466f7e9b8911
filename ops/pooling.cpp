#include "ops/pooling.h"

#include <fmt/format.h>

#include "ops/gradient_rules.h"
#include "ops/reshape_ops.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

using Ints = std::vector<int64_t>;

Attrs pool_attrs(std::initializer_list<Attr> more = {}) {
  Attrs all{{"kernel_size", Ints{}}, {"stride", Ints{}}, {"padding", Ints{0}}};
  for (const Attr& a : more) all.add(a);
  return all;
}

// Shape of the result for an image; checks the window.
Shape pooled(const Call& c, Shape image) {
  const Window w = pool_window(c);
  const Pair out = places(c, image, w);
  if (image[2] == 0 || image[3] == 0) reject(c, "the images have no elements: " + image.str());
  for (size_t i = 0; i < 2; ++i) {
    if (2 * w.padding[i] > w.kernel[i])
      reject(c, fmt::format("padding {} is more than half of kernel_size {}", w.padding[i], w.kernel[i]));
    image[image.rank() - 2 + static_cast<int>(i)] = out[i];
  }
  return image;
}

Specs pool_spec(const Call& c) {
  require_images(c, c.in[0], "input");
  return {{pooled(c, c.in[0].shape()), c.in[0].dtype()}};
}

void require_result(const Call& c, const Tensor& g, const Shape& image) {
  const Shape expected = pooled(c, image);
  if (g.shape() != expected)
    reject(c, fmt::format("gradient must be {}, got {}", expected.str(), g.shape().str()));
}

Specs max_grad_spec(const Call& c) {
  require_images(c, c.in[1], "input");
  require_same_dtype(c);
  require_result(c, c.in[0], c.in[1].shape());
  return {{c.in[1].shape(), c.in[1].dtype()}};
}

Specs pick_spec(const Call& c) {
  require_same_dtype(c);
  require_same_shape(c, c.in[0], c.in[1]);
  return pool_spec(c);
}

Specs avg_grad_spec(const Call& c) {
  require_images(c, c.in[0], "gradient");
  const Pair in = pair_attr(c, "input", 0);
  Shape image = c.in[0].shape();
  for (size_t i = 0; i < 2; ++i) image[2 + static_cast<int>(i)] = in[i];
  require_result(c, c.in[0], image);
  return {{image, c.in[0].dtype()}};
}

Attrs window_attrs(const Backward& b) {
  Attrs attrs;
  for (const char* name : {"kernel_size", "stride", "padding"}) attrs.add({name, b.attrs.ints(name)});
  return attrs;
}

Attrs kernel(Ints kernel_size, Ints stride = {}, Ints padding = {0}) {
  return {{"kernel_size", std::move(kernel_size)},
          {"stride", std::move(stride)},
          {"padding", std::move(padding)}};
}

std::vector<Sample> images() {
  return {{{sample({2, 3, 4, 6})}, kernel({2})},
          {{sample({1, 2, 5, 7})}, kernel({2}, {2})},
          {{sample({2, 2, 7, 6})}, kernel({3}, {2}, {1})},
          {{sample({1, 2, 5, 6})}, kernel({3, 2}, {1, 3}, {1, 0})},
          {{sample({0, 2, 4, 4})}, kernel({2})}};
}

}  // namespace

const Op kMaxPool2d{.name = "max_pool2d",
                    .text = "The largest element of each window of images.",
                    .internal = true,  // the functions have more options
                    .attrs = pool_attrs(),
                    .shape = pool_spec,
                    .saves_inputs = 1,
                    .gradient = [](const Backward& b) -> Tensors {
                      return {apply1(kMaxPool2dGrad, {b.grads[0], b.in[0]}, window_attrs(b))};
                    },
                    .samples = images};

// Linear in g; which elements are largest does not change with x but at kinks.
const Op kMaxPool2dGrad{
    .name = "max_pool2d_grad",
    .inputs = "grad input",
    .text = "Gradient of max_pool2d.",
    .internal = true,
    .attrs = pool_attrs(),
    .shape = max_grad_spec,
    .saves_inputs = 0b10,
    .gradient = [](const Backward& b) -> Tensors {
      return {apply1(kMaxPool2dPick, {b.grads[0], b.in[1]}, window_attrs(b)), Tensor()};
    },
    .samples = []() -> std::vector<Sample> {
      return {{{sample({2, 3, 2, 3}), sample({2, 3, 4, 6}, -2, 2, 1)}, kernel({2})},
              {{sample({2, 2, 4, 3}), sample({2, 2, 7, 6}, -2, 2, 1)}, kernel({3}, {2}, {1})}};
    }};

const Op kMaxPool2dPick{.name = "max_pool2d_pick",
                        .inputs = "values input",
                        .text = "The elements of values where input has its windows' largest.",
                        .internal = true,
                        .attrs = pool_attrs(),
                        .shape = pick_spec,
                        .saves_inputs = 0b10,
                        .gradient = [](const Backward& b) -> Tensors {
                          return {apply1(kMaxPool2dGrad, {b.grads[0], b.in[1]}, window_attrs(b)), Tensor()};
                        },
                        .samples = []() -> std::vector<Sample> {
                          std::vector<Sample> all = images();
                          for (Sample& s : all) s.inputs.push_back(sample(s.inputs[0].shape(), -2, 2, 1));
                          return all;
                        }};

const Op kAvgPool2d{.name = "avg_pool2d",
                    .text = "The mean of each window of images.",
                    .internal = true,
                    .attrs = pool_attrs(),
                    .shape = pool_spec,
                    .gradient = [](const Backward& b) -> Tensors {
                      Attrs attrs = window_attrs(b);
                      attrs.add({"input", Ints{b.shape(0)[2], b.shape(0)[3]}});
                      return {apply1(kAvgPool2dGrad, {b.grads[0]}, std::move(attrs))};
                    },
                    .samples = images};

const Op kAvgPool2dGrad{.name = "avg_pool2d_grad",
                        .inputs = "grad",
                        .text = "Gradient of avg_pool2d.",
                        .internal = true,
                        .attrs = pool_attrs({{"input", Ints{}}}),
                        .shape = avg_grad_spec,
                        .gradient = [](const Backward& b) -> Tensors {
                          return {apply1(kAvgPool2d, {b.grads[0]}, window_attrs(b))};
                        },
                        .samples = []() -> std::vector<Sample> {
                          const auto with_input = [](Attrs attrs, int64_t h, int64_t w) {
                            attrs.add({"input", Ints{h, w}});
                            return attrs;
                          };
                          return {{{sample({2, 3, 2, 3})}, with_input(kernel({2}), 4, 7)},
                                  {{sample({2, 2, 4, 3})}, with_input(kernel({3}, {2}, {1}), 7, 6)}};
                        }};

namespace {
Tensor pool(const Op& op, const Tensor& x, const Pair& size, const std::optional<Pair>& stride,
            const Pair& padding) {
  if (x.defined() && x.dim() == 3) return squeeze(pool(op, unsqueeze(x, 0), size, stride, padding), 0);
  const auto list = [](const Pair& p) { return Ints{p[0], p[1]}; };
  return apply1(op, {x}, kernel(list(size), list(stride.value_or(size)), list(padding)));
}
}  // namespace

Tensor max_pool2d(const Tensor& x, Pair kernel_size, std::optional<Pair> stride, Pair padding) {
  return pool(kMaxPool2d, x, kernel_size, stride, padding);
}
Tensor avg_pool2d(const Tensor& x, Pair kernel_size, std::optional<Pair> stride, Pair padding) {
  return pool(kAvgPool2d, x, kernel_size, stride, padding);
}

}  // namespace troupe::ops
