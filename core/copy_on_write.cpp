#include "core/copy_on_write.h"

#include <cstring>
#include <utility>

#include "core/error.h"

namespace troupe {

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
