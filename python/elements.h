// What stands in brackets behind a tensor: x[1:, None].
#pragma once
#include "python/conversion.h"

namespace troupe::python {

/// The elements that indices name: numbers, slices, None, ..., masks, lists and tensors of numbers.
Tensor element_of(const Tensor& tensor, nb::handle indices);
/// Writes numbers or a tensor there.
void set_element(Tensor& tensor, nb::handle indices, nb::handle value);

}  // namespace troupe::python
