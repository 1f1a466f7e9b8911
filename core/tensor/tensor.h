// Tensor: a handle on a typed, strided view of a storage, with its place in the recorded graph.
#pragma once
#include <atomic>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/memory/device.h"
#include "core/memory/ref.h"
#include "core/memory/storage.h"
#include "core/tensor/dtype.h"
#include "core/tensor/scalar.h"
#include "core/tensor/shape.h"

namespace troupe {

class Node;
class Tensor;
class TensorIndex;
class ViewIndex;
struct AutogradMeta;
using Tensors = std::vector<Tensor>;

/// Where a gradient goes next: input number `input` of `node`. An empty node means that nobody wants it.
struct Edge {
  Ref<Node> node;
  uint32_t input = 0;
  explicit operator bool() const { return static_cast<bool>(node); }
};

/// How a view was made, which says whether writes in place to it can be recorded.
enum class ViewOrigin : uint8_t {
  plain,
  no_grad,         ///< while grad mode was off
  one_of_several,  ///< as one of the results of an operator (split)
  own_function,    ///< by a forward function of the user (autograd/function.h)
};

/// What a Tensor points at. Sizes, strides (in elements) and offset never change after creation; storage and
/// dtype of a leaf may (core/graph/copy_on_write.h).
struct TensorImpl : RefCounted {
  Ref<Storage> storage;
  Shape shape, strides;
  int64_t offset = 0;  // in elements
  DType dtype = DType::float32;
  bool contiguous = true;
  Edge grad_fn;                              // node that made it; empty for a leaf
  std::unique_ptr<AutogradMeta> autograd;    // of a leaf that needs a gradient or has one; else null
  Ref<TensorImpl> base;                      // of a view: the tensor, itself no view, whose elements it shows
  std::atomic<uint32_t> history_version{0};  // of a view: the storage's version that grad_fn is of
  ViewOrigin origin = ViewOrigin::plain;
  TensorImpl(Ref<Storage> storage, const Shape& shape, const Shape& strides, int64_t offset, DType dtype,
             bool contiguous);
  ~TensorImpl() override;
};

/// A value: copying copies the handle, not the elements. Element access and shape are const; the elements are
/// shared, as in PyTorch. Not synchronized: threads that share a tensor must not write to it.
///
/// Members named like operators (transpose, matmul, ...) are defined in ops/; linking them needs that layer.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  /// A variable takes over the handle.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  /// Of a view that is no variable the elements are written, as by copy_ and fill_ below: `x.select(0, 1) =
  /// y` writes to x. `invalid` if nobody else holds them, as those of `a + b`: what is written would be lost.
  Tensor operator=(const Tensor& source) &&;
  Tensor operator=(Scalar value) &&;

  // ---- making one
  /// Uninitialized, contiguous.
  static Tensor empty(const Shape& shape, DType dtype = float32, Device device = cpu);
  static Tensor zeros(const Shape& shape, DType dtype = float32, Device device = cpu);
  /// `invalid` if the dtype cannot hold the number (see Scalar::fits).
  static Tensor full(const Shape& shape, Scalar value, DType dtype = float32, Device device = cpu);
  /// 0-d.
  static Tensor scalar(Scalar value, DType dtype = float32, Device device = cpu) {
    return full({}, value, dtype, device);
  }
  /// Copies `values` (row-major); `invalid` if their number is not shape.numel().
  template <class T>
  static Tensor of(const std::vector<T>& values, const Shape& shape, Device device = cpu);
  template <class T>
  static Tensor of(const std::vector<T>& values) {
    return of(values, Shape{static_cast<int64_t>(values.size())});
  }

  // ---- what it is. Of an undefined tensor, made without a value or moved from, only defined(), str(),
  // same_as() and impl() may be asked; all else is `invalid`.
  bool defined() const { return static_cast<bool>(impl_); }
  DType dtype() const { return made("dtype").dtype; }
  Device device() const { return made("device").storage->device(); }
  const Shape& shape() const { return made("shape").shape; }
  const Shape& strides() const { return made("strides").strides; }
  int dim() const { return made("dim").shape.rank(); }
  /// d in [-dim, dim); `invalid` otherwise.
  int64_t size(int64_t d) const;
  int64_t numel() const { return made("numel").shape.numel(); }
  size_t nbytes() const { return static_cast<size_t>(numel()) * item_size(dtype()); }
  bool is_contiguous() const { return made("is_contiguous").contiguous; }
  const Ref<Storage>& storage() const { return made("storage").storage; }
  int64_t storage_offset() const { return made("storage_offset").offset; }  ///< in elements
  /// True if this is the only handle on its elements.
  bool is_sole_handle() const;
  /// True if it is, and they fill their storage in order: nobody else can see a write.
  bool is_exclusive() const;
  TensorImpl* impl() const { return impl_.get(); }
  /// "float32 [3, 4]", and where it is not the CPU the device: "float32 [3, 4] on cuda:0".
  std::string str() const;

