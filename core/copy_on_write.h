// New elements for a leaf while recorded steps still need the old ones: they keep those (SavedTensor).
#pragma once
#include "core/tensor.h"

namespace troupe {

/// Before writing to a leaf in place, instead of making passes in flight invalid: if anybody else holds its
/// storage (saved steps, views, messages that are being sent), gives it a copy of its own. They keep the old
/// elements. Not synchronized: as a write. `invalid` if it is no leaf.
void replace_if_held(const Tensor& leaf);

/// Gives a leaf the elements of `as`, of the same geometry, for a scope: a step of the past is made again.
class ElementsOf {
 public:
  ElementsOf(const Tensor& leaf, const Tensor& as);
  ElementsOf(ElementsOf&& o) noexcept = default;
  ~ElementsOf();

 private:
  Tensor leaf_;
  Ref<Storage> before_;
};

}  // namespace troupe
