#include "core/tensor/tensor.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/base/error.h"
#include "core/graph/leaf_uses.h"
#include "core/graph/node.h"
#include "core/tensor/strided_runs.h"
#include "core/tensor/transposed_copy.h"
#include "core/graph/view_history.h"
#include "core/graph/inplace_write.h"

namespace troupe {
namespace {

bool rows_follow(const Shape& shape, const Shape& strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

bool needs_gradient(const TensorImpl& t) {
  return (t.base && needs_gradient(*t.base)) || t.grad_fn || (t.autograd && t.autograd->requires_grad);
}

AutogradMeta& meta_of(TensorImpl& impl) {
  if (!impl.autograd) impl.autograd = std::make_unique<AutogradMeta>();
  return *impl.autograd;
}

}  // namespace

TensorImpl::TensorImpl(Ref<Storage> storage, const Shape& shape, const Shape& strides, int64_t offset,
                       DType dtype, bool contiguous)
    : storage(std::move(storage)),
      shape(shape),
      strides(strides),
      offset(offset),
      dtype(dtype),
      contiguous(contiguous) {}
TensorImpl::~TensorImpl() = default;

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Shape strides = shape;
  int64_t bytes = static_cast<int64_t>(item_size(dtype)), step = 1;
  bool fits = true, none = false;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] < 0) throw_invalid("[tensor] negative size in shape " + shape.str());
    strides[i] = step;
    none |= shape[i] == 0;
    // A size of 0 counts as 1 here: strides must fit too.
    fits &= !__builtin_mul_overflow(step, std::max<int64_t>(shape[i], 1), &step);
  }
  if (!fits || __builtin_mul_overflow(bytes, step, &bytes))
    throw_invalid("[tensor] shape " + shape.str() + " has more bytes than can be counted");
  if (none) bytes = 0;
  return Tensor(make_ref<TensorImpl>(Storage::allocate(static_cast<size_t>(bytes), device), shape, strides, 0,
                                     dtype, true));
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) {
  Tensor t = empty(shape, dtype);
  std::memset(t.bytes(), 0, t.nbytes());
  return t;
}

Tensor Tensor::full(const Shape& shape, Scalar value, DType dtype) {
  require_fits(value, dtype, "full");
  Tensor t = empty(shape, dtype);
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(t.data<T>(), t.numel(), value.to<T>());
  });
  return t;
}

std::string Tensor::str() const {
  return defined() ? std::string(name(dtype())) + " " + shape().str() : "undefined tensor";
}

int64_t Tensor::size(int64_t d) const {
  if (dim() == 0) throw_invalid("[size] a 0-d tensor has no dimension " + std::to_string(d));
  return shape()[shape().axis(d, "size")];
}

void Tensor::check_count(const Shape& shape, size_t values) {
  if (static_cast<size_t>(shape.numel()) != values)
    throw_invalid("[tensor] " + std::to_string(values) + " values for shape " + shape.str());
}

void Tensor::undefined(const char* method) {
  throw_invalid("[" + std::string(method) +
                "] the tensor is undefined: it was made without a value, or moved from");
}

void Tensor::wrong_dtype(DType wanted) const {
  if (!defined()) throw_invalid("[tensor] elements of an undefined tensor");
  throw_invalid("[tensor] elements asked for as " + std::string(name(wanted)) + ", but the tensor is " +
                str());
}

bool Tensor::is_sole_handle() const {
  const TensorImpl& t = made("is_sole_handle");
  // The base of a view has the storage, too; nobody can write through a base that only the view holds.
  const bool of_base = t.base && t.base->use_count() == 1 && t.base->storage == t.storage;
  const bool alone = t.use_count() == 1 && t.storage->use_count() == (of_base ? 2u : 1u);
  std::atomic_thread_fence(std::memory_order_acquire);  // reads through handles that are gone are over
  return alone && !t.storage->shares_bytes();
}

bool Tensor::is_exclusive() const {
  return is_sole_handle() && is_contiguous() && storage()->size() == nbytes();
}

double Tensor::item() const {
  if (!defined() || numel() != 1) throw_invalid("[item] needs a tensor of one element, got " + str());
  return visit_dtype(dtype(), [&](auto zero) { return static_cast<double>(*data<decltype(zero)>()); });
}

