// The writes in place that core/tensor/tensor_methods.h declares as members of Tensor.
#include "core/base/error.h"
#include "core/tensor/indexing.h"
#include "ops/indexing.h"
#include "ops/inplace.h"
#include "ops/operators.h"
#include "ops/random.h"

namespace troupe {
namespace {

// Whether somebody can see what is assigned to `t`, which is no variable.
void require_seen(const Tensor& t) {
  if (t.defined() && t.is_sole_handle())
    throw_invalid(
        "[=] the tensor " + t.summary() +
        " is no view, and nobody else holds it, so that what is assigned to it would be lost: assign "
        "to a variable or a view, or use index_put_()");
}

Scalar times(const Scalar& alpha, const Scalar& other) {
  if (alpha == Scalar(1)) return other;
  if (alpha.is_floating() || other.is_floating()) return alpha.to<double>() * other.to<double>();
  return convert<int64_t>(static_cast<uint64_t>(alpha.to<int64_t>()) *
                          static_cast<uint64_t>(other.to<int64_t>()));
}

}  // namespace

Tensor Tensor::operator=(const Tensor& source) && {
  require_seen(*this);
  return copy_(source);
}
Tensor Tensor::operator=(Scalar value) && {
  require_seen(*this);
  return fill_(value);
}

Tensor TensorMethods::copy_(const Tensor& source) const {
  ops::copy_(self(), source);
  return self();
}
Tensor TensorMethods::fill_(Scalar value) const {
  ops::fill_(self(), value);
  return self();
}
Tensor TensorMethods::fill_(const Tensor& value) const {
  ops::fill_(self(), value);
  return self();
}
Tensor TensorMethods::zero_() const {
  ops::fill_(self(), 0);
  return self();
}
Tensor TensorMethods::add_(const Tensor& other, Scalar alpha) const {
  ops::add_(self(), other, alpha);
  return self();
}
Tensor TensorMethods::add_(Scalar other, Scalar alpha) const {
  ops::add_(self(), times(alpha, other));
  return self();
}
Tensor TensorMethods::sub_(const Tensor& other, Scalar alpha) const {
  ops::sub_(self(), other, alpha);
  return self();
}
Tensor TensorMethods::sub_(Scalar other, Scalar alpha) const {
  ops::sub_(self(), times(alpha, other));
  return self();
}
Tensor TensorMethods::mul_(const Tensor& other) const {
  ops::mul_(self(), other);
  return self();
}
Tensor TensorMethods::mul_(Scalar other) const {
  ops::mul_(self(), other);
  return self();
}
Tensor TensorMethods::div_(const Tensor& other) const {
  ops::div_(self(), other);
  return self();
}
Tensor TensorMethods::div_(Scalar other) const {
  ops::div_(self(), other);
  return self();
}
Tensor TensorMethods::pow_(const Tensor& exponent) const {
  ops::pow_(self(), exponent);
  return self();
}
Tensor TensorMethods::pow_(Scalar exponent) const {
  ops::pow_(self(), exponent);
  return self();
}
Tensor TensorMethods::clamp_(std::optional<Scalar> min, std::optional<Scalar> max) const {
  ops::clamp_(self(), min, max);
  return self();
}
Tensor TensorMethods::addcmul_(const Tensor& tensor1, const Tensor& tensor2, Scalar value) const {
  ops::addcmul_(self(), tensor1, tensor2, value);
  return self();
}
Tensor TensorMethods::addcdiv_(const Tensor& tensor1, const Tensor& tensor2, Scalar value) const {
  ops::addcdiv_(self(), tensor1, tensor2, value);
  return self();
}
Tensor TensorMethods::lerp_(const Tensor& end, double weight) const {
  ops::lerp_(self(), end, weight);
  return self();
}
Tensor TensorMethods::lerp_(const Tensor& end, const Tensor& weight) const {
  ops::lerp_(self(), end, weight);
  return self();
}
Tensor TensorMethods::masked_fill_(const Tensor& mask, Scalar value) const {
  ops::masked_fill_(self(), mask, value);
  return self();
}
Tensor TensorMethods::masked_fill_(const Tensor& mask, const Tensor& value) const {
  ops::masked_fill_(self(), mask, value);
  return self();
}
Tensor TensorMethods::neg_() const {
  ops::neg_(self());
  return self();
}
Tensor TensorMethods::abs_() const {
  ops::abs_(self());
  return self();
}
Tensor TensorMethods::square_() const {
  ops::square_(self());
  return self();
}
Tensor TensorMethods::floor_() const {
  ops::floor_(self());
  return self();
}
Tensor TensorMethods::ceil_() const {
  ops::ceil_(self());
  return self();
}
Tensor TensorMethods::round_() const {
  ops::round_(self());
  return self();
}
Tensor TensorMethods::exp_() const {
  ops::exp_(self());
  return self();
}
Tensor TensorMethods::expm1_() const {
  ops::expm1_(self());
  return self();
}
Tensor TensorMethods::log_() const {
  ops::log_(self());
  return self();
}
Tensor TensorMethods::log1p_() const {
  ops::log1p_(self());
  return self();
}
Tensor TensorMethods::sqrt_() const {
  ops::sqrt_(self());
  return self();
}
Tensor TensorMethods::rsqrt_() const {
  ops::rsqrt_(self());
  return self();
}
Tensor TensorMethods::reciprocal_() const {
  ops::reciprocal_(self());
  return self();
}
Tensor TensorMethods::sin_() const {
  ops::sin_(self());
  return self();
}
Tensor TensorMethods::cos_() const {
  ops::cos_(self());
  return self();
}
Tensor TensorMethods::relu_() const {
  ops::relu_(self());
  return self();
}
Tensor TensorMethods::tanh_() const {
  ops::tanh_(self());
  return self();
}
Tensor TensorMethods::sigmoid_() const {
  ops::sigmoid_(self());
  return self();
}
Tensor TensorMethods::uniform_(double from, double to) const {
  ops::copy_(self(), ops::rand_like(self()) * (to - from) + from);
  return self();
}
Tensor TensorMethods::normal_(double mean, double std) const {
  ops::copy_(self(), ops::randn_like(self()) * std + mean);
  return self();
}
Tensor TensorMethods::index_put_(const std::vector<TensorIndex>& indices, const Tensor& value,
                                 bool accumulate) const {
  ops::index_put_(self(), indices, value, accumulate);
  return self();
}
Tensor TensorMethods::index_put_(const std::vector<TensorIndex>& indices, Scalar value) const {
  ops::index_put_(self(), indices, value);
  return self();
}

}  // namespace troupe
