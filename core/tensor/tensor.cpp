#include "core/tensor/tensor.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/base/error.h"
#include "core/memory/backend.h"
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"

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

std::string Tensor::summary() const {
  if (!defined()) return "undefined tensor";
  return std::string(name(dtype())) + " " + shape().str() +
         (device().is_cpu() ? "" : " on " + device().str());
}

int64_t Tensor::size(int64_t d) const {
  if (dim() == 0) throw_invalid("[size] a 0-d tensor has no dimension " + std::to_string(d));
  return shape()[shape().axis(d, "size")];
}

int64_t Tensor::stride(int64_t d) const {
  if (dim() == 0) throw_invalid("[stride] a 0-d tensor has no dimension " + std::to_string(d));
  return strides()[shape().axis(d, "stride")];
}

void Tensor::undefined(const char* method) {
  throw_invalid("[" + std::string(method) +
                "] the tensor is undefined: it was made without a value, or moved from");
}

void Tensor::no_elements(DType as) const {
  if (!defined()) throw_invalid("[tensor] elements of an undefined tensor");
  if (!device().is_cpu())
    throw_invalid("[tensor] " + summary() + " has no elements that the host can read: copy it with .to(cpu)");
  throw_invalid("[tensor] elements asked for as " + std::string(name(as)) + ", but the tensor is " +
                summary());
}

bool Tensor::is_sole_handle() const {
  const TensorImpl& t = made("is_sole_handle");
  // The base of a view has the storage, too; nobody can write through a base that only the view holds.
  const bool of_base = t.base && t.base->use_count() == 1 && t.base->storage == t.storage;
  const bool alone = t.use_count() == 1 && t.storage->use_count() == (of_base ? 2u : 1u);
  std::atomic_thread_fence(std::memory_order_acquire);  // reads through handles that are gone are over
  return alone;
}

bool Tensor::is_exclusive() const {
  return is_sole_handle() && is_contiguous() && storage()->size() == nbytes() && !storage()->shares_bytes();
}

Scalar Tensor::number() const {
  if (!defined() || numel() != 1) throw_invalid("[item] needs a tensor of one element, got " + summary());
  const Tensor here = data_on(cpu);
  return visit_dtype(dtype(), [&](auto zero) -> Scalar {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
      return static_cast<double>(*here.data<T>());
    else
      return *here.data<T>();
  });
}

void Tensor::copy_elements_to(DType type, void* array) const {
  const Tensor c = data_on(cpu).contiguous_data();
  visit_dtype(type, [&](auto wanted) {
    using T = decltype(wanted);
    visit_dtype(dtype(), [&](auto zero) {
      const auto* p = c.data<decltype(zero)>();
      std::transform(p, p + numel(), static_cast<T*>(array), [](auto x) { return convert<T>(x); });
    });
  });
}

double Tensor::item() const {
  if (!defined() || numel() != 1) throw_invalid("[item] needs a tensor of one element, got " + summary());
  const Tensor here = data_on(cpu);
  return visit_dtype(dtype(), [&](auto zero) { return static_cast<double>(*here.data<decltype(zero)>()); });
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
  Tensor out = empty(shape(), options());
  backend_of(device()).copy_elements(out, *this);
  return out;
}

Tensor Tensor::data_on(Device device) const {
  if (this->device() == device) return *this;
  Tensor out = empty(shape(), {dtype(), device});
  copy_elements(out, *this);
  return out;
}

bool bit_equal(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  const Tensor x = a.data_on(cpu).contiguous_data(), y = b.data_on(cpu).contiguous_data();
  return std::memcmp(x.bytes(), y.bytes(), a.nbytes()) == 0;
}

}  // namespace troupe
