#include "ops/layer_norm.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/gradient_rules.h"
#include "ops/reduce.h"
#include "ops/unary.h"

namespace troupe::ops {
namespace {

// x must end in the shape of weight.
void check_rows(const Call& c, const Tensor& x, const Tensor& weight) {
  require_floating(c, x);
  require_same_dtype(c);
  if (!(c.attrs.number("eps") >= 0))
    reject(c, fmt::format("eps must be at least 0, got {}", c.attrs.number("eps")));
  const Shape &all = x.shape(), &row = weight.shape();
  const int outer = all.rank() - row.rank();
  bool fits = row.rank() > 0 && outer >= 0;
  for (int i = 0; fits && i < row.rank(); ++i) fits = all[outer + i] == row[i];
  if (!fits) reject(c, fmt::format("input {} does not end in the weight's shape {}", all.str(), row.str()));
}

Specs norm_spec(const Call& c) {
  check_rows(c, c.in[0], c.in[1]);
  if (c.in.size() == 3 && c.in[2].shape() != c.in[1].shape())
    reject(c, fmt::format("bias must be {}, got {}", c.in[1].shape().str(), c.in[2].shape().str()));
  return same_spec(c);
}

Specs norm_grad_spec(const Call& c) {
  check_rows(c, c.in[1], c.in[2]);
  for (size_t i = 0; i < c.in.size(); ++i)
    if (i != 2) require_same_shape(c, c.in[i], c.in[1]);
  const Spec row{c.in[2].shape(), c.in[2].dtype()};
  Specs specs = same_spec(c);
  specs.resize(&c.op == &kLayerNormGrad ? 3 : 2, row);
  return specs;
}

// The same gradients made of operators that have gradients themselves.
template <bool centered>
Tensors recorded_gradient(const Backward& b) {
  const Tensor &g = b.grads[0], &x = b.in[0], &weight = b.in[1];
  std::vector<int64_t> row;
  for (int i = -weight.dim(); i < 0; ++i) row.push_back(i);
  const Tensor shifted = centered ? sub(x, mean(x, row, true)) : x;
  const Tensor scale = rsqrt(add(mean(square(shifted), row, true), b.attrs.number("eps")));
  const Tensor normal = mul(shifted, scale), gw = mul(g, weight);
  Tensors out(b.in.size());
  if (b.needs(0)) {
    Tensor d = sub(gw, mul(normal, mean(mul(gw, normal), row, true)));
    if (centered) d = sub(d, mean(gw, row, true));
    out[0] = mul(d, scale);
  }
  if (b.needs(1)) out[1] = sum_to(mul(g, normal), weight.shape());
  if (b.in.size() == 3 && b.needs(2)) out[2] = sum_to(g, weight.shape());
  return out;
}

Tensors fused_gradient(const Backward& b, const Op& op) {
  const Tensor inputs[] = {b.grads[0], b.in[0], b.in[1], b.take_pending(0)};
  Tensors out = apply(op, std::span(inputs, inputs[3].defined() ? 4 : 3), {{"eps", b.attrs.number("eps")}});
  out.resize(b.in.size());
  return out;
}

Tensors layer_norm_gradient(const Backward& b) {
  return grad_enabled() ? rounded_once(b, recorded_gradient<true>) : fused_gradient(b, kLayerNormGrad);
}
Tensors rms_norm_gradient(const Backward& b) {
  return grad_enabled() ? rounded_once(b, recorded_gradient<false>) : fused_gradient(b, kRmsNormGrad);
}

Sample rows(const Shape& shape, const Shape& row, bool bias) {
  Sample s{{sample(shape), sample(row, -2, 2, 1)}};
  if (bias) s.inputs.push_back(sample(row, -2, 2, 2));
  return s;
}

std::vector<Sample> rows_grad() {
  const Tensors a{sample({2, 3, 4}, -2, 2, 3), sample({2, 3, 4}), sample({4}, -2, 2, 1)};
  return {{a}, {{a[0], a[1], a[2], sample({2, 3, 4}, -2, 2, 4)}}, {{sample({0, 4}), sample({0, 4}), a[2]}}};
}

}  // namespace

const Op kLayerNorm{.name = "layer_norm",
                    .inputs = "input weight bias",
                    .text = "Normalizes over the last dimensions, which weight spans.",
                    .internal = true,
                    .min_inputs = 2,
                    .attrs = {{"eps", 1e-5}},
                    .shape = norm_spec,
                    .saves_inputs = 0b11,
                    .gradient = layer_norm_gradient,
                    .samples = []() -> std::vector<Sample> {
                      return {rows({2, 3, 4}, {4}, true), rows({3, 2, 3}, {2, 3}, false),
                              rows({0, 4}, {4}, true), rows({2, 37}, {37}, true), rows({3, 0}, {0}, true)};
                    }};

const Op kRmsNorm{.name = "rms_norm",
                  .inputs = "input weight",
                  .text = "Divides by the root mean square over the last dimensions, which weight spans.",
                  .internal = true,
                  .attrs = {{"eps", 1e-6}},
                  .shape = norm_spec,
                  .saves_inputs = 0b11,
                  .gradient = rms_norm_gradient,
                  .samples = []() -> std::vector<Sample> {
                    return {rows({2, 3, 4}, {4}, false), rows({3, 2, 3}, {2, 3}, false),
                            rows({0, 4}, {4}, false), rows({2, 37}, {37}, false)};
                  }};

const Op kLayerNormGrad{.name = "layer_norm_grad",
                        .inputs = "grad input weight added",
                        .text = "Gradients of layer_norm; that of the input is added to what is given.",
                        .internal = true,
                        .min_inputs = 3,
                        .attrs = {{"eps", 1e-5}},
                        .shape = norm_grad_spec,
                        .samples = rows_grad};

const Op kRmsNormGrad{.name = "rms_norm_grad",
                      .inputs = "grad input weight added",
                      .text = "Gradients of rms_norm; that of the input is added to what is given.",
                      .internal = true,
                      .min_inputs = 3,
                      .attrs = {{"eps", 1e-6}},
                      .shape = norm_grad_spec,
                      .samples = rows_grad};

namespace {

// The weight, or ones in its place.
Tensor scale(const char* op, const Tensor& x, const IntList& normalized_shape, const Tensor& weight) {
  const Shape row{std::span<const int64_t>(normalized_shape)};
  if (!weight.defined())
    return ones(row, {x.defined() ? x.dtype() : float32, x.defined() ? x.device() : Device()});
  if (weight.shape() != row)
    throw_invalid(fmt::format("[{}] weight must be {}, got {}", op, row.str(), weight.summary()));
  return weight;
}

// The distance from 1 to the next number, of halves that of float32, in which they are computed.
double machine_epsilon(DType dtype) { return dtype == float64 ? 0x1p-52 : 0x1p-23; }

}  // namespace

Tensor layer_norm(const Tensor& x, const IntList& normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  const Tensor scaled = scale("layer_norm", x, normalized_shape, weight);
  const Attrs attrs{{"eps", eps}};
  return bias.defined() ? apply1(kLayerNorm, {x, scaled, bias}, attrs)
                        : apply1(kLayerNorm, {x, scaled}, attrs);
}
Tensor rms_norm(const Tensor& x, const IntList& normalized_shape, const Tensor& weight,
                std::optional<double> eps) {
  const double added = eps.value_or(machine_epsilon(x.defined() ? x.dtype() : float32));
  return apply1(kRmsNorm, {x, scale("rms_norm", x, normalized_shape, weight)}, {{"eps", added}});
}

}  // namespace troupe::ops
