// The writes in place and the indexing that core/tensor/tensor.h declares as members of Tensor.
#include "core/base/error.h"
#include "core/tensor/tensor.h"
#include "ops/indexing.h"
#include "ops/inplace.h"

namespace troupe {
namespace {

// Whether somebody can see what is assigned to `t`, which is no variable.
void require_seen(const Tensor& t) {
  if (t.defined() && t.is_sole_handle())
    throw_invalid(
        "[=] the tensor " + t.str() +
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

Tensor Tensor::copy_(const Tensor& source) const {
  ops::copy_(*this, source);
  return *this;
}
Tensor Tensor::fill_(Scalar value) const {
  ops::fill_(*this, value);
  return *this;
}
Tensor Tensor::fill_(const Tensor& value) const {
  ops::fill_(*this, value);
  return *this;
}
Tensor Tensor::zero_() const {
  ops::fill_(*this, 0);
  return *this;
}
Tensor Tensor::add_(const Tensor& other, Scalar alpha) const {
  ops::add_(*this, other, alpha);
  return *this;
}
Tensor Tensor::add_(Scalar other, Scalar alpha) const {
  ops::add_(*this, times(alpha, other));
  return *this;
}
Tensor Tensor::sub_(const Tensor& other, Scalar alpha) const {
  ops::sub_(*this, other, alpha);
  return *this;
}
Tensor Tensor::sub_(Scalar other, Scalar alpha) const {
  ops::sub_(*this, times(alpha, other));
  return *this;
}
Tensor Tensor::mul_(const Tensor& other) const {
  ops::mul_(*this, other);
  return *this;
}
Tensor Tensor::mul_(Scalar other) const {
  ops::mul_(*this, other);
  return *this;
}
Tensor Tensor::div_(const Tensor& other) const {
  ops::div_(*this, other);
  return *this;
}
Tensor Tensor::div_(Scalar other) const {
  ops::div_(*this, other);
  return *this;
}
Tensor Tensor::pow_(const Tensor& other) const {
  ops::pow_(*this, other);
  return *this;
}
Tensor Tensor::pow_(Scalar other) const {
  ops::pow_(*this, other);
  return *this;
}
Tensor Tensor::clamp_(std::optional<Scalar> min, std::optional<Scalar> max) const {
  ops::clamp_(*this, min, max);
  return *this;
}
Tensor Tensor::addcmul_(const Tensor& a, const Tensor& b, Scalar value) const {
  ops::addcmul_(*this, a, b, value);
  return *this;
}
Tensor Tensor::addcdiv_(const Tensor& a, const Tensor& b, Scalar value) const {
  ops::addcdiv_(*this, a, b, value);
  return *this;
}
Tensor Tensor::lerp_(const Tensor& end, double weight) const {
  ops::lerp_(*this, end, weight);
  return *this;
}
Tensor Tensor::lerp_(const Tensor& end, const Tensor& weight) const {
  ops::lerp_(*this, end, weight);
  return *this;
}
Tensor Tensor::masked_fill_(const Tensor& mask, Scalar value) const {
  ops::masked_fill_(*this, mask, value);
  return *this;
}
Tensor Tensor::masked_fill_(const Tensor& mask, const Tensor& value) const {
  ops::masked_fill_(*this, mask, value);
  return *this;
}
Tensor Tensor::neg_() const {
  ops::neg_(*this);
  return *this;
}
Tensor Tensor::abs_() const {
  ops::abs_(*this);
  return *this;
}
Tensor Tensor::square_() const {
  ops::square_(*this);
  return *this;
}
Tensor Tensor::floor_() const {
  ops::floor_(*this);
  return *this;
}
Tensor Tensor::ceil_() const {
  ops::ceil_(*this);
  return *this;
}
Tensor Tensor::round_() const {
  ops::round_(*this);
  return *this;
}
Tensor Tensor::expm1_() const {
  ops::expm1_(*this);
  return *this;
}
Tensor Tensor::log1p_() const {
  ops::log1p_(*this);
  return *this;
}
Tensor Tensor::exp_() const {
  ops::exp_(*this);
  return *this;
}
Tensor Tensor::log_() const {
  ops::log_(*this);
  return *this;
}
Tensor Tensor::sqrt_() const {
  ops::sqrt_(*this);
  return *this;
}
Tensor Tensor::rsqrt_() const {
  ops::rsqrt_(*this);
  return *this;
}
Tensor Tensor::reciprocal_() const {
  ops::reciprocal_(*this);
  return *this;
}
Tensor Tensor::sin_() const {
  ops::sin_(*this);
  return *this;
}
Tensor Tensor::cos_() const {
  ops::cos_(*this);
  return *this;
}
Tensor Tensor::relu_() const {
  ops::relu_(*this);
  return *this;
}
Tensor Tensor::tanh_() const {
  ops::tanh_(*this);
  return *this;
}
Tensor Tensor::sigmoid_() const {
  ops::sigmoid_(*this);
  return *this;
}

Tensor Tensor::index(std::initializer_list<ViewIndex> indices) const {
  return ops::index(*this, std::vector<TensorIndex>(indices.begin(), indices.end()));
}
const Tensor Tensor::index(const std::vector<TensorIndex>& indices) const {
  return ops::index(*this, indices);
}
Tensor Tensor::index_put_(const std::vector<TensorIndex>& indices, const Tensor& value) const {
  ops::index_put_(*this, indices, value);
  return *this;
}
Tensor Tensor::index_put_(const std::vector<TensorIndex>& indices, Scalar value) const {
  ops::index_put_(*this, indices, value);
  return *this;
}

}  // namespace troupe
