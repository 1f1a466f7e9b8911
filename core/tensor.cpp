#include "core/tensor.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/error.h"
#include "core/node.h"
#include "core/transposed.h"

namespace troupe {
namespace {

// Calls f(offset) for every element of a strided view in row-major order, in runs along the last dimension:
// f(offset, count, step).
template <class F>
void for_each_run(const Tensor& t, F&& f) {
  const Shape& shape = t.shape();
  const Shape& strides = t.strides();
  const int rank = shape.rank();
  if (t.numel() == 0) return;
  if (rank == 0 || t.is_contiguous()) return f(int64_t{0}, t.numel(), int64_t{1});
  int64_t index[kMaxDims] = {}, at = 0;
  for (;;) {
    f(at, shape[rank - 1], strides[rank - 1]);
    int d = rank - 2;
    for (; d >= 0; --d) {
      at += strides[d];
      if (++index[d] < shape[d]) break;
      at -= strides[d] * shape[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

bool rows_follow(const Shape& shape, const Shape& strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
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

Tensor Tensor::full(const Shape& shape, double value, DType dtype) {
  Tensor t = empty(shape, dtype);
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(t.data<T>(), t.numel(), static_cast<T>(value));
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

void Tensor::wrong_dtype(DType wanted) const {
  if (!defined()) throw_invalid("[tensor] elements of an undefined tensor");
  throw_invalid("[tensor] elements asked for as " + std::string(name(wanted)) + ", but the tensor is " +
                str());
}

bool Tensor::is_exclusive() const {
  const bool alone = impl_->use_count() == 1 && storage()->use_count() == 1 && is_contiguous() &&
                     storage()->size() == nbytes();
  std::atomic_thread_fence(std::memory_order_acquire);  // reads through handles that are gone are over
  return alone;
}

double Tensor::item() const {
  if (!defined() || numel() != 1) throw_invalid("[item] needs a tensor of one element, got " + str());
  return visit_dtype(dtype(), [&](auto zero) { return static_cast<double>(*data<decltype(zero)>()); });
}

void Tensor::copy_(const Tensor& source) const {
  if (!defined() || !source.defined())
    throw_invalid("[copy_] needs defined tensors: " + str() + " from " + source.str());
  if (shape() != source.shape())
    throw_invalid("[copy_] shapes differ: " + shape().str() + " from " + source.shape().str());
  if (is_contiguous() && source.is_contiguous() && dtype() == source.dtype()) {
    if (nbytes()) std::memmove(bytes(), source.bytes(), nbytes());
  } else {
    // Views of one storage may overlap: read all before the first write.
    const Tensor dense = source.storage() == storage() ? source.clone_data() : source.contiguous_data();
    visit_dtype(dtype(), [&](auto to) {
      visit_dtype(source.dtype(), [&](auto from) {
        const auto* in = dense.data<decltype(from)>();
        auto* out = data<decltype(to)>();
        if (is_contiguous()) {
          for (int64_t i = 0, n = numel(); i < n; ++i) out[i] = static_cast<decltype(to)>(in[i]);
          return;
        }
        for_each_run(*this, [&](int64_t at, int64_t count, int64_t step) {
          for (int64_t i = 0; i < count; ++i) out[at + i * step] = static_cast<decltype(to)>(*in++);
        });
      });
    });
  }
  bump_version("copy_");
}

void Tensor::fill_(double value) const {
  visit_dtype(dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* out = data<T>();
    for_each_run(*this, [&](int64_t at, int64_t count, int64_t step) {
      for (int64_t i = 0; i < count; ++i) out[at + i * step] = static_cast<T>(value);
    });
  });
  bump_version("fill_");
}

Tensor Tensor::alias(const Shape& shape, const Shape& strides, int64_t offset) const {
  return Tensor(make_ref<TensorImpl>(impl_->storage, shape, strides, offset, impl_->dtype,
                                     rows_follow(shape, strides)));
}

Tensor Tensor::detach() const { return alias(shape(), strides(), storage_offset()); }

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

bool Tensor::requires_grad() const {
  return impl_->grad_fn || (impl_->autograd && impl_->autograd->requires_grad);
}

Tensor& Tensor::set_requires_grad(bool on) {
  if (on && !is_floating(dtype())) throw_invalid("[requires_grad] needs a floating dtype, got " + str());
  if (!is_leaf())
    throw_invalid("[requires_grad] is for leaves; this tensor was made by " + grad_fn().node->name());
  if (on || impl_->autograd) meta_of(*impl_).requires_grad = on;
  return *this;
}

Edge Tensor::grad_fn() const { return impl_->grad_fn; }
void Tensor::set_grad_fn(Edge edge) const { impl_->grad_fn = std::move(edge); }

Edge Tensor::gradient_edge() const {
  if (impl_->grad_fn) return impl_->grad_fn;
  auto* meta = impl_->autograd.get();
  if (!meta || !meta->requires_grad) return {};
  std::lock_guard lock(meta->mutex);
  if (meta->accumulator && meta->accumulator->try_retain()) return {Ref<Node>::adopt(meta->accumulator), 0};
  auto accumulator = make_ref<Accumulate>(impl_);
  meta->accumulator = accumulator.get();
  return {std::move(accumulator), 0};
}

Tensor Tensor::grad() const { return impl_->autograd ? impl_->autograd->grad : Tensor(); }
void Tensor::set_grad(Tensor g) const { meta_of(*impl_).grad = std::move(g); }

bool bit_equal(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  return std::memcmp(a.contiguous_data().bytes(), b.contiguous_data().bytes(), a.nbytes()) == 0;
}

}  // namespace troupe
