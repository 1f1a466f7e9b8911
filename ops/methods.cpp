// The operators that core/tensor/tensor_methods.h declares as members of Tensor.
#include "core/tensor/indexing.h"
#include "ops/dispatch/check.h"
#include "ops/ops.h"

namespace troupe {
namespace {

// What is of all elements of x, with as many dimensions as x has.
Tensor kept(const Tensor& x, const Tensor& y, bool keepdim) {
  return keepdim ? ops::reshape(y, ops::to_list(Shape::filled(x.dim(), 1))) : y;
}

}  // namespace

Tensor TensorMethods::transpose(int64_t dim0, int64_t dim1) const {
  return ops::transpose(self(), dim0, dim1);
}
Tensor TensorMethods::t() const { return ops::t(self()); }
Tensor TensorMethods::permute(const IntList& dims) const { return ops::permute(self(), dims); }
Tensor TensorMethods::movedim(int64_t source, int64_t destination) const {
  return ops::movedim(self(), source, destination);
}
Tensor TensorMethods::reshape(const IntList& shape) const { return ops::reshape(self(), shape); }
Tensor TensorMethods::reshape_as(const Tensor& other) const {
  return ops::reshape(self(), ops::to_list(other.shape()));
}
Tensor TensorMethods::view(const IntList& shape) const { return ops::view(self(), shape); }
Tensor TensorMethods::view_as(const Tensor& other) const {
  return ops::view(self(), ops::to_list(other.shape()));
}
Tensor TensorMethods::flatten(int64_t start_dim, int64_t end_dim) const {
  return ops::flatten(self(), start_dim, end_dim);
}
Tensor TensorMethods::squeeze() const { return ops::squeeze(self()); }
Tensor TensorMethods::squeeze(int64_t dim) const { return ops::squeeze(self(), dim); }
Tensor TensorMethods::unsqueeze(int64_t dim) const { return ops::unsqueeze(self(), dim); }
Tensor TensorMethods::expand(const IntList& shape) const { return ops::expand(self(), shape); }
Tensor TensorMethods::expand_as(const Tensor& other) const {
  return ops::expand(self(), ops::to_list(other.shape()));
}
Tensor TensorMethods::slice(int64_t dim, std::optional<int64_t> start, std::optional<int64_t> stop,
                            int64_t step) const {
  return ops::slice(self(), dim, start, stop, step);
}
Tensor TensorMethods::select(int64_t dim, int64_t index) const { return ops::select(self(), dim, index); }
Tensor TensorMethods::narrow(int64_t dim, int64_t start, int64_t length) const {
  return ops::narrow(self(), dim, start, length);
}
Tensors TensorMethods::unbind(int64_t dim) const { return ops::unbind(self(), dim); }
Tensors TensorMethods::split(int64_t split_size, int64_t dim) const {
  return ops::split(self(), split_size, dim);
}
Tensors TensorMethods::split(const IntList& split_sizes, int64_t dim) const {
  return ops::split(self(), split_sizes, dim);
}
Tensors TensorMethods::chunk(int64_t chunks, int64_t dim) const { return ops::chunk(self(), chunks, dim); }
Tensor TensorMethods::contiguous() const { return ops::contiguous(self()); }
Tensor TensorMethods::clone() const { return ops::clone(self()); }
Tensor TensorMethods::to(DType dtype) const { return ops::to(self(), dtype); }
Tensor TensorMethods::to(Device device) const { return ops::to(self(), device); }
Tensor TensorMethods::to(Device device, DType dtype) const { return ops::to(ops::to(self(), device), dtype); }
Tensor TensorMethods::type_as(const Tensor& other) const { return to(other.device(), other.dtype()); }
Tensor TensorMethods::flip(const IntList& dims) const { return ops::flip(self(), dims); }
Tensor TensorMethods::roll(const IntList& shifts, const IntList& dims) const {
  return ops::roll(self(), shifts, dims);
}
Tensor TensorMethods::repeat(const IntList& repeats) const { return ops::repeat(self(), repeats); }
Tensor TensorMethods::tril(int64_t diagonal) const { return ops::tril(self(), diagonal); }
Tensor TensorMethods::triu(int64_t diagonal) const { return ops::triu(self(), diagonal); }
Tensor TensorMethods::diff(int64_t n, int64_t dim) const { return ops::diff(self(), n, dim); }
Tensor TensorMethods::index_select(int64_t dim, const Tensor& index) const {
  return ops::index_select(self(), dim, index);
}
Tensor TensorMethods::gather(int64_t dim, const Tensor& index) const {
  return ops::gather(self(), dim, index);
}
Tensor TensorMethods::scatter_add(int64_t dim, const Tensor& index, const Tensor& src) const {
  return ops::scatter_add(self(), dim, index, src);
}
Tensor TensorMethods::index_copy(int64_t dim, const Tensor& index, const Tensor& source) const {
  return ops::index_copy(self(), dim, index, source);
}
Tensor TensorMethods::masked_fill(const Tensor& mask, Scalar value) const {
  return ops::masked_fill(self(), mask, value);
}
Tensor TensorMethods::masked_fill(const Tensor& mask, const Tensor& value) const {
  return ops::masked_fill(self(), mask, value);
}
Tensor TensorMethods::masked_select(const Tensor& mask) const { return ops::masked_select(self(), mask); }
Tensor TensorMethods::take(const Tensor& index) const { return ops::take(self(), index); }
Tensor TensorMethods::where(const Tensor& condition, const Tensor& other) const {
  return ops::where(condition, self(), other);
}
Tensor TensorMethods::where(const Tensor& condition, Scalar other) const {
  return ops::where(condition, self(), other);
}
Tensor TensorMethods::nonzero() const { return ops::nonzero(self()); }
Tensor TensorMethods::add(const Tensor& other) const { return ops::add(self(), other); }
Tensor TensorMethods::add(const Tensor& other, Scalar alpha) const { return ops::add(self(), other, alpha); }
Tensor TensorMethods::add(Scalar other) const { return ops::add(self(), other); }
Tensor TensorMethods::sub(const Tensor& other) const { return ops::sub(self(), other); }
Tensor TensorMethods::sub(const Tensor& other, Scalar alpha) const { return ops::sub(self(), other, alpha); }
Tensor TensorMethods::sub(Scalar other) const { return ops::sub(self(), other); }
Tensor TensorMethods::mul(const Tensor& other) const { return ops::mul(self(), other); }
Tensor TensorMethods::mul(Scalar other) const { return ops::mul(self(), other); }
Tensor TensorMethods::div(const Tensor& other) const { return ops::div(self(), other); }
Tensor TensorMethods::div(Scalar other) const { return ops::div(self(), other); }
Tensor TensorMethods::pow(const Tensor& exponent) const { return ops::pow(self(), exponent); }
Tensor TensorMethods::pow(Scalar exponent) const { return ops::pow(self(), exponent); }
Tensor TensorMethods::floor_divide(const Tensor& other) const { return ops::floor_divide(self(), other); }
Tensor TensorMethods::floor_divide(Scalar other) const { return ops::floor_divide(self(), other); }
Tensor TensorMethods::remainder(const Tensor& other) const { return ops::remainder(self(), other); }
Tensor TensorMethods::remainder(Scalar other) const { return ops::remainder(self(), other); }
Tensor TensorMethods::fmod(const Tensor& other) const { return ops::fmod(self(), other); }
Tensor TensorMethods::fmod(Scalar other) const { return ops::fmod(self(), other); }
Tensor TensorMethods::atan2(const Tensor& other) const { return ops::atan2(self(), other); }
Tensor TensorMethods::maximum(const Tensor& other) const { return ops::maximum(self(), other); }
Tensor TensorMethods::minimum(const Tensor& other) const { return ops::minimum(self(), other); }
Tensor TensorMethods::lerp(const Tensor& end, Scalar weight) const { return ops::lerp(self(), end, weight); }
Tensor TensorMethods::lerp(const Tensor& end, const Tensor& weight) const {
  return ops::lerp(self(), end, weight);
}
Tensor TensorMethods::addcmul(const Tensor& tensor1, const Tensor& tensor2, Scalar value) const {
  return ops::addcmul(self(), tensor1, tensor2, value);
}
Tensor TensorMethods::addcdiv(const Tensor& tensor1, const Tensor& tensor2, Scalar value) const {
  return ops::addcdiv(self(), tensor1, tensor2, value);
}
Tensor TensorMethods::matmul(const Tensor& other) const { return ops::matmul(self(), other); }
Tensor TensorMethods::mm(const Tensor& mat2) const { return ops::mm(self(), mat2); }
Tensor TensorMethods::bmm(const Tensor& mat2) const { return ops::bmm(self(), mat2); }
Tensor TensorMethods::mv(const Tensor& vec) const { return ops::mv(self(), vec); }
Tensor TensorMethods::dot(const Tensor& other) const { return ops::dot(self(), other); }
Tensor TensorMethods::outer(const Tensor& vec2) const { return ops::outer(self(), vec2); }
Tensor TensorMethods::neg() const { return ops::neg(self()); }
Tensor TensorMethods::abs() const { return ops::abs(self()); }
Tensor TensorMethods::square() const { return ops::square(self()); }
Tensor TensorMethods::sign() const { return ops::sign(self()); }
Tensor TensorMethods::floor() const { return ops::floor(self()); }
Tensor TensorMethods::ceil() const { return ops::ceil(self()); }
Tensor TensorMethods::round() const { return ops::round(self()); }
Tensor TensorMethods::trunc() const { return ops::trunc(self()); }
Tensor TensorMethods::exp() const { return ops::exp(self()); }
Tensor TensorMethods::expm1() const { return ops::expm1(self()); }
Tensor TensorMethods::log() const { return ops::log(self()); }
Tensor TensorMethods::log1p() const { return ops::log1p(self()); }
Tensor TensorMethods::log2() const { return ops::log2(self()); }
Tensor TensorMethods::sqrt() const { return ops::sqrt(self()); }
Tensor TensorMethods::rsqrt() const { return ops::rsqrt(self()); }
Tensor TensorMethods::reciprocal() const { return ops::reciprocal(self()); }
Tensor TensorMethods::sin() const { return ops::sin(self()); }
Tensor TensorMethods::cos() const { return ops::cos(self()); }
Tensor TensorMethods::erf() const { return ops::erf(self()); }
Tensor TensorMethods::relu() const { return ops::relu(self()); }
Tensor TensorMethods::tanh() const { return ops::tanh(self()); }
Tensor TensorMethods::sigmoid() const { return ops::sigmoid(self()); }
Tensor TensorMethods::clamp(std::optional<Scalar> min, std::optional<Scalar> max) const {
  return ops::clamp(self(), min, max);
}
Tensor TensorMethods::eq(const Tensor& other) const { return ops::eq(self(), other); }
Tensor TensorMethods::eq(Scalar other) const { return ops::eq(self(), other); }
Tensor TensorMethods::ne(const Tensor& other) const { return ops::ne(self(), other); }
Tensor TensorMethods::ne(Scalar other) const { return ops::ne(self(), other); }
Tensor TensorMethods::lt(const Tensor& other) const { return ops::lt(self(), other); }
Tensor TensorMethods::lt(Scalar other) const { return ops::lt(self(), other); }
Tensor TensorMethods::le(const Tensor& other) const { return ops::le(self(), other); }
Tensor TensorMethods::le(Scalar other) const { return ops::le(self(), other); }
Tensor TensorMethods::gt(const Tensor& other) const { return ops::gt(self(), other); }
Tensor TensorMethods::gt(Scalar other) const { return ops::gt(self(), other); }
Tensor TensorMethods::ge(const Tensor& other) const { return ops::ge(self(), other); }
Tensor TensorMethods::ge(Scalar other) const { return ops::ge(self(), other); }
Tensor TensorMethods::logical_and(const Tensor& other) const { return ops::logical_and(self(), other); }
Tensor TensorMethods::logical_or(const Tensor& other) const { return ops::logical_or(self(), other); }
Tensor TensorMethods::logical_not() const { return ops::logical_not(self()); }
Tensor TensorMethods::bitwise_and(const Tensor& other) const { return ops::bitwise_and(self(), other); }
Tensor TensorMethods::bitwise_or(const Tensor& other) const { return ops::bitwise_or(self(), other); }
Tensor TensorMethods::bitwise_xor(const Tensor& other) const { return ops::bitwise_xor(self(), other); }
Tensor TensorMethods::bitwise_not() const { return ops::bitwise_not(self()); }
Tensor TensorMethods::isnan() const { return ops::isnan(self()); }
Tensor TensorMethods::isinf() const { return ops::isinf(self()); }
Tensor TensorMethods::isfinite() const { return ops::isfinite(self()); }
bool TensorMethods::allclose(const Tensor& other, double rtol, double atol, bool equal_nan) const {
  return ops::allclose(self(), other, rtol, atol, equal_nan);
}
bool TensorMethods::equal(const Tensor& other) const { return ops::equal(self(), other); }
Tensor TensorMethods::sum(const IntList& dim, bool keepdim) const {
  return dim.empty() && !keepdim ? ops::sum(self()) : ops::sum(self(), dim, keepdim);
}
Tensor TensorMethods::mean(const IntList& dim, bool keepdim) const {
  return dim.empty() && !keepdim ? ops::mean(self()) : ops::mean(self(), dim, keepdim);
}
Tensor TensorMethods::prod(const IntList& dim, bool keepdim) const { return ops::prod(self(), dim, keepdim); }
Tensor TensorMethods::var(const IntList& dim, bool unbiased, bool keepdim) const {
  return ops::var(self(), dim, unbiased, keepdim);
}
Tensor TensorMethods::std(const IntList& dim, bool unbiased, bool keepdim) const {
  return ops::std(self(), dim, unbiased, keepdim);
}
Tensor TensorMethods::amax(const IntList& dim, bool keepdim) const { return ops::amax(self(), dim, keepdim); }
Tensor TensorMethods::amin(const IntList& dim, bool keepdim) const { return ops::amin(self(), dim, keepdim); }
Tensor TensorMethods::logsumexp(const IntList& dim, bool keepdim) const {
  return ops::logsumexp(self(), dim, keepdim);
}
Tensor TensorMethods::any(const IntList& dim, bool keepdim) const { return ops::any(self(), dim, keepdim); }
Tensor TensorMethods::all(const IntList& dim, bool keepdim) const { return ops::all(self(), dim, keepdim); }
Tensor TensorMethods::count_nonzero(const IntList& dim) const { return ops::count_nonzero(self(), dim); }
Tensor TensorMethods::norm(Scalar p, const IntList& dim, bool keepdim) const {
  return ops::norm(self(), p, dim, keepdim);
}
Tensor TensorMethods::max() const { return ops::max(self()); }
Tensor TensorMethods::max(const Tensor& other) const { return ops::max(self(), other); }
ValuesAndIndices TensorMethods::max(int64_t dim, bool keepdim) const {
  return ops::max(self(), dim, keepdim);
}
Tensor TensorMethods::min() const { return ops::min(self()); }
Tensor TensorMethods::min(const Tensor& other) const { return ops::min(self(), other); }
ValuesAndIndices TensorMethods::min(int64_t dim, bool keepdim) const {
  return ops::min(self(), dim, keepdim);
}
Tensor TensorMethods::median() const { return ops::median(self()); }
ValuesAndIndices TensorMethods::median(int64_t dim, bool keepdim) const {
  return ops::median(self(), dim, keepdim);
}
Tensor TensorMethods::argmax(std::optional<int64_t> dim, bool keepdim) const {
  return dim ? ops::argmax(self(), *dim, keepdim) : kept(self(), ops::argmax(self()), keepdim);
}
Tensor TensorMethods::argmin(std::optional<int64_t> dim, bool keepdim) const {
  return dim ? ops::argmin(self(), *dim, keepdim) : kept(self(), ops::argmin(self()), keepdim);
}
Tensor TensorMethods::softmax(int64_t dim) const { return ops::softmax(self(), dim); }
Tensor TensorMethods::log_softmax(int64_t dim) const { return ops::log_softmax(self(), dim); }
Tensor TensorMethods::cumsum(int64_t dim) const { return ops::cumsum(self(), dim); }
Tensor TensorMethods::cumprod(int64_t dim) const { return ops::cumprod(self(), dim); }
ValuesAndIndices TensorMethods::sort(int64_t dim, bool descending) const {
  return ops::sort(self(), dim, descending);
}
Tensor TensorMethods::argsort(int64_t dim, bool descending) const {
  return ops::argsort(self(), dim, descending);
}
ValuesAndIndices TensorMethods::topk(int64_t k, int64_t dim, bool largest) const {
  return ops::topk(self(), k, dim, largest);
}
Tensor TensorMethods::bincount() const { return ops::bincount(self()); }
Tensor TensorMethods::bincount(const Tensor& weights, int64_t minlength) const {
  return ops::bincount(self(), weights, minlength);
}
Tensor TensorMethods::bernoulli() const { return ops::bernoulli(self()); }
Tensor TensorMethods::bernoulli(AnyGenerator generator) const { return ops::bernoulli(self(), generator); }
Tensor TensorMethods::multinomial(int64_t num_samples, bool replacement) const {
  return ops::multinomial(self(), num_samples, replacement);
}
Tensor TensorMethods::multinomial(int64_t num_samples, bool replacement, AnyGenerator generator) const {
  return ops::multinomial(self(), num_samples, replacement, generator);
}

Tensor TensorMethods::tan() const { return ops::tan(self()); }
Tensor TensorMethods::asin() const { return ops::asin(self()); }
Tensor TensorMethods::acos() const { return ops::acos(self()); }
Tensor TensorMethods::atan() const { return ops::atan(self()); }
Tensor TensorMethods::sinh() const { return ops::sinh(self()); }
Tensor TensorMethods::cosh() const { return ops::cosh(self()); }
Tensor TensorMethods::asinh() const { return ops::asinh(self()); }
Tensor TensorMethods::acosh() const { return ops::acosh(self()); }
Tensor TensorMethods::atanh() const { return ops::atanh(self()); }
Tensor TensorMethods::exp2() const { return ops::exp2(self()); }
Tensor TensorMethods::log10() const { return ops::log10(self()); }
Tensor TensorMethods::erfc() const { return ops::erfc(self()); }
Tensor TensorMethods::erfinv() const { return ops::erfinv(self()); }
Tensor TensorMethods::movedim(const IntList& source, const IntList& destination) const {
  return ops::movedim(self(), source, destination);
}
Tensor TensorMethods::squeeze(const IntList& dim) const { return ops::squeeze(self(), dim); }
Tensor TensorMethods::broadcast_to(const IntList& size) const { return ops::broadcast_to(self(), size); }
Tensor TensorMethods::unflatten(int64_t dim, const IntList& sizes) const {
  return ops::unflatten(self(), dim, sizes);
}
Tensor TensorMethods::diagonal(int64_t offset, int64_t dim1, int64_t dim2) const {
  return ops::diagonal(self(), offset, dim1, dim2);
}
Tensor TensorMethods::tile(const IntList& dims) const { return ops::tile(self(), dims); }
Tensor TensorMethods::repeat_interleave(int64_t repeats, std::optional<int64_t> dim) const {
  return ops::repeat_interleave(self(), repeats, dim);
}
Tensor TensorMethods::repeat_interleave(const Tensor& repeats, std::optional<int64_t> dim) const {
  return ops::repeat_interleave(self(), repeats, dim);
}
Tensor TensorMethods::diag(int64_t diagonal) const { return ops::diag(self(), diagonal); }
Tensor TensorMethods::diag_embed(int64_t offset, int64_t dim1, int64_t dim2) const {
  return ops::diag_embed(self(), offset, dim1, dim2);
}
Tensor TensorMethods::scatter(int64_t dim, const Tensor& index, const Tensor& src) const {
  return ops::scatter(self(), dim, index, src);
}
Tensor TensorMethods::scatter(int64_t dim, const Tensor& index, Scalar value) const {
  return ops::scatter(self(), dim, index, value);
}
Tensor TensorMethods::scatter_reduce(int64_t dim, const Tensor& index, const Tensor& src,
                                     const std::string& reduce, bool include_self) const {
  return ops::scatter_reduce(self(), dim, index, src, reduce, include_self);
}
Tensor TensorMethods::index_fill(int64_t dim, const Tensor& index, Scalar value) const {
  return ops::index_fill(self(), dim, index, value);
}
Tensor TensorMethods::index_fill(int64_t dim, const Tensor& index, const Tensor& value) const {
  return ops::index_fill(self(), dim, index, value);
}
Tensor TensorMethods::index_put(const std::vector<TensorIndex>& indices, const Tensor& values,
                                bool accumulate) const {
  return ops::index_put(self(), indices, values, accumulate);
}
Tensor TensorMethods::take_along_dim(const Tensor& indices, std::optional<int64_t> dim) const {
  return ops::take_along_dim(self(), indices, dim);
}
Tensor TensorMethods::masked_scatter(const Tensor& mask, const Tensor& source) const {
  return ops::masked_scatter(self(), mask, source);
}
Tensor TensorMethods::div(const Tensor& other, const std::string& rounding_mode) const {
  return ops::div(self(), other, rounding_mode);
}
Tensor TensorMethods::div(Scalar other, const std::string& rounding_mode) const {
  return ops::div(self(), other, rounding_mode);
}
Tensor TensorMethods::logaddexp(const Tensor& other) const { return ops::logaddexp(self(), other); }
Tensor TensorMethods::addmm(const Tensor& mat1, const Tensor& mat2, Scalar beta, Scalar alpha) const {
  return ops::addmm(self(), mat1, mat2, beta, alpha);
}
Tensor TensorMethods::addmv(const Tensor& mat, const Tensor& vec, Scalar beta, Scalar alpha) const {
  return ops::addmv(self(), mat, vec, beta, alpha);
}
Tensor TensorMethods::addbmm(const Tensor& batch1, const Tensor& batch2, Scalar beta, Scalar alpha) const {
  return ops::addbmm(self(), batch1, batch2, beta, alpha);
}
Tensor TensorMethods::baddbmm(const Tensor& batch1, const Tensor& batch2, Scalar beta, Scalar alpha) const {
  return ops::baddbmm(self(), batch1, batch2, beta, alpha);
}
Tensor TensorMethods::addr(const Tensor& vec1, const Tensor& vec2, Scalar beta, Scalar alpha) const {
  return ops::addr(self(), vec1, vec2, beta, alpha);
}
Tensor TensorMethods::clamp(const Tensor& min) const { return ops::clamp(self(), min, Tensor()); }
Tensor TensorMethods::clamp(const Tensor& min, const Tensor& max) const {
  return ops::clamp(self(), min, max);
}
Tensor TensorMethods::nan_to_num(double nan, std::optional<double> posinf,
                                 std::optional<double> neginf) const {
  return ops::nan_to_num(self(), nan, posinf, neginf);
}
Tensor TensorMethods::isclose(const Tensor& other, double rtol, double atol, bool equal_nan) const {
  return ops::isclose(self(), other, rtol, atol, equal_nan);
}
Tensor TensorMethods::sum(const IntList& dim, bool keepdim, DType dtype) const {
  return ops::sum(self(), dim, keepdim, dtype);
}
Tensor TensorMethods::mean(const IntList& dim, bool keepdim, DType dtype) const {
  return ops::mean(self(), dim, keepdim, dtype);
}
Tensor TensorMethods::prod(const IntList& dim, bool keepdim, DType dtype) const {
  return ops::prod(self(), dim, keepdim, dtype);
}
Tensor TensorMethods::norm(Scalar p, const IntList& dim, bool keepdim, DType dtype) const {
  return ops::norm(self(), p, dim, keepdim, dtype);
}
Tensor TensorMethods::softmax(int64_t dim, DType dtype) const { return ops::softmax(self(), dim, dtype); }
Tensor TensorMethods::log_softmax(int64_t dim, DType dtype) const {
  return ops::log_softmax(self(), dim, dtype);
}
Tensor TensorMethods::cumsum(int64_t dim, DType dtype) const { return ops::cumsum(self(), dim, dtype); }
Tensor TensorMethods::cumprod(int64_t dim, DType dtype) const { return ops::cumprod(self(), dim, dtype); }
ValuesAndIndices TensorMethods::cummax(int64_t dim) const { return ops::cummax(self(), dim); }
ValuesAndIndices TensorMethods::cummin(int64_t dim) const { return ops::cummin(self(), dim); }
ValuesAndIndices TensorMethods::kthvalue(int64_t k, int64_t dim, bool keepdim) const {
  return ops::kthvalue(self(), k, dim, keepdim);
}
Tensor TensorMethods::quantile(const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                               const std::string& interpolation) const {
  return ops::quantile(self(), q, dim, keepdim, interpolation);
}
Tensor TensorMethods::quantile(double q, std::optional<int64_t> dim, bool keepdim,
                               const std::string& interpolation) const {
  return ops::quantile(self(), q, dim, keepdim, interpolation);
}

Tensor TensorMethods::index(std::initializer_list<ViewIndex> indices) const {
  return ops::index(self(), std::vector<TensorIndex>(indices.begin(), indices.end()));
}
const Tensor TensorMethods::index(const std::vector<TensorIndex>& indices) const {
  return ops::index(self(), indices);
}
Tensor Tensor::operator[](const ViewIndex& index) const { return ops::index(*this, {index}); }
const Tensor Tensor::operator[](const Tensor& index) const { return ops::index(*this, {index}); }

}  // namespace troupe
