#include "llm/projection.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "nn/init.h"
#include "ops/ops.h"
#include "parallel/tensor/own_dropout.h"

namespace troupe::llm {

namespace {

// A layer of normal values, drawn as one process draws them.
nn::Linear drawn(int64_t in, int64_t out, const ProjectionOptions& o, AnyGenerator generator) {
  nn::Linear whole(1, 1, o.bias, o.dtype);
  whole.weight = empty({out, in}, o.dtype);
  nn::init::normal_(whole.weight, 0, o.deviation, generator);
  if (o.bias) whole.bias = zeros({out}, o.dtype);
  return whole;
}

// A is drawn as a layer's weights are, B is zero.
nn::Linear zero(int64_t in, int64_t out, DType dtype) {
  nn::Linear whole(1, 1, false, dtype);
  whole.weight = zeros({out, in}, dtype).requires_grad_();
  return whole;
}

double checked_scaling(const LoraOptions& o, bool adapted) {
  if (adapted) throw_invalid("[lora] there is an adapter already: merge it or drop it first");
  check(o);
  return o.lora_alpha / (o.use_rslora ? std::sqrt(static_cast<double>(o.r)) : static_cast<double>(o.r));
}

void merge_into(const Tensor& weight, const Tensor& a, const Tensor& b, double scaling) {
  if (!weight.numel()) return;
  const NoGradGuard no_grad;
  const auto wide = [](const Tensor& t) { return is_half(t.dtype()) ? t.to(float32) : t; };
  const Tensor sum = ops::add(wide(weight), ops::mul(ops::matmul(wide(b), wide(a)), scaling));
  weight.copy_(sum.to(weight.dtype()));
}

// An adapter on a device is where the layer is, and trains while that does.
template <class M>
void settle(M& module, const nn::Module& like, const Tensor& weight) {
  module.to(weight.device());
  module.train(like.training());
}

}  // namespace

ColumnProjection::ColumnProjection(const Group& group, int64_t in, int64_t out, const ProjectionOptions& o)
    : linear(group, drawn(in, out, o, next_generator()), o.sizes), in_(in), out_(out), options_(o) {}

Tensor ColumnProjection::forward(const Tensor& x) {
  const Tensor y = ops::linear(x, linear.weight, linear.bias);
  if (!lora_A) return y;
  const Tensor a = tp::enter(lora_A->weight, linear.group(), linear.group().size() > 1 ? str() : "");
  const Tensor low = ops::linear((*dropout_)(x), a, {});
  return ops::add(y, ops::mul(ops::linear(low, lora_B->weight, {}), scaling));
}

void ColumnProjection::members(nn::Members& m) {
  m("", linear);
  if (lora_A) m("lora_A", *lora_A), m("lora_B", *lora_B), m("lora_dropout", *dropout_);
}

void ColumnProjection::reset(Generator& generator) {
  linear.take(drawn(in_, out_, options_, generator));
  if (lora_A) lora_A->reset(generator), lora_B->take(zero(lora_A->weight.size(0), out_, options_.dtype));
}

void ColumnProjection::adapt(const LoraOptions& o) {
  scaling = checked_scaling(o, lora_A.has_value());
  dropout_.emplace(o.lora_dropout);
  lora_A.emplace(in_, o.r, false, options_.dtype);
  lora_B.emplace(linear.group(), zero(o.r, out_, options_.dtype), linear.sizes());
  settle(*lora_A, *this, linear.weight), settle(*lora_B, *this, linear.weight);
  dropout_->train(training());
}

void ColumnProjection::drop_adapter(bool merge) {
  if (lora_A && merge) merge_into(linear.weight, lora_A->weight, lora_B->weight, scaling);
  lora_A.reset(), lora_B.reset(), dropout_.reset();
}

RowProjection::RowProjection(const Group& group, int64_t in, int64_t out, const ProjectionOptions& o)
    : linear(group, drawn(in, out, o, next_generator()), o.sizes),
      group_(group),
      in_(in),
      out_(out),
      options_(o) {}

tp::Part RowProjection::operator()(const Tensor& x) {
  tp::Part part = linear(x);
  if (!lora_A) return part;
  const std::string layer = group_.size() > 1 ? str() : "";
  const Tensor a = ops::linear((*dropout_)(x), lora_A->weight, {});
  const Tensor b = tp::enter(lora_B->weight, group_, layer);
  part.summand = ops::add(part.summand, ops::mul(ops::linear(a, b, {}), scaling));
  return part;
}

void RowProjection::members(nn::Members& m) {
  m("", linear);
  if (lora_A) m("lora_A", *lora_A), m("lora_B", *lora_B), m("lora_dropout", *dropout_);
}

void RowProjection::reset(Generator& generator) {
  linear.take(drawn(in_, out_, options_, generator));
  if (!lora_A) return;
  const int64_t r = lora_B->weight.size(1);
  lora_A->take(nn::Linear(in_, r, generator, false, options_.dtype)), nn::init::zeros_(lora_B->weight);
}

void RowProjection::adapt(const LoraOptions& o) {
  scaling = checked_scaling(o, lora_A.has_value());
  nn::Dropout whole(o.lora_dropout);
  dropout_ = tp::own_dropout(o.lora_dropout, whole, "generator", group_);
  lora_A.emplace(group_, nn::Linear(in_, o.r, false, options_.dtype), options_.sizes);
  lora_B.emplace(zero(o.r, out_, options_.dtype));
  settle(*lora_A, *this, linear.weight), settle(*lora_B, *this, linear.weight);
  dropout_->train(training());
}

void RowProjection::drop_adapter(bool merge) {
  if (lora_A && merge) merge_into(linear.weight, lora_A->weight, lora_B->weight, scaling);
  lora_A.reset(), lora_B.reset(), dropout_.reset();
}

}  // namespace troupe::llm