  // ---- elements
  /// First element; `invalid` if T is not the element type, or the tensor is not on the CPU: data_on(cpu) is
  /// a copy.
  template <class T>
  T* data() const {
    if (!impl_ || impl_->dtype != dtype_of<T> || !impl_->storage->device().is_cpu()) [[unlikely]]
      no_elements(dtype_of<T>);
    return reinterpret_cast<T*>(impl_->storage->data()) + impl_->offset;
  }
  std::byte* bytes() const {
    if (!impl_ || !impl_->storage->device().is_cpu()) [[unlikely]]
      no_elements(impl_ ? impl_->dtype : float32);
    return address();
  }
  /// Where the first element is on its device: for the kernels of that device.
  std::byte* address() const {
    const TensorImpl& t = made("address");
    return t.storage->data() + t.offset * static_cast<int64_t>(item_size(t.dtype));
  }
  /// The only element of a one-element tensor, as a double. From another device than the CPU it is copied,
  /// which waits for the work before it.
  double item() const;
  /// All elements in row-major order, converted to T; copied as by item().
  template <class T>
  std::vector<T> to_vector() const;

  // ---- views and copies that record no gradient (the recorded ones are operators)
  /// Same storage, other geometry. The caller answers for staying inside the storage.
  Tensor alias(const Shape& shape, const Shape& strides, int64_t offset) const;
  /// Same elements, no history, requires_grad false.
  Tensor detach() const;
  /// A contiguous copy without history, on the same device.
  Tensor clone_data() const;
  /// This tensor if it is on that device, else a contiguous copy there, without history.
  Tensor data_on(Device device) const;
  /// This tensor if contiguous, else a contiguous copy without history.
  Tensor contiguous_data() const { return is_contiguous() ? *this : clone_data(); }

  // ---- autograd
  /// True for a leaf marked by set_requires_grad and for every result of a recorded operator.
  bool requires_grad() const;
  /// Marks a leaf. `invalid` on a non-leaf or on a dtype that is not floating.
  Tensor& set_requires_grad(bool on = true);
  bool is_leaf() const;
  /// Node that made it, and which of its results it is. Empty for a leaf. Of a view it follows what is
  /// written in place through its base and other views (core/graph/view_history.h says what is refused).
  Edge grad_fn() const;
  /// Attaches history; for operators, and for tensors that arrive from another worker.
  void set_grad_fn(Edge edge) const;
  /// Says that this is a view of `source`, which has the same storage: for operators whose results are views.
  void set_view_of(const Tensor& source, ViewOrigin origin) const;
  /// Where this tensor's gradient goes: grad_fn, or the accumulator of a leaf. Empty if requires_grad is
  /// false.
  Edge gradient_edge() const;
  /// Gradient of a leaf; undefined until a local backward reaches it.
  Tensor grad() const;
  void set_grad(Tensor g) const;
  uint32_t version() const { return made("version").storage->version(); }
  /// To be called by whatever writes to the elements in place; `writer`: its name, a literal.
  void bump_version(const char* writer) const { made("bump_version").storage->bump_version(writer); }

  // ---- operators as methods, with PyTorch's names and order of arguments; defined in ops/methods.cpp
  using Ints = std::vector<int64_t>;
  Tensor transpose(int64_t dim0, int64_t dim1) const;
  Tensor permute(const Ints& dims) const;
  Tensor reshape(const Ints& shape) const;
  /// As reshape, but `invalid` where that would have to copy.
  Tensor view(const Ints& shape) const;
  /// Dimensions start_dim to end_dim (both included) in one.
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const;
  Tensor squeeze(int64_t dim) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor expand(const Ints& shape) const;
  Tensor slice(int64_t dim, int64_t start, int64_t stop, int64_t step = 1) const;
  /// Slice number `index` along dim, without that dimension.
  Tensor select(int64_t dim, int64_t index) const;
  /// Pieces of one size along dim, the last one maybe smaller.
  Tensors split(int64_t size, int64_t dim = 0) const;
  Tensors split(const Ints& sizes, int64_t dim = 0) const;
  /// At most `chunks` pieces of one size along dim, the last one maybe smaller.
  Tensors chunk(int64_t chunks, int64_t dim = 0) const;
  Tensor contiguous() const;
  Tensor clone() const;
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;
  Tensor to(Device device, DType dtype) const;
  Tensor index_select(int64_t dim, const Tensor& index) const;
  Tensor gather(int64_t dim, const Tensor& index) const;
  Tensor masked_fill(const Tensor& mask, Scalar value) const;
  Tensor flip(const Ints& dims) const;
  Tensor tril(int64_t diagonal = 0) const;
  Tensor triu(int64_t diagonal = 0) const;

