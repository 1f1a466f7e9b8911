// The operators that are members of Tensor, with PyTorch's names, order of arguments and defaults. Each does
// what the function of its name does (ops/*.h says what that is).
#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "core/base/generator.h"
#include "core/memory/device.h"
#include "core/tensor/int_list.h"
#include "core/tensor/scalar.h"

namespace troupe {

class Tensor;
class TensorIndex;
class ViewIndex;
struct ValuesAndIndices;
using Tensors = std::vector<Tensor>;

/// Base of Tensor. Declared here, and defined in ops/methods*.cpp.
class TensorMethods {
 public:
  // ---- views, and copies in another shape
  Tensor transpose(int64_t dim0, int64_t dim1) const;
  Tensor t() const;
  Tensor permute(const IntList& dims) const;
  Tensor movedim(int64_t source, int64_t destination) const;
  Tensor movedim(const IntList& source, const IntList& destination) const;
  Tensor reshape(const IntList& shape) const;
  Tensor reshape_as(const Tensor& other) const;
  /// As reshape, but `invalid` where that would have to copy.
  Tensor view(const IntList& shape) const;
  Tensor view_as(const Tensor& other) const;
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const;
  Tensor squeeze() const;
  Tensor squeeze(int64_t dim) const;
  Tensor squeeze(const IntList& dim) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor expand(const IntList& shape) const;
  Tensor expand_as(const Tensor& other) const;
  Tensor broadcast_to(const IntList& size) const;
  Tensor unflatten(int64_t dim, const IntList& sizes) const;
  Tensor diagonal(int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1) const;
  Tensor slice(int64_t dim = 0, std::optional<int64_t> start = {}, std::optional<int64_t> stop = {},
               int64_t step = 1) const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensors unbind(int64_t dim = 0) const;
  Tensors split(int64_t split_size, int64_t dim = 0) const;
  Tensors split(const IntList& split_sizes, int64_t dim = 0) const;
  Tensors chunk(int64_t chunks, int64_t dim = 0) const;
  Tensor contiguous() const;
  Tensor clone() const;
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;
  Tensor to(Device device, DType dtype) const;
  Tensor type_as(const Tensor& other) const;
  Tensor flip(const IntList& dims) const;
  Tensor roll(const IntList& shifts, const IntList& dims = {}) const;
  Tensor repeat(const IntList& repeats) const;
  Tensor tile(const IntList& dims) const;
  Tensor repeat_interleave(int64_t repeats, std::optional<int64_t> dim = {}) const;
  Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> dim = {}) const;
  Tensor diag(int64_t diagonal = 0) const;
  Tensor diag_embed(int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1) const;
  Tensor tril(int64_t diagonal = 0) const;
  Tensor triu(int64_t diagonal = 0) const;
  Tensor diff(int64_t n = 1, int64_t dim = -1) const;

  // ---- picking and placing
  Tensor index_select(int64_t dim, const Tensor& index) const;
  Tensor gather(int64_t dim, const Tensor& index) const;
  Tensor scatter(int64_t dim, const Tensor& index, const Tensor& src) const;
  Tensor scatter(int64_t dim, const Tensor& index, Scalar value) const;
  Tensor scatter_reduce(int64_t dim, const Tensor& index, const Tensor& src, const std::string& reduce,
                        bool include_self = true) const;
  Tensor scatter_add(int64_t dim, const Tensor& index, const Tensor& src) const;
  Tensor index_copy(int64_t dim, const Tensor& index, const Tensor& source) const;
  Tensor index_fill(int64_t dim, const Tensor& index, Scalar value) const;
  Tensor index_fill(int64_t dim, const Tensor& index, const Tensor& value) const;
  Tensor index_put(const std::vector<TensorIndex>& indices, const Tensor& values,
                   bool accumulate = false) const;
  Tensor take_along_dim(const Tensor& indices, std::optional<int64_t> dim = {}) const;
  Tensor masked_fill(const Tensor& mask, Scalar value) const;
  Tensor masked_fill(const Tensor& mask, const Tensor& value) const;  ///< 0-d
  Tensor masked_select(const Tensor& mask) const;
  Tensor masked_scatter(const Tensor& mask, const Tensor& source) const;
  Tensor take(const Tensor& index) const;
  Tensor where(const Tensor& condition, const Tensor& other) const;
  Tensor where(const Tensor& condition, Scalar other) const;
  Tensor nonzero() const;
  /// Numbers, slices, None and Ellipsis give a view: `x.index({0, Slice(1, None)}) = y` writes to x
  /// (core/tensor/indexing.h).
  Tensor index(std::initializer_list<ViewIndex> indices) const;
  /// Tensors of bool or int64 give a copy. It is const so that nothing is assigned to it: use index_put_.
  const Tensor index(const std::vector<TensorIndex>& indices) const;

