#include "ops/matmul.h"
#include "ops/dispatch/cast_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "core/base/error.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/gradient_rules.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

Specs matmul_spec(const Call& c) {
  require_same_dtype(c);
  numeric_unary(c);  // not of bools
  const Shape &a = c.in[0].shape(), &b = c.in[1].shape();
  if (a.empty() || b.empty())
    reject(c, fmt::format("needs at least one dimension: {} x {}", a.str(), b.str()));
  const int64_t inner = b.rank() == 1 ? b[0] : b[b.rank() - 2];
  if (a.back() != inner) reject(c, fmt::format("inner dimensions differ: {} x {}", a.str(), b.str()));
  const auto batch = [](const Shape& s) {
    return Shape(std::span(s.begin(), static_cast<size_t>(std::max(s.rank() - 2, 0))));
  };
  Shape out = broadcast(batch(a), batch(b), c.name());
  if (a.rank() > 1) out.push_back(a[a.rank() - 2]);
  if (b.rank() > 1) out.push_back(b.back());
  return {{out, c.in[0].dtype()}};
}

Specs linear_spec(const Call& c) {
  require_floating(c, c.in[0]);
  require_same_dtype(c);
  const Shape &x = c.in[0].shape(), &w = c.in[1].shape();
  if (w.rank() != 2) reject(c, fmt::format("weight must be [out, in], got {}", w.str()));
  if (x.empty() || x.back() != w[1])
    reject(c, fmt::format("input {} does not end in the weight's {}: weight is {}", x.str(), w[1], w.str()));
  if (c.in.size() == 3 && c.in[2].shape() != Shape{w[0]})
    reject(c, fmt::format("bias must be [{}], got {}", w[0], c.in[2].shape().str()));
  Shape out = x;
  out.back() = w[0];
  return {{out, c.in[0].dtype()}};
}

Tensor flipped(const Tensor& x) { return transpose(x, -2, -1); }

// All leading dimensions in one: [rows, columns].
Tensor as_rows(const Tensor& x) {
  const int64_t columns = x.shape().back();
  int64_t rows = 1;
  for (int i = 0; i < x.dim() - 1; ++i) rows *= x.shape()[i];
  return x.dim() == 2 ? x : reshape(x, {rows, columns});
}

Tensors matmul_gradient(const Backward& b) {
  const bool row = b.shape(0).rank() == 1, column = b.shape(1).rank() == 1;
  Shape x_shape = b.shape(0), y_shape = b.shape(1);
  if (row) x_shape.insert(0, 1);
  if (column) y_shape.push_back(1);
  Tensor g = b.grads[0];
  if (row) g = unsqueeze(g, column ? -1 : -2);
  if (column) g = unsqueeze(g, -1);
  Tensors out(2);
  if (b.needs(0)) {
    const Tensor y = column ? unsqueeze(b.in[1], 1) : b.in[1];
    out[0] = reshape(sum_to(matmul(g, flipped(y)), x_shape), to_list(b.shape(0)));
  }
  if (b.needs(1)) {
    const Tensor x = row ? unsqueeze(b.in[0], 0) : b.in[0];
    const Tensor gy = y_shape.rank() == 2 ? matmul(flipped(as_rows(x)), as_rows(g))
                                          : sum_to(matmul(flipped(x), g), y_shape);
    out[1] = reshape(gy, to_list(b.shape(1)));
  }
  return out;
}

Tensors linear_gradient(const Backward& b, const Tensor& g) {
  Tensors out(b.in.size());
  if (b.needs(0)) out[0] = matmul(g, b.in[1]);
  const bool bias = b.in.size() == 3 && b.needs(2);
  if (b.needs(1) && !grad_enabled()) {
    const Tensor inputs[] = {as_rows(g), as_rows(b.in[0])};
    Tensors both = apply_accumulating(kLinearWeightGrad, inputs, b.sum(1), {{"bias", bias}});
    out[1] = std::move(both[0]);
    if (bias) out[2] = std::move(both[1]);
    return out;
  }
  if (b.needs(1)) out[1] = matmul(flipped(as_rows(g)), as_rows(b.in[0]));
  if (bias) out[2] = sum(as_rows(g), {0});
  return out;
}

Specs linear_add_spec(const Call& c) {
  std::vector<Tensor> linear{c.in[0], c.in[1]};
  if (c.in.size() == 4) linear.push_back(c.in[3]);
  require_same_dtype(c);
  const Specs specs = linear_spec({c.op, linear, c.attrs});
  require_shape(c, 2, specs[0].shape);
  return specs;
}

// The bias comes last.
Tensors linear_add_gradient(const Backward& b) {
  const Tensor& g = b.grads[0];
  Tensors out(b.in.size());
  const size_t has_bias = b.in.size() - 3;
  const Tensor in[] = {b.in[0], b.in[1], {}};
  const Spec specs[] = {b.in_specs[0], b.in_specs[1], b.in_specs.back()};
  const Edge next[] = {b.next[0], b.next[1], b.next[b.next.size() - 1]};
  const Tensor sums[] = {{}, b.sum(1), {}};
  const auto first = [&](const auto& all) { return std::span(all).first(2 + has_bias); };
  const Tensors of_linear = linear_gradient(
      {b.op, b.attrs, first(in), b.out, b.grads, first(specs), first(next), {}, first(sums)}, g);
  out[0] = of_linear[0], out[1] = of_linear[1], out[2] = g;
  if (has_bias) out[3] = of_linear[2];
  return out;
}

