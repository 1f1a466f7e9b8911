// The operators that core/tensor.h declares as members of Tensor.
#include "core/tensor.h"
#include "ops/activation.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe {

Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const { return ops::transpose(*this, dim0, dim1); }
Tensor Tensor::permute(const std::vector<int64_t>& dims) const { return ops::permute(*this, dims); }
Tensor Tensor::reshape(const std::vector<int64_t>& shape) const { return ops::reshape(*this, shape); }
Tensor Tensor::expand(const std::vector<int64_t>& shape) const { return ops::expand(*this, shape); }
Tensor Tensor::slice(int64_t dim, int64_t start, int64_t stop, int64_t step) const {
  return ops::slice(*this, dim, start, stop, step);
}
Tensor Tensor::contiguous() const { return ops::contiguous(*this); }
Tensor Tensor::clone() const { return ops::clone(*this); }
Tensor Tensor::to(DType dtype) const { return ops::to(*this, dtype); }
Tensor Tensor::matmul(const Tensor& other) const { return ops::matmul(*this, other); }
Tensor Tensor::sum() const { return ops::sum(*this); }
Tensor Tensor::sum(const std::vector<int64_t>& dims, bool keepdim) const {
  return ops::sum(*this, dims, keepdim);
}
Tensor Tensor::mean() const { return ops::mean(*this); }
Tensor Tensor::mean(const std::vector<int64_t>& dims, bool keepdim) const {
  return ops::mean(*this, dims, keepdim);
}
Tensor Tensor::argmax(int64_t dim) const { return ops::argmax(*this, dim); }
Tensor Tensor::relu() const { return ops::relu(*this); }
Tensor Tensor::exp() const { return ops::exp(*this); }
Tensor Tensor::log() const { return ops::log(*this); }
Tensor Tensor::tanh() const { return ops::tanh(*this); }
Tensor Tensor::sigmoid() const { return ops::sigmoid(*this); }
Tensor Tensor::square() const { return ops::square(*this); }
Tensor Tensor::sqrt() const { return ops::sqrt(*this); }

}  // namespace troupe
