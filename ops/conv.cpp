#include "ops/conv.h"

#include "ops/arithmetic.h"
#include "ops/gradient_rules.h"
#include "ops/reduce.h"
#include "ops/reshape_ops.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

using Ints = std::vector<int64_t>;

Attrs conv_attrs(std::initializer_list<Attr> more = {}) {
  Attrs all{{"stride", Ints{1}}, {"padding", Ints{0}}, {"dilation", Ints{1}}, {"groups", 1}};
  for (const Attr& a : more) all.add(a);
  return all;
}

// The attributes that conv2d and its gradients share, and the one that is the gradient's own.
Attrs shared_attrs(const Backward& b, const char* own = nullptr, const Shape& image = {}) {
  Attrs attrs;
  for (const char* name : {"stride", "padding", "dilation"}) attrs.add({name, b.attrs.ints(name)});
  attrs.add({"groups", b.attrs.integer("groups")});
  if (own) attrs.add({own, Ints{image[2], image[3]}});
  return attrs;
}

Tensor input_grad(const Backward& b, const Tensor& g, const Tensor& weight, const Shape& x) {
  return apply1(kConv2dInputGrad, {g, weight}, shared_attrs(b, "input", x));
}
Tensors weight_grad(const Backward& b, const Tensor& x, const Tensor& g, const Shape& weight) {
  return ops::apply(kConv2dWeightGrad, std::array{x, g}, shared_attrs(b, "kernel", weight));
}

Specs conv_spec(const Call& c) {
  const Convolution v = conv2d_sizes(c);
  return {{Shape{v.n, v.outputs, v.out[0], v.out[1]}, c.in[0].dtype()}};
}
Specs input_grad_spec(const Call& c) {
  const Convolution v = conv2d_input_grad_sizes(c);
  return {{Shape{v.n, v.channels, v.in[0], v.in[1]}, c.in[0].dtype()}};
}
Specs weight_grad_spec(const Call& c) {
  const Convolution v = conv2d_weight_grad_sizes(c);
  return {{Shape{v.outputs, v.channels / v.groups, v.window.kernel[0], v.window.kernel[1]}, c.in[0].dtype()},
          {Shape{v.outputs}, c.in[0].dtype()}};
}

Tensors conv_gradient(const Backward& b) {
  const Tensor& g = b.grads[0];
  Tensors out(b.in.size());
  if (b.needs(0)) out[0] = input_grad(b, g, b.in[1], b.shape(0));
  const bool bias = b.in.size() == 3 && b.needs(2);
  if (b.needs(1)) {
    const Tensors both = weight_grad(b, b.in[0], g, b.shape(1));
    out[1] = both[0];
    if (bias) out[2] = both[1];
  } else if (bias) {
    out[2] = sum(g, {0, 2, 3});
  }
  return out;
}

// The sizes that the samples of all three go through: {x, weight, attributes}.
struct Case {
  Shape x, weight, g;
  Attrs attrs;
};
std::vector<Case> cases() {
  return {{{2, 3, 5, 4}, {4, 3, 3, 2}, {2, 4, 3, 3}, {}},
          {{2, 4, 5, 6}, {6, 2, 3, 3}, {2, 6, 3, 3}, {{"stride", 2}, {"padding", 1}, {"groups", 2}}},
          {{1, 2, 6, 5},
           {3, 2, 2, 3},
           {1, 3, 5, 2},
           {{"stride", Ints{1, 2}}, {"padding", Ints{1, 1}}, {"dilation", Ints{3, 2}}}},
          {{1, 4, 3, 3}, {4, 1, 3, 3}, {1, 4, 3, 3}, {{"padding", 1}, {"groups", 4}}},
          {{1, 3, 3, 2}, {2, 3, 1, 1}, {1, 2, 3, 2}, {}},
          {{0, 3, 4, 4}, {2, 3, 3, 3}, {0, 2, 2, 2}, {}},
          {{2, 0, 3, 3}, {2, 0, 3, 3}, {2, 2, 1, 1}, {}}};
}

