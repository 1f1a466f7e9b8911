// Tensors that other libraries have, and those that they get, without a copy: DLPack.
#pragma once
#include "core/tensor/tensor.h"

/// The structure that <dlpack/dlpack.h> defines, in C.
struct DLManagedTensor;

namespace troupe {

/// A tensor on the CPU that another library reads and writes, until it calls the deleter. The elements are
/// shared; of a tensor that needs a gradient the history stays here. They count as exposed from now on:
/// messages copy them at once, as another library may write whenever it likes; views and recorded steps that
/// have them see what it writes. `invalid` for an undefined one, and on another device.
DLManagedTensor* to_dlpack(const Tensor& t);
/// A tensor of another library's elements, which it takes over: the deleter runs when nobody here has them
/// any more. `invalid`, and the deleter has run, for an element type that there is none of here, for memory
/// of another device than the CPU, for more than 8 dimensions, and for strides below 0 (of a null pointer: no
/// deleter).
Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace troupe
