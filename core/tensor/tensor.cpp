#include "core/tensor/tensor.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/base/error.h"
#include "core/tensor/strided_runs.h"
#include "core/tensor/transposed_copy.h"

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

}  // namespace

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

bool bit_equal(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  return std::memcmp(a.contiguous_data().bytes(), b.contiguous_data().bytes(), a.nbytes()) == 0;
}

}  // namespace troupe
