#include "core/graph/copy_on_write.h"

#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/graph/node.h"

namespace troupe {
namespace {

constexpr size_t kSmall = 512;     // bytes: of something larger, they are not worth keeping it
constexpr size_t kAlignment = 64;  // of a storage

// Else others may look for what is written to memory of theirs, or a copy is as good.
bool shares_well(const Tensor& t) {
  return t.is_contiguous() && (t.nbytes() > kSmall || t.storage()->size() <= kSmall) && t.device().is_cpu() &&
         !t.storage()->wrapped();
}

// Its bytes in another storage, and its offset there.
std::pair<Ref<Storage>, int64_t> shared(const Tensor& t) {
  const size_t item = item_size(t.dtype()), begin = static_cast<size_t>(t.storage_offset()) * item,
               from = begin / kAlignment * kAlignment;
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
  if (!t.defined() || (t.is_sole_handle() && t.is_contiguous())) return;
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
                  (leaf.defined() ? "(" + leaf.str() + ") is no leaf" : "is undefined"));
  Ref<Storage>& storage = leaf.impl()->storage;
  if (storage->use_count() == 1) return;
  Ref<Storage> own = Storage::allocate(storage->size(), storage->device());  // all of it: the geometry stays
  std::memcpy(own->data(), storage->data(), own->size());
  storage = std::move(own);
}

ElementsOf::ElementsOf(const Tensor& leaf, const Tensor& as)
    : leaf_(leaf), before_(std::exchange(leaf.impl()->storage, as.storage())) {}
ElementsOf::~ElementsOf() {
  if (leaf_.defined()) leaf_.impl()->storage = std::move(before_);
}

}  // namespace troupe