Attrs with(Attrs attrs, const char* name, const Shape& image) {
  attrs.add({name, Ints{image[2], image[3]}});
  return attrs;
}

}  // namespace

// All three are linear in each of their inputs, and each is made of the other two when differentiated.
const Op kConv2d{.name = "conv2d",
                 .inputs = "input weight bias",
                 .text = "Convolution of images [N, C, H, W] with kernels [O, C / groups, h, w].",
                 .internal = true,  // the function takes one image, and padding by a word, too
                 .min_inputs = 2,
                 .attrs = conv_attrs(),
                 .shape = conv_spec,
                 .saves_inputs = 0b11,
                 .gradient = conv_gradient,
                 .samples = []() -> std::vector<Sample> {
                   std::vector<Sample> all;
                   for (const Case& c : cases()) {
                     const Tensor x = sample(c.x, -1, 1), w = sample(c.weight, -1, 1, 1);
                     all.push_back({{x, w, sample({c.weight[0]}, -1, 1, 2)}, c.attrs});
                   }
                   all.push_back({{sample({2, 3, 4, 4}), sample({2, 3, 3, 3}, -1, 1, 1)}});
                   return all;
                 }};

const Op kConv2dInputGrad{
    .name = "conv2d_input_grad",
    .inputs = "grad weight",
    .text = "Gradient of conv2d's input.",
    .internal = true,
    .attrs = conv_attrs({{"input", Ints{}}}),
    .shape = input_grad_spec,
    .saves_inputs = 0b11,
    .gradient = [](const Backward& b) -> Tensors {
      Tensors out(2);
      if (b.needs(0)) out[0] = apply1(kConv2d, {b.grads[0], b.in[1]}, shared_attrs(b));
      if (b.needs(1)) out[1] = weight_grad(b, b.grads[0], b.in[0], b.shape(1))[0];
      return out;
    },
    .samples = []() -> std::vector<Sample> {
      std::vector<Sample> all;
      for (const Case& c : cases())
        all.push_back({{sample(c.g, -1, 1), sample(c.weight, -1, 1, 1)}, with(c.attrs, "input", c.x)});
      return all;
    }};

const Op kConv2dWeightGrad{
    .name = "conv2d_weight_grad",
    .inputs = "input grad",
    .text = "Gradients of conv2d's weight and bias.",
    .internal = true,
    .attrs = conv_attrs({{"kernel", Ints{}}}),
    .shape = weight_grad_spec,
    .saves_inputs = 0b11,
    .gradient = [](const Backward& b) -> Tensors {
      Tensors out(2);
      if (b.needs(0)) out[0] = input_grad(b, b.in[1], b.grads[0], b.shape(0));
      if (b.needs(1)) out[1] = apply1(kConv2d, {b.in[0], b.grads[0], b.grads[1]}, shared_attrs(b));
      return out;
    },
    .samples = []() -> std::vector<Sample> {
      std::vector<Sample> all;
      for (const Case& c : cases())
        all.push_back({{sample(c.x, -1, 1), sample(c.g, -1, 1, 1)}, with(c.attrs, "kernel", c.weight)});
      return all;
    }};

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Pair stride, Pair padding,
              Pair dilation, int64_t groups) {
  if (x.defined() && x.dim() == 3)
    return squeeze(conv2d(unsqueeze(x, 0), weight, bias, stride, padding, dilation, groups), 0);
  const auto list = [](const Pair& p) { return Ints{p[0], p[1]}; };
  Attrs attrs{
      {"stride", list(stride)}, {"padding", list(padding)}, {"dilation", list(dilation)}, {"groups", groups}};
  return bias.defined() ? apply1(kConv2d, {x, weight, bias}, std::move(attrs))
                        : apply1(kConv2d, {x, weight}, std::move(attrs));
}

}  // namespace troupe::ops