Specs linear_weight_grad_spec(const Call& c) {
  require_floating(c, c.in[0]);
  require_same_dtype(c);
  const Shape &g = c.in[0].shape(), &x = c.in[1].shape();
  if (g.rank() != 2 || x.rank() != 2 || g[0] != x[0])
    reject(c, fmt::format("expected [rows, out] and [rows, in], got {} and {}", g.str(), x.str()));
  Specs specs{{{g[1], x[1]}, c.in[0].dtype()}};
  if (c.attrs.flag("bias")) specs.push_back({{g[1]}, c.in[0].dtype()});
  return specs;
}

Tensors linear_relu_gradient(const Backward& b) {
  return linear_gradient(b, apply1(kReluGrad, {b.grads[0], b.out[0]}));
}

Specs linear_gelu_spec(const Call& c) {
  Specs specs = linear_spec(c);
  if (c.attrs.flag("slope")) specs.push_back(specs[0]);
  return specs;
}

Tensors linear_gelu_gradient(const Backward& b) {
  if (!grad_enabled() && b.attrs.flag("slope")) return linear_gradient(b, mul(b.grads[0], b.out[1]));
  const Tensor y = linear(b.in[0], b.in[1], b.in.size() == 3 ? b.in[2] : Tensor());
  return linear_gradient(b, mul(b.grads[0], gelu_slope(y, false)));
}

std::vector<Sample> linear_samples() {
  const Tensor w = sample({5, 4}, -2, 2, 1), bias = sample({5}, -2, 2, 2);
  return {{{sample({2, 3, 4}), w, bias}},
          {{sample({3, 4}), w}},
          {{sample({4}), w, bias}},
          {{sample({0, 4}), w, bias}}};
}

}  // namespace

const Op kMatmul{.name = "matmul",
                 .inputs = "input other",
                 .text = "Matrix product; leading dimensions broadcast.",
                 .shape = matmul_spec,
                 .saves_inputs = 0b11,
                 .saves_for = {0b10, 0b01},
                 .gradient = matmul_gradient,
                 .samples = []() -> std::vector<Sample> {
                   const auto pair = [](const Shape& a, const Shape& b) {
                     return Sample{{sample(a), sample(b, -2, 2, 1)}};
                   };
                   return {pair({3, 4}, {4, 5}),    pair({2, 3, 4}, {2, 4, 5}),
                           pair({2, 3, 4}, {4, 5}), pair({2, 1, 3, 4}, {3, 4, 2}),
                           pair({4}, {4}),          pair({3, 4}, {4}),
                           pair({4}, {4, 5}),       pair({4}, {2, 4, 5}),
                           pair({2, 3, 4}, {4}),    pair({3, 0}, {0, 5}),
                           pair({0, 4}, {4, 5}),    pair({3, 1}, {1, 5})};
                 }};

const Op kLinear{.name = "linear",
                 .inputs = "input weight bias",
                 .text = "input weight^T + bias.",
                 .min_inputs = 2,
                 .shape = linear_spec,
                 .saves_inputs = 0b11,
                 .saves_for = {0b10, 0b01},
                 .gradient = [](const Backward& b) -> Tensors { return linear_gradient(b, b.grads[0]); },
                 .function = [](std::span<const Tensor> in, const Attrs&) -> Tensors {
                   return {linear(in[0], in[1], in.size() == 3 ? in[2] : Tensor())};
                 },
                 .samples = linear_samples};

const Op kLinearRelu{.name = "linear_relu",
                     .inputs = "input weight bias",
                     .text = "relu of linear, in one pass.",
                     .min_inputs = 2,
                     .shape = linear_spec,
                     .saves_inputs = 0b11,
                     .saves_outputs = 1,
                     .saves_for = {0b10, 0b01},
                     .gradient = linear_relu_gradient,
                     .samples = linear_samples};

const Op kLinearGelu{.name = "linear_gelu",
                     .inputs = "input weight bias",
                     .text = "gelu of linear, in one pass.",
                     .min_inputs = 2,
                     .attrs = {{"slope", true}},
                     .shape = linear_gelu_spec,
                     .saves_inputs = 0b111,
                     .saves_outputs = 0b10,
                     .nondifferentiable = 0b10,
                     .gradient = linear_gelu_gradient,
                     .samples = []() -> std::vector<Sample> {
                       std::vector<Sample> all = linear_samples();
                       all.push_back({all[0].inputs, {{"slope", false}}});
                       return all;
                     }};

