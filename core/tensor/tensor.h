// Tensor: a handle on a typed, strided view of a storage, with its place in the recorded graph.
#pragma once
#include <atomic>
#include <concepts>
#include <cstring>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/memory/ref.h"
#include "core/memory/storage.h"
#include "core/tensor/shape.h"
#include "core/tensor/tensor_methods.h"
#include "core/tensor/tensor_options.h"

namespace troupe {

class Node;
struct AutogradMeta;

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
/// What shape(), strides() and storage() refer to, and the elements, go with the last handle: of a temporary
/// the first three are values, and its elements are asked for by name.
///
/// Members named like operators (transpose, matmul, ...) are in the base, and defined in ops/; backward() is
/// defined in autograd/. Linking them needs that layer.
class Tensor : public TensorMethods {
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

  // ---- what it is. Of an undefined tensor, made without a value or moved from, only defined(), str(),
  // summary(), is_same() and impl() may be asked; all else is `invalid`.
  bool defined() const { return static_cast<bool>(impl_); }
  DType dtype() const { return made("dtype").dtype; }
  Device device() const { return made("device").storage->device(); }
  /// Its dtype and device, for another one: zeros({2}, x.options()).
  TensorOptions options() const { return {dtype(), device()}; }
  const Shape& shape() const& { return made("shape").shape; }
  Shape shape() const&& { return shape(); }
  const Shape& sizes() const& { return shape(); }
  Shape sizes() const&& { return shape(); }
  const Shape& strides() const& { return made("strides").strides; }
  Shape strides() const&& { return strides(); }
  int dim() const { return made("dim").shape.rank(); }
  /// d in [-dim, dim); `invalid` otherwise.
  int64_t size(int64_t d) const;
  int64_t stride(int64_t d) const;  ///< in elements
  int64_t numel() const { return made("numel").shape.numel(); }
  size_t element_size() const { return item_size(dtype()); }  ///< bytes
  bool is_floating_point() const { return is_floating(dtype()); }
  size_t nbytes() const { return static_cast<size_t>(numel()) * item_size(dtype()); }
  bool is_contiguous() const { return made("is_contiguous").contiguous; }
  const Ref<Storage>& storage() const& { return made("storage").storage; }
  Ref<Storage> storage() const&& { return storage(); }
  int64_t storage_offset() const { return made("storage_offset").offset; }  ///< in elements
  /// True if this is the only handle on its elements: nobody else sees a write that begin_write() announced.
  bool is_sole_handle() const;
  /// True if it is, they fill their storage in order, and no lazy copy or other process has the same bytes:
  /// nobody else sees any write.
  bool is_exclusive() const;
  TensorImpl* impl() const { return impl_.get(); }
  /// As PyTorch prints it (core/graph/print.cpp); operator<< prints the same.
  std::string str() const;
  /// What it is, for messages: "float32 [3, 4]", and where it is not the CPU the device: "float32 [3, 4] on
  /// cuda:0".
  std::string summary() const;