Tensor Tensor::alias(const Shape& shape, const Shape& strides, int64_t offset) const {
  const TensorImpl& t = made("alias");
  return Tensor(
      make_ref<TensorImpl>(t.storage, shape, strides, offset, t.dtype, rows_follow(shape, strides)));
}

Tensor Tensor::detach() const {
  const TensorImpl& t = made("detach");
  return Tensor(make_ref<TensorImpl>(t.storage, t.shape, t.strides, t.offset, t.dtype, t.contiguous));
}

Tensor Tensor::clone_data() const {
  Tensor out = empty(shape(), dtype(), device());
  if (is_contiguous()) {
    if (nbytes()) std::memcpy(out.bytes(), bytes(), nbytes());
    return out;
  }
  visit_dtype(dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* in = data<T>();
    T* to = out.data<T>();
    const Transposed transposed(*this);
    for (int64_t i = 0; i < transposed.strips(); ++i) transposed.write(i, in, to);
    if (transposed.strips()) return;
    for_each_run(*this, [&](int64_t at, int64_t count, int64_t step) {
      const T* from = in + at;
      T* const run = std::exchange(to, to + count);
      if (step == 1)
        std::copy_n(from, count, run);
      else if (step == 0)
        std::fill_n(run, count, *from);
      else
        for (int64_t i = 0; i < count; ++i) run[i] = from[i * step];
    });
  });
  return out;
}

// ---- autograd

bool Tensor::requires_grad() const { return needs_gradient(made("requires_grad")); }

Tensor& Tensor::set_requires_grad(bool on) {
  if (on && !is_floating(dtype())) throw_invalid("[requires_grad] needs a floating dtype, got " + str());
  if (!is_leaf())
    throw_invalid("[requires_grad] is for leaves; this tensor was made by " + grad_fn().node->name());
  if (!on && impl_->base && needs_gradient(*impl_->base))
    throw_invalid("[requires_grad] this view follows its base, which requires a gradient; detach() it");
  if (on || impl_->autograd) meta_of(*impl_).requires_grad = on;
  return *this;
}

bool Tensor::is_leaf() const {
  TensorImpl& t = made("is_leaf");
  if (t.base) refresh_view_history(t);
  return !t.grad_fn;
}

Edge Tensor::grad_fn() const {
  TensorImpl& t = made("grad_fn");
  if (t.base) refresh_view_history(t);
  return t.grad_fn;
}

void Tensor::set_grad_fn(Edge edge) const {
  TensorImpl& t = made("set_grad_fn");
  t.grad_fn = std::move(edge);
  if (t.base) t.history_version.store(t.storage->version(), std::memory_order_release);
}

void Tensor::set_view_of(const Tensor& source, ViewOrigin origin) const {
  TensorImpl& t = made("set_view_of");
  const TensorImpl& s = source.made("set_view_of");
  t.base = s.base ? s.base : source.impl_;
  t.origin = s.base && origin == ViewOrigin::plain ? s.origin : origin;
  t.history_version.store(t.storage->version(), std::memory_order_relaxed);
}

Edge Tensor::gradient_edge() const {
  TensorImpl& t = made("gradient_edge");
  if (t.base) refresh_view_history(t);
  if (t.grad_fn) return t.grad_fn;
  if (!needs_gradient(t)) return {};
  LeafUses::note(*this);
  AutogradMeta& meta = meta_of(t);
  std::lock_guard lock(meta.mutex);
  if (meta.accumulator && meta.accumulator->try_retain()) return {Ref<Node>::adopt(meta.accumulator), 0};
  auto accumulator = make_ref<Accumulate>(impl_);
  meta.accumulator = accumulator.get();
  return {std::move(accumulator), 0};
}

Tensor Tensor::grad() const {
  const TensorImpl& t = made("grad");
  return t.autograd ? t.autograd->grad : Tensor();
}
void Tensor::set_grad(Tensor g) const { meta_of(made("set_grad")).grad = std::move(g); }

bool bit_equal(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  return std::memcmp(a.contiguous_data().bytes(), b.contiguous_data().bytes(), a.nbytes()) == 0;
}

}  // namespace troupe
