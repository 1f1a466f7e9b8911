// The operators that core/tensor/tensor.h declares as members of Tensor.
#include "core/tensor/tensor.h"
#include "ops/ops.h"

namespace troupe {

Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const { return ops::transpose(*this, dim0, dim1); }
Tensor Tensor::permute(const Ints& dims) const { return ops::permute(*this, dims); }
Tensor Tensor::reshape(const Ints& shape) const { return ops::reshape(*this, shape); }
Tensor Tensor::view(const Ints& shape) const { return ops::view(*this, shape); }
Tensor Tensor::flatten(int64_t start_dim, int64_t end_dim) const {
  return ops::flatten(*this, start_dim, end_dim);
}
Tensor Tensor::squeeze(int64_t dim) const { return ops::squeeze(*this, dim); }
Tensor Tensor::unsqueeze(int64_t dim) const { return ops::unsqueeze(*this, dim); }
Tensor Tensor::expand(const Ints& shape) const { return ops::expand(*this, shape); }
Tensor Tensor::slice(int64_t dim, int64_t start, int64_t stop, int64_t step) const {
  return ops::slice(*this, dim, start, stop, step);
}
Tensor Tensor::select(int64_t dim, int64_t index) const { return ops::select(*this, dim, index); }
Tensors Tensor::split(int64_t size, int64_t dim) const { return ops::split(*this, size, dim); }
Tensors Tensor::split(const Ints& sizes, int64_t dim) const { return ops::split(*this, sizes, dim); }
Tensors Tensor::chunk(int64_t chunks, int64_t dim) const { return ops::chunk(*this, chunks, dim); }
Tensor Tensor::contiguous() const { return ops::contiguous(*this); }
Tensor Tensor::clone() const { return ops::clone(*this); }
Tensor Tensor::to(DType dtype) const { return ops::to(*this, dtype); }
Tensor Tensor::to(Device device) const { return ops::to(*this, device); }
Tensor Tensor::to(Device device, DType dtype) const { return ops::to(ops::to(*this, device), dtype); }
Tensor Tensor::index_select(int64_t dim, const Tensor& index) const {
  return ops::index_select(*this, index, dim);
}
Tensor Tensor::gather(int64_t dim, const Tensor& index) const { return ops::gather(*this, index, dim); }
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const {
  return ops::masked_fill(*this, mask, value);
}
Tensor Tensor::flip(const Ints& dims) const { return ops::flip(*this, dims); }
Tensor Tensor::tril(int64_t diagonal) const { return ops::tril(*this, diagonal); }
Tensor Tensor::triu(int64_t diagonal) const { return ops::triu(*this, diagonal); }

Tensor Tensor::matmul(const Tensor& other) const { return ops::matmul(*this, other); }
Tensor Tensor::pow(Scalar exponent) const { return ops::pow(*this, exponent); }
Tensor Tensor::pow(const Tensor& exponent) const { return ops::pow(*this, exponent); }
Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max) const {
  return ops::clamp(*this, min, max);
}
Tensor Tensor::gelu(const std::string& approximate) const { return ops::gelu(*this, approximate); }
Tensor Tensor::softmax(int64_t dim) const { return ops::softmax(*this, dim); }
Tensor Tensor::log_softmax(int64_t dim) const { return ops::log_softmax(*this, dim); }
Tensor Tensor::abs() const { return ops::abs(*this); }
Tensor Tensor::exp() const { return ops::exp(*this); }
Tensor Tensor::log() const { return ops::log(*this); }
Tensor Tensor::square() const { return ops::square(*this); }
Tensor Tensor::sqrt() const { return ops::sqrt(*this); }
Tensor Tensor::relu() const { return ops::relu(*this); }
Tensor Tensor::silu() const { return ops::silu(*this); }
Tensor Tensor::tanh() const { return ops::tanh(*this); }
Tensor Tensor::sigmoid() const { return ops::sigmoid(*this); }

Tensor Tensor::sum() const { return ops::sum(*this); }
Tensor Tensor::mean() const { return ops::mean(*this); }
Tensor Tensor::norm() const { return ops::norm(*this); }
Tensor Tensor::any() const { return ops::any(*this); }
Tensor Tensor::all() const { return ops::all(*this); }
Tensor Tensor::isnan() const { return ops::isnan(*this); }
Tensor Tensor::isfinite() const { return ops::isfinite(*this); }
Tensor Tensor::logical_not() const { return ops::logical_not(*this); }
Tensor Tensor::sum(const Ints& dims, bool keepdim) const { return ops::sum(*this, dims, keepdim); }
Tensor Tensor::mean(const Ints& dims, bool keepdim) const { return ops::mean(*this, dims, keepdim); }
Tensor Tensor::amax(const Ints& dims, bool keepdim) const { return ops::amax(*this, dims, keepdim); }
Tensor Tensor::amin(const Ints& dims, bool keepdim) const { return ops::amin(*this, dims, keepdim); }
Tensor Tensor::var(const Ints& dims, bool unbiased, bool keepdim) const {
  return ops::var(*this, dims, unbiased, keepdim);
}
Tensor Tensor::argmax(int64_t dim) const { return ops::argmax(*this, dim); }
Tensor Tensor::argmin(int64_t dim) const { return ops::argmin(*this, dim); }
Tensor Tensor::cumsum(int64_t dim) const { return ops::cumsum(*this, dim); }
std::pair<Tensor, Tensor> Tensor::sort(int64_t dim, bool descending) const {
  ops::Sorted s = ops::sort(*this, dim, descending);
  return {std::move(s.values), std::move(s.indices)};
}
std::pair<Tensor, Tensor> Tensor::topk(int64_t k, int64_t dim, bool largest) const {
  ops::Sorted s = ops::topk(*this, k, dim, largest);
  return {std::move(s.values), std::move(s.indices)};
}

Tensor Tensor::eq(const Tensor& other) const { return ops::eq(*this, other); }
Tensor Tensor::ne(const Tensor& other) const { return ops::ne(*this, other); }
Tensor Tensor::lt(const Tensor& other) const { return ops::lt(*this, other); }
Tensor Tensor::le(const Tensor& other) const { return ops::le(*this, other); }
Tensor Tensor::gt(const Tensor& other) const { return ops::gt(*this, other); }
Tensor Tensor::ge(const Tensor& other) const { return ops::ge(*this, other); }
Tensor Tensor::eq(Scalar other) const { return ops::eq(*this, other); }
Tensor Tensor::ne(Scalar other) const { return ops::ne(*this, other); }
Tensor Tensor::lt(Scalar other) const { return ops::lt(*this, other); }
Tensor Tensor::le(Scalar other) const { return ops::le(*this, other); }
Tensor Tensor::gt(Scalar other) const { return ops::gt(*this, other); }
Tensor Tensor::ge(Scalar other) const { return ops::ge(*this, other); }

}  // namespace troupe