  // ---- arithmetic of two
  Tensor add(const Tensor& other) const;
  Tensor add(const Tensor& other, Scalar alpha) const;
  Tensor add(Scalar other) const;
  Tensor sub(const Tensor& other) const;
  Tensor sub(const Tensor& other, Scalar alpha) const;
  Tensor sub(Scalar other) const;
  Tensor mul(const Tensor& other) const;
  Tensor mul(Scalar other) const;
  Tensor div(const Tensor& other) const;
  Tensor div(Scalar other) const;
  Tensor div(const Tensor& other, const std::string& rounding_mode) const;
  Tensor div(Scalar other, const std::string& rounding_mode) const;
  Tensor logaddexp(const Tensor& other) const;
  Tensor pow(const Tensor& exponent) const;
  Tensor pow(Scalar exponent) const;
  Tensor floor_divide(const Tensor& other) const;
  Tensor floor_divide(Scalar other) const;
  Tensor remainder(const Tensor& other) const;
  Tensor remainder(Scalar other) const;
  Tensor fmod(const Tensor& other) const;
  Tensor fmod(Scalar other) const;
  Tensor atan2(const Tensor& other) const;
  Tensor maximum(const Tensor& other) const;
  Tensor minimum(const Tensor& other) const;
  Tensor lerp(const Tensor& end, Scalar weight) const;
  Tensor lerp(const Tensor& end, const Tensor& weight) const;
  Tensor addcmul(const Tensor& tensor1, const Tensor& tensor2, Scalar value = 1) const;
  Tensor addcdiv(const Tensor& tensor1, const Tensor& tensor2, Scalar value = 1) const;
  Tensor matmul(const Tensor& other) const;
  Tensor mm(const Tensor& mat2) const;
  Tensor bmm(const Tensor& mat2) const;
  Tensor mv(const Tensor& vec) const;
  Tensor dot(const Tensor& other) const;
  Tensor outer(const Tensor& vec2) const;
  Tensor addmm(const Tensor& mat1, const Tensor& mat2, Scalar beta = 1, Scalar alpha = 1) const;
  Tensor addmv(const Tensor& mat, const Tensor& vec, Scalar beta = 1, Scalar alpha = 1) const;
  Tensor addbmm(const Tensor& batch1, const Tensor& batch2, Scalar beta = 1, Scalar alpha = 1) const;
  Tensor baddbmm(const Tensor& batch1, const Tensor& batch2, Scalar beta = 1, Scalar alpha = 1) const;
  Tensor addr(const Tensor& vec1, const Tensor& vec2, Scalar beta = 1, Scalar alpha = 1) const;

  // ---- functions of each element
  Tensor neg() const;
  Tensor abs() const;
  Tensor square() const;
  Tensor sign() const;
  Tensor floor() const;
  Tensor ceil() const;
  Tensor round() const;
  Tensor trunc() const;
  Tensor exp() const;
  Tensor expm1() const;
  Tensor log() const;
  Tensor log1p() const;
  Tensor log2() const;
  Tensor sqrt() const;
  Tensor rsqrt() const;
  Tensor reciprocal() const;
  Tensor sin() const;
  Tensor cos() const;
  Tensor erf() const;
  Tensor tan() const;
  Tensor asin() const;
  Tensor acos() const;
  Tensor atan() const;
  Tensor sinh() const;
  Tensor cosh() const;
  Tensor asinh() const;
  Tensor acosh() const;
  Tensor atanh() const;
  Tensor exp2() const;
  Tensor log10() const;
  Tensor erfc() const;
  Tensor erfinv() const;
  Tensor relu() const;
  Tensor tanh() const;
  Tensor sigmoid() const;
  Tensor clamp(std::optional<Scalar> min = {}, std::optional<Scalar> max = {}) const;
  Tensor clamp(const Tensor& min) const;
  Tensor clamp(const Tensor& min, const Tensor& max) const;  ///< either may be undefined
  Tensor nan_to_num(double nan = 0, std::optional<double> posinf = {},
                    std::optional<double> neginf = {}) const;

