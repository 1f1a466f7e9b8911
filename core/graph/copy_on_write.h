// Copies that are made when somebody writes: of what is handed to others, and of leaves that recorded steps
// still need as they were (SavedTensor).
#pragma once
#include "core/tensor/tensor.h"

namespace troupe::internal {

/// A contiguous tensor with these elements and without history, as clone_data() gives. Most are copied
/// when either side is first written to, by begin_write(); a write that does not call it is seen by both.
/// Other threads may read `t` meanwhile.
Tensor lazy_copy(const Tensor& t);

/// For what is given away, an argument or a result: puts lazy_copy(t) in place of `t`, unless nobody else has
/// it or its elements. Undefined stays undefined.
void own_elements(Tensor& t);

/// `t` as it is now, in the same place of the graph, for somebody who will look at it later: gradients of
/// what is computed from it go where those of `t` go.
Tensor as_of_now(const Tensor& t);

/// Before writing to a leaf in place, instead of making passes in flight invalid: if anybody else holds its
/// storage (saved steps, views, messages that are being sent), gives it a copy of its own. They keep the old
/// elements. Not synchronized: as a write. `invalid` if it is no leaf.
void replace_if_held(const Tensor& leaf);

/// A copy of `t`, converted and without history, with its shape, strides and offset: for replace_data().
Tensor converted_data(const Tensor& t, DType dtype, Device device);

/// Gives a leaf dtype, device and elements of `as`, which has its shape, strides and offset; `writer`, a
/// literal, is who does so. All handles on the leaf see it. What was saved of it for a backward pass, views,
/// and detach()ed handles keep the old elements. Its `.grad` stays. Not synchronized: as a write. `invalid`
/// if it is no leaf, or the geometry differs.
void replace_data(const Tensor& leaf, const Tensor& as, const char* writer);

/// Gives a leaf dtype and elements of `as`, of the same geometry, for a scope: a step of the past is made
/// again.
class ElementsOf {
 public:
  ElementsOf(const Tensor& leaf, const Tensor& as);
  ElementsOf(ElementsOf&& o) noexcept = default;
  ~ElementsOf();

 private:
  Tensor leaf_;
  Ref<Storage> before_;
  DType dtype_before_;
};

}  // namespace troupe::internal
