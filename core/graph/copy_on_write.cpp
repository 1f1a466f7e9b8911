#include "core/graph/copy_on_write.h"

#include <utility>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/elements.h"

namespace troupe::internal {
namespace {

constexpr size_t kSmallBytes = 512;       // bytes: of something larger, they are not worth keeping it
constexpr size_t kStorageAlignment = 64;  // of a storage

// Else others may look for what is written to memory of theirs, or a copy is as good.
bool shares_well(const Tensor& t) {
  return t.is_contiguous() && (t.nbytes() > kSmallBytes || t.storage()->size() <= kSmallBytes) &&
         !t.storage()->wrapped();
}

// Its bytes in another storage, and its offset there.
std::pair<Ref<Storage>, int64_t> shared(const Tensor& t) {
  const size_t item = item_size(t.dtype()), begin = static_cast<size_t>(t.storage_offset()) * item,
               from = begin / kStorageAlignment * kStorageAlignment;
  return {t.storage()->share(from, begin - from + t.nbytes()), static_cast<int64_t>((begin - from) / item)};
}

}  // namespace

Tensor lazy_copy(const Tensor& t) {
  if (!shares_well(t)) return t.clone_data();
  const TensorImpl& impl = *t.impl();
  auto [storage, offset] = shared(t);
  return Tensor(make_ref<TensorImpl>(std::move(storage), impl.shape, impl.strides, offset, impl.dtype, true));
}

void own_elements(Tensor& t) {
  if (!t.defined()) return;
  t.storage()->leaves();
  if (t.is_sole_handle() && t.is_contiguous()) return;
  if (t.impl()->use_count() != 1 || t.requires_grad() || !shares_well(t)) {
    t = lazy_copy(t);
    return;
  }
  auto [storage, offset] = shared(t);  // nobody else has the handle: a new one would be the same
  t.impl()->storage = std::move(storage);
  t.impl()->offset = offset;
}

Tensor as_of_now(const Tensor& t) {
  if (!t.defined()) return t;
  Tensor copy = lazy_copy(t);
  if (t.requires_grad()) copy.set_grad_fn(t.gradient_edge());
  return copy;
}

void replace_if_held(const Tensor& leaf) {
  if (!leaf.defined() || !leaf.is_leaf())
    throw_invalid("[replace_if_held] the tensor " +
                  (leaf.defined() ? "(" + leaf.summary() + ") is no leaf" : "is undefined"));
  Ref<Storage>& storage = leaf.impl()->storage;
  if (storage->use_count() == 1) return;
  const Device device = storage->device();
  Ref<Storage> own = Storage::allocate(storage->size(), device);  // all of it: the geometry stays
  storage->used_here();
  backend_of(device).copy(own->data(), storage->data(), own->size(), CopyWay::within, device);
  storage = std::move(own);
}

Tensor converted_data(const Tensor& t, DType dtype, Device device) {
  const TensorImpl& impl = *t.impl();
  int64_t end = impl.offset + 1;  // behind the last element
  for (int i = 0; i < t.dim(); ++i) end += (impl.shape[i] - 1) * impl.strides[i];
  const size_t elements = t.numel() == 0 ? 0 : static_cast<size_t>(end);
  Tensor copy(make_ref<TensorImpl>(Storage::allocate(elements * item_size(dtype), device), impl.shape,
                                   impl.strides, impl.offset, dtype, impl.contiguous));
  copy_elements(copy, t);
  return copy;
}

void replace_data(const Tensor& leaf, const Tensor& as, const char* writer) {
  if (!leaf.is_leaf()) throw_invalid("[replace_data] the tensor (" + leaf.summary() + ") is no leaf");
  TensorImpl& impl = *leaf.impl();
  const TensorImpl& from = *as.impl();
  if (impl.shape != from.shape || impl.strides != from.strides || impl.offset != from.offset)
    throw_invalid("[replace_data] the tensor (" + leaf.summary() + ") is laid out in another way than " +
                  as.summary());
  const bool trained = leaf.requires_grad();
  from.storage->succeed(*impl.storage, writer);  // steps that saved a buffer see that it was written
  impl.storage = from.storage;
  impl.dtype = from.dtype;
  impl.base = nullptr;  // it shows elements of its own
  if (trained) Tensor(leaf).requires_grad_();
}

ElementsOf::ElementsOf(const Tensor& leaf, const Tensor& as)
    : leaf_(leaf),
      before_(std::exchange(leaf.impl()->storage, as.storage())),
      dtype_before_(std::exchange(leaf.impl()->dtype, as.dtype())) {}
ElementsOf::~ElementsOf() {
  if (!leaf_.defined()) return;
  leaf_.impl()->storage = std::move(before_);
  leaf_.impl()->dtype = dtype_before_;
}

}  // namespace troupe::internal