  // ---- elements
  /// First element; `invalid` if T is not the element type, or the tensor is not on the CPU: data_on(cpu) is
  /// a copy.
  template <class T>
  T* data() const& {
    if (!impl_ || impl_->dtype != dtype_of<T> || !impl_->storage->device().is_cpu()) [[unlikely]]
      no_elements(dtype_of<T>);
    return reinterpret_cast<T*>(impl_->storage->data()) + impl_->offset;
  }
  template <class T>
  T* data() const&& = delete;  // name the tensor: the elements go with the last handle on them
  std::byte* bytes() const& {
    if (!impl_ || !impl_->storage->device().is_cpu()) [[unlikely]]
      no_elements(impl_ ? impl_->dtype : float32);
    return impl_->storage->data() + impl_->offset * static_cast<int64_t>(item_size(impl_->dtype));
  }
  std::byte* bytes() const&& = delete;  // name the tensor: the elements go with the last handle on them
  /// Where the first element is on its device: for the kernels of that device, which the calling thread
  /// launches next. Its stream waits for those that wrote the elements.
  std::byte* address() const& {
    const TensorImpl& t = made("address");
    t.storage->used_here();
    return t.storage->data() + t.offset * static_cast<int64_t>(item_size(t.dtype));
  }
  std::byte* address() const&& = delete;  // name the tensor: the elements go with the last handle on them
  /// The only element of a one-element tensor, as a double. From another device than the CPU it is copied,
  /// which waits for the work before it.
  double item() const;
  /// The same as a T, with all its digits; `invalid` if T cannot hold it.
  template <class T>
  T item() const;
  /// All elements in row-major order, converted to T, an element type; copied as by item().
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
  /// True for a leaf marked by requires_grad_ and for every result of a recorded operator.
  bool requires_grad() const;
  /// Marks a leaf. `invalid` on a non-leaf or on a dtype that is not floating.
  Tensor& requires_grad_(bool on = true) &;
  Tensor requires_grad_(bool on = true) &&;
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
  /// Adds the gradients of this tensor, of one element, with respect to all leaves into their `.grad`, in
  /// this process; autograd::backward (autograd/engine.h) says more.
  void backward() const;
  /// The same of a tensor of any size, weighted by `gradient` (undefined: 1).
  void backward(const Tensor& gradient, bool retain_graph = false, bool create_graph = false) const;
  uint32_t version() const { return made("version").storage->version(); }
  /// To be called by whatever writes to the elements in place; `writer`: its name, a literal.
  void bump_version(const char* writer) const { made("bump_version").storage->bump_version(writer); }

  // ---- elements of the first dimension, and what other indices give (core/tensor/indexing.h): x[1][2],
  // x[Slice(1, None)], x[None]. A view, to be written as well: `x[i] = y`.
  template <std::integral T>
  requires(!std::same_as<T, bool>) Tensor operator[](T i) const { return select(0, static_cast<int64_t>(i)); }
  Tensor operator[](const ViewIndex& index) const;
  /// Of a mask (bool) or numbers (int64): a copy, const so that nothing is assigned to it; use index_put_.
  const Tensor operator[](const Tensor& index) const;
  Tensor operator[](bool) const = delete;  // means another thing than the numbers 0 and 1 in PyTorch

  bool is_same(const Tensor& o) const { return impl_ == o.impl_; }

 private:
  [[noreturn]] void no_elements(DType as) const;
  Scalar number() const;
  /// All elements in row-major order, converted to that type: an array of as many there.
  void copy_elements_to(DType type, void* array) const;
  [[noreturn]] static void undefined(const char* method);
  TensorImpl& made(const char* method) const {
    if (!impl_) [[unlikely]]
      undefined(method);
    return *impl_;
  }
  Ref<TensorImpl> impl_;
};

/// Values, and where they were along a dimension (int64): what sort, topk, and max and median along one give.
struct ValuesAndIndices {
  Tensor values;  ///< differentiable
  Tensor indices;
};

std::ostream& operator<<(std::ostream& out, const Tensor& t);
// As str() and name() have them: "[2, 3]", "float32", "cuda:0".
std::ostream& operator<<(std::ostream& out, const Shape& shape);
std::ostream& operator<<(std::ostream& out, DType dtype);
std::ostream& operator<<(std::ostream& out, Device device);

/// True if dtype, shape and every bit of the elements agree.
bool bit_equal(const Tensor& a, const Tensor& b);

template <class T>
T Tensor::item() const {
  const Scalar value = number();
  require_fits(value, dtype_of<T>, "item");
  return value.to<T>();
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  if constexpr (std::is_same_v<T, bool>) {  // whose vector has bits
    const auto truths = std::make_unique<bool[]>(static_cast<size_t>(numel()));
    copy_elements_to(boolean, truths.get());
    return std::vector<bool>(truths.get(), truths.get() + numel());
  } else {
    std::vector<T> out(static_cast<size_t>(numel()));
    copy_elements_to(dtype_of<T>, out.data());
    return out;
  }
}

inline const Tensor& TensorMethods::self() const { return static_cast<const Tensor&>(*this); }

}  // namespace troupe