  // ---- comparisons and logic: bool, but for allclose() and equal()
  Tensor eq(const Tensor& other) const;
  Tensor eq(Scalar other) const;
  Tensor ne(const Tensor& other) const;
  Tensor ne(Scalar other) const;
  Tensor lt(const Tensor& other) const;
  Tensor lt(Scalar other) const;
  Tensor le(const Tensor& other) const;
  Tensor le(Scalar other) const;
  Tensor gt(const Tensor& other) const;
  Tensor gt(Scalar other) const;
  Tensor ge(const Tensor& other) const;
  Tensor ge(Scalar other) const;
  Tensor logical_and(const Tensor& other) const;
  Tensor logical_or(const Tensor& other) const;
  Tensor logical_not() const;
  Tensor bitwise_and(const Tensor& other) const;
  Tensor bitwise_or(const Tensor& other) const;
  Tensor bitwise_xor(const Tensor& other) const;
  Tensor bitwise_not() const;
  Tensor isnan() const;
  Tensor isinf() const;
  Tensor isfinite() const;
  bool allclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) const;
  Tensor isclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) const;
  bool equal(const Tensor& other) const;

  // ---- over dimensions; no dimensions: over all
  Tensor sum(const IntList& dim = {}, bool keepdim = false) const;
  Tensor sum(const IntList& dim, bool keepdim, DType dtype) const;
  Tensor mean(const IntList& dim = {}, bool keepdim = false) const;
  Tensor mean(const IntList& dim, bool keepdim, DType dtype) const;
  Tensor prod(const IntList& dim = {}, bool keepdim = false) const;
  Tensor prod(const IntList& dim, bool keepdim, DType dtype) const;
  Tensor var(const IntList& dim = {}, bool unbiased = true, bool keepdim = false) const;
  Tensor std(const IntList& dim = {}, bool unbiased = true, bool keepdim = false) const;
  Tensor amax(const IntList& dim = {}, bool keepdim = false) const;
  Tensor amin(const IntList& dim = {}, bool keepdim = false) const;
  Tensor logsumexp(const IntList& dim, bool keepdim = false) const;
  Tensor any(const IntList& dim = {}, bool keepdim = false) const;
  Tensor all(const IntList& dim = {}, bool keepdim = false) const;
  Tensor count_nonzero(const IntList& dim = {}) const;
  Tensor norm(Scalar p = 2, const IntList& dim = {}, bool keepdim = false) const;
  Tensor norm(Scalar p, const IntList& dim, bool keepdim, DType dtype) const;
  Tensor max() const;
  Tensor max(const Tensor& other) const;
  ValuesAndIndices max(int64_t dim, bool keepdim = false) const;
  Tensor min() const;
  Tensor min(const Tensor& other) const;
  ValuesAndIndices min(int64_t dim, bool keepdim = false) const;
  Tensor median() const;
  ValuesAndIndices median(int64_t dim, bool keepdim = false) const;
  Tensor argmax(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor argmin(std::optional<int64_t> dim = {}, bool keepdim = false) const;

  // ---- along one dimension
  Tensor softmax(int64_t dim) const;
  Tensor softmax(int64_t dim, DType dtype) const;
  Tensor log_softmax(int64_t dim) const;
  Tensor log_softmax(int64_t dim, DType dtype) const;
  Tensor cumsum(int64_t dim) const;
  Tensor cumsum(int64_t dim, DType dtype) const;
  Tensor cumprod(int64_t dim) const;
  Tensor cumprod(int64_t dim, DType dtype) const;
  ValuesAndIndices cummax(int64_t dim) const;
  ValuesAndIndices cummin(int64_t dim) const;
  ValuesAndIndices kthvalue(int64_t k, int64_t dim = -1, bool keepdim = false) const;
  Tensor quantile(const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false,
                  const std::string& interpolation = "linear") const;
  Tensor quantile(double q, std::optional<int64_t> dim = {}, bool keepdim = false,
                  const std::string& interpolation = "linear") const;
  ValuesAndIndices sort(int64_t dim = -1, bool descending = false) const;
  Tensor argsort(int64_t dim = -1, bool descending = false) const;
  ValuesAndIndices topk(int64_t k, int64_t dim = -1, bool largest = true) const;
  Tensor bincount() const;
  Tensor bincount(const Tensor& weights, int64_t minlength = 0) const;

  // ---- random (ops/random.h); without a generator, from the stream of where the code runs
  Tensor bernoulli() const;
  Tensor bernoulli(AnyGenerator generator) const;
  Tensor multinomial(int64_t num_samples, bool replacement = false) const;
  Tensor multinomial(int64_t num_samples, bool replacement, AnyGenerator generator) const;

  // ---- writes in place, recorded as in PyTorch (docs/reference/contexts.md); each gives the tensor itself.
  // `invalid`, with nothing changed, for a result that has another shape or that the dtype cannot hold
  // (float32 in int64), a leaf that requires a gradient or a view of one while grad mode is on, and elements
  // that repeat.
  Tensor copy_(const Tensor& source) const;  ///< broadcast to this shape, converted to this dtype
  Tensor fill_(Scalar value) const;
  Tensor fill_(const Tensor& value) const;  ///< 0-d
  Tensor zero_() const;
  Tensor add_(const Tensor& other, Scalar alpha = 1) const;  ///< += alpha * other
  Tensor add_(Scalar other, Scalar alpha = 1) const;
  Tensor sub_(const Tensor& other, Scalar alpha = 1) const;
  Tensor sub_(Scalar other, Scalar alpha = 1) const;
  Tensor mul_(const Tensor& other) const;
  Tensor mul_(Scalar other) const;
  Tensor div_(const Tensor& other) const;
  Tensor div_(Scalar other) const;
  Tensor pow_(const Tensor& exponent) const;
  Tensor pow_(Scalar exponent) const;
  Tensor clamp_(std::optional<Scalar> min = {}, std::optional<Scalar> max = {}) const;
  Tensor addcmul_(const Tensor& tensor1, const Tensor& tensor2, Scalar value = 1) const;
  Tensor addcdiv_(const Tensor& tensor1, const Tensor& tensor2, Scalar value = 1) const;
  Tensor lerp_(const Tensor& end, double weight) const;  ///< += weight * (end - this)
  Tensor lerp_(const Tensor& end, const Tensor& weight) const;
  Tensor masked_fill_(const Tensor& mask, Scalar value) const;
  Tensor masked_fill_(const Tensor& mask, const Tensor& value) const;  ///< 0-d
  Tensor neg_() const;
  Tensor abs_() const;
  Tensor square_() const;
  Tensor floor_() const;
  Tensor ceil_() const;
  Tensor round_() const;
  Tensor exp_() const;
  Tensor expm1_() const;
  Tensor log_() const;
  Tensor log1p_() const;
  Tensor sqrt_() const;
  Tensor rsqrt_() const;
  Tensor reciprocal_() const;
  Tensor sin_() const;
  Tensor cos_() const;
  Tensor relu_() const;
  Tensor tanh_() const;
  Tensor sigmoid_() const;
  /// Writes there in place; `value` broadcasts. Where indices repeat, the last value stays.
  Tensor index_put_(const std::vector<TensorIndex>& indices, const Tensor& value,
                    bool accumulate = false) const;
  Tensor index_put_(const std::vector<TensorIndex>& indices, Scalar value) const;
  /// Random numbers, uniform in [from, to) or normal; not recorded.
  Tensor uniform_(double from = 0, double to = 1) const;
  Tensor normal_(double mean = 0, double std = 1) const;

 protected:
  TensorMethods() = default;

 private:
  const Tensor& self() const;
};

}  // namespace troupe