const Op kLinearAdd{.name = "linear_add",
                    .inputs = "input weight residual bias",
                    .text = "linear plus residual, in one pass.",
                    .min_inputs = 3,
                    .shape = linear_add_spec,
                    .saves_inputs = 0b11,
                    .gradient = linear_add_gradient,
                    .samples = []() -> std::vector<Sample> {
                      std::vector<Sample> all = linear_samples();
                      for (Sample& s : all) {
                        Shape shape = s.inputs[0].shape();
                        shape.back() = 5;
                        s.inputs.insert(s.inputs.begin() + 2, sample(shape, -2, 2, 3));
                      }
                      return all;
                    }};

const Op kLinearWeightGrad{.name = "linear_weight_grad",
                           .inputs = "grad input",
                           .text = "Gradients of linear's weight and bias.",
                           .internal = true,
                           .attrs = {{"bias", true}},
                           .shape = linear_weight_grad_spec,
                           .samples = []() -> std::vector<Sample> {
                             return {{{sample({6, 5}), sample({6, 4}, -2, 2, 1)}},
                                     {{sample({6, 5}), sample({6, 4}, -2, 2, 1)}, {{"bias", false}}},
                                     {{sample({0, 5}), sample({0, 4})}}};
                           }};

Tensor matmul(const Tensor& a, const Tensor& b) { return apply1(kMatmul, {a, b}); }

namespace {

void require_dims(const char* op, const Tensor& t, int dims) {
  if (!t.defined() || t.dim() != dims)
    throw_invalid(
        fmt::format("[{}] needs {} dimensions here, got {}; matmul() takes others", op, dims, t.summary()));
}

}  // namespace

Tensor mm(const Tensor& a, const Tensor& b) {
  return require_dims("mm", a, 2), require_dims("mm", b, 2), matmul(a, b);
}
Tensor bmm(const Tensor& a, const Tensor& b) {
  require_dims("bmm", a, 3), require_dims("bmm", b, 3);
  if (a.size(0) != b.size(0))
    throw_invalid(fmt::format("[bmm] batches differ: {} x {}", a.shape().str(), b.shape().str()));
  return matmul(a, b);
}
Tensor mv(const Tensor& a, const Tensor& b) {
  if (const auto y = under_autocast("mv", {&a, &b}, [&](const auto& in) { return mv(in[0], in[1]); }))
    return *y;
  return require_dims("mv", a, 2), require_dims("mv", b, 1), matmul(a, b);
}
Tensor dot(const Tensor& a, const Tensor& b) {
  if (const auto y = under_autocast("dot", {&a, &b}, [&](const auto& in) { return dot(in[0], in[1]); }))
    return *y;
  return require_dims("dot", a, 1), require_dims("dot", b, 1), matmul(a, b);
}
Tensor outer(const Tensor& a, const Tensor& b) {
  for (const Tensor* t : {&a, &b})
    if (!t->defined() || t->dim() != 1) throw_invalid("[outer] needs two 1-d tensors, got " + t->summary());
  return mul(unsqueeze(a, 1), unsqueeze(b, 0));
}
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (weight.defined() && x.defined() &&
      (weight.dim() == 1 || (weight.dim() == 2 && !is_floating(x.dtype())))) {
    if (const auto y = under_autocast("linear", {&x, &weight, &bias},
                                      [&](const auto& in) { return linear(in[0], in[1], in[2]); }))
      return *y;
    const Tensor y = matmul(x, weight.dim() == 1 ? weight : transpose(weight, 0, 1));
    return bias.defined() ? add(y, bias) : y;
  }
  return bias.defined() ? apply1(kLinear, {x, weight, bias}) : apply1(kLinear, {x, weight});
}
Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return bias.defined() ? apply1(kLinearRelu, {x, weight, bias}) : apply1(kLinearRelu, {x, weight});
}

Tensor linear_add(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual) {
  if (autocast_mode() != Autocast::off) return add(linear(x, weight, bias), residual);
  return bias.defined() ? apply1(kLinearAdd, {x, weight, residual, bias})
                        : apply1(kLinearAdd, {x, weight, residual});
}

Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const bool recorded = grad_enabled() && (x.requires_grad() || weight.requires_grad() ||
                                           (bias.defined() && bias.requires_grad()));
  const Attrs attrs{{"slope", recorded}};
  return bias.defined() ? apply1(kLinearGelu, {x, weight, bias}, attrs)
                        : apply1(kLinearGelu, {x, weight}, attrs);
}

namespace {
constexpr std::string_view kPrecisions[] = {"highest", "high", "medium"};
std::atomic<size_t> precision_now = 0;
}  // namespace

void set_float32_matmul_precision(std::string_view precision) {
  const auto* found = std::find(std::begin(kPrecisions), std::end(kPrecisions), precision);
  if (found == std::end(kPrecisions))
    throw_invalid(
        fmt::format("[set_float32_matmul_precision] \"{}\" is none of highest, high and medium", precision));
  precision_now.store(static_cast<size_t>(found - kPrecisions), std::memory_order_relaxed);
}
std::string_view float32_matmul_precision() {
  return kPrecisions[precision_now.load(std::memory_order_relaxed)];
}

}  // namespace troupe::ops
