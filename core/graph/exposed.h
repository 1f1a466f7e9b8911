// Elements that a program writes through a pointer which it keeps.
#pragma once
#include "core/graph/inplace_write.h"

namespace troupe {

/// Says that pointers to the elements of `t` are kept, and written through whenever the program likes:
/// whoever is given them from now on, such as an actor of this worker in a message, has a copy at once, as of
/// memory that Storage::wrap() was given; so is whoever is given views of it. Recorded steps that have the
/// elements see what is written. `invalid`, the text starting with [writer], if `t` is undefined, is on
/// another device, or has elements that repeat. Not synchronized: as a write.
void expose(const Tensor& t, const char* writer);

/// The first element, for such a pointer: good as long as the tensor is kept, and not given other elements
/// (core/graph/copy_on_write.h). It counts as a write now; passes see no later ones, unless
/// Tensor::bump_version() says them. Errors as expose(), and if T is not the element type.
template <class T>
T* expose_data(const Tensor& t, const char* writer) {
  T* const first = write_data<T>(t, writer);
  expose(t, writer);
  return first;
}

}  // namespace troupe
