// Writing to elements in place: the checks before it, in one place.
#pragma once
#include <initializer_list>

#include "core/tensor/tensor.h"

namespace troupe {

/// Several elements of a tensor that lie at one place in memory, as in an expanded view, while it is written.
enum class RepeatedElements {
  refused,   ///< each element has a new value of its own
  harmless,  ///< all get the same value
};

/// Every writer of elements in place calls this before anything changes and before it takes a pointer to the
/// elements, and Tensor::bump_version(writer) after the write. Operators and optimizers do; so must code that
/// writes through Tensor::data(). Tensors that nobody else holds yet, such as a fresh result, need neither.
///
/// Storages whose bytes others have, too (core/graph/copy_on_write.h), have bytes of their own afterwards.
///
/// `invalid`, the text starting with [writer], if `t` is undefined or its elements repeat.
void begin_write(const Tensor& t, const char* writer, RepeatedElements repeats = RepeatedElements::refused);

namespace internal {

/// Begins the write of an operator with these other inputs, which records it if this gives true: grad
/// mode is on and one of the tensors requires a gradient. Refuses also an undefined source, one that overlaps
/// `t` in part, a leaf that requires a gradient, a view of one, and views that no write can be recorded for.
bool begin_recorded_write(const Tensor& t, const char* writer,
                          std::initializer_list<const Tensor*> sources = {},
                          RepeatedElements repeats = RepeatedElements::refused);

}  // namespace internal

/// The first element, for a program's own loops that write to `t`: announced, and counted as a write.
/// `writer`: who writes, a literal. Errors as begin_write(), and if T is not the element type.
template <class T>
T* write_data(const Tensor& t, const char* writer) {
  begin_write(t, writer);
  T* const first = t.data<T>();
  t.bump_version(writer);
  return first;
}

}  // namespace troupe
