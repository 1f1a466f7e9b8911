// The elements of tensors on one GPU: Backend's three functions, as kernels on its stream.
#pragma once
#include "core/tensor/tensor.h"

namespace troupe::cuda {

void copy_elements(const Tensor& to, const Tensor& from);
void fill_elements(const Tensor& to, const Scalar& value);
void add_elements(const Tensor& out, const Tensor& a, const Tensor& b);

}  // namespace troupe::cuda
