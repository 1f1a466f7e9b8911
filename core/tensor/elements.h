// Elements that move, on any device.
#pragma once
#include "core/tensor/tensor.h"

namespace troupe {

/// Copies the elements of `source` to `to`: same shape, any dtypes, devices and overlap. Neither checks nor
/// counts as a write: for fresh tensors, and between begin_write() and bump_version().
void copy_elements(const Tensor& to, const Tensor& source);
/// Gives all elements one value, converted as Scalar::to does; as above.
void fill_elements(const Tensor& to, Scalar value);
/// out = a + b, of one shape, dtype and device. `out` is contiguous, or it is `a`: an element that it has
/// several times is then added to as often. As above.
void add_elements(const Tensor& out, const Tensor& a, const Tensor& b);

}  // namespace troupe