  Tensor matmul(const Tensor& other) const;
  Tensor pow(Scalar exponent) const;
  Tensor pow(const Tensor& exponent) const;
  Tensor clamp(std::optional<Scalar> min = {}, std::optional<Scalar> max = {}) const;
  Tensor abs() const;
  Tensor exp() const;
  Tensor log() const;
  Tensor square() const;
  Tensor sqrt() const;
  Tensor relu() const;
  Tensor gelu(const std::string& approximate = "none") const;
  Tensor silu() const;
  Tensor tanh() const;
  Tensor sigmoid() const;
  Tensor softmax(int64_t dim) const;
  Tensor log_softmax(int64_t dim) const;

  Tensor sum() const;
  Tensor sum(const Ints& dims, bool keepdim = false) const;
  Tensor mean() const;
  Tensor mean(const Ints& dims, bool keepdim = false) const;
  Tensor var(const Ints& dims, bool unbiased = true, bool keepdim = false) const;
  Tensor amax(const Ints& dims = {}, bool keepdim = false) const;
  Tensor amin(const Ints& dims = {}, bool keepdim = false) const;
  Tensor argmax(int64_t dim) const;
  Tensor argmin(int64_t dim) const;
  Tensor cumsum(int64_t dim) const;
  Tensor norm() const;
  Tensor any() const;
  Tensor all() const;
  /// Values and their places (int64).
  std::pair<Tensor, Tensor> sort(int64_t dim = -1, bool descending = false) const;
  std::pair<Tensor, Tensor> topk(int64_t k, int64_t dim = -1, bool largest = true) const;

  // ---- writes in place, recorded as in PyTorch (docs/autograd.md); each gives the tensor itself. `invalid`,
  // with nothing changed, for a result that has another shape or that the dtype cannot hold (float32 in
  // int64), a leaf that requires a gradient or a view of one while grad mode is on, and elements that repeat.
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
  Tensor addcmul_(const Tensor& a, const Tensor& b, Scalar value = 1) const;  ///< += value * a * b
  Tensor addcdiv_(const Tensor& a, const Tensor& b, Scalar value = 1) const;  ///< += value * a / b
  Tensor lerp_(const Tensor& end, double weight) const;                       ///< += weight * (end - this)
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

  // ---- indexing, with libtorch's names (core/tensor/indexing.h): x.index({Slice(1, None), 0, mask})
  /// Numbers, slices, None and Ellipsis give a view: `x.index({0, Slice(1, None)}) = y` writes to x.
  Tensor index(std::initializer_list<ViewIndex> indices) const;
  /// Tensors of bool or int64 give a copy. It is const so that nothing is assigned to it: use index_put_.
  const Tensor index(const std::vector<TensorIndex>& indices) const;
  /// Writes there in place; `value` broadcasts. Where indices repeat, the last value stays.
  Tensor index_put_(const std::vector<TensorIndex>& indices, const Tensor& value) const;
  Tensor index_put_(const std::vector<TensorIndex>& indices, Scalar value) const;

  // Boolean results. There is no ==, which would read as the comparison of two handles.
  Tensor eq(const Tensor& other) const;
  Tensor ne(const Tensor& other) const;
  Tensor lt(const Tensor& other) const;
  Tensor le(const Tensor& other) const;
  Tensor gt(const Tensor& other) const;
  Tensor ge(const Tensor& other) const;
  Tensor eq(Scalar other) const;
  Tensor ne(Scalar other) const;
  Tensor lt(Scalar other) const;
  Tensor le(Scalar other) const;
  Tensor gt(Scalar other) const;
  Tensor ge(Scalar other) const;
  Tensor isnan() const;
  Tensor isfinite() const;
  Tensor logical_not() const;

  bool same_as(const Tensor& o) const { return impl_ == o.impl_; }

 private:
  static void check_count(const Shape& shape, size_t values);
  [[noreturn]] void no_elements(DType as) const;
  [[noreturn]] static void undefined(const char* method);
  TensorImpl& made(const char* method) const {
    if (!impl_) [[unlikely]]
      undefined(method);
    return *impl_;
  }
  Ref<TensorImpl> impl_;
};

/// True if dtype, shape and every bit of the elements agree.
bool bit_equal(const Tensor& a, const Tensor& b);

template <class T>
Tensor Tensor::of(const std::vector<T>& values, const Shape& shape, Device device) {
  check_count(shape, values.size());
  Tensor source = empty(shape, dtype_of<T>);
  T* out = source.data<T>();
  for (const T v : values) *out++ = v;
  return source.data_on(device);
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor c = data_on(cpu).contiguous_data();
  std::vector<T> out;
  out.reserve(static_cast<size_t>(numel()));
  visit_dtype(dtype(), [&](auto zero) {
    using S = decltype(zero);
    const S* p = c.data<S>();
    for (int64_t i = 0, n = numel(); i < n; ++i) out.push_back(convert<T>(p[i]));
  });
  return out;
}

}  // namespace troupe
