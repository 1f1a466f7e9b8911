// Attention on the matrix unit, for bfloat16, float16 and float32 of at most 128 columns.
#pragma once
#include <array>

#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cuda {

/// False, and nothing happens, for other dtypes and sizes. `logs` is float32.
bool flash_forward(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                   const Tensor& logs);
/// The same of the gradients, from the inputs of attention_grad in their order.
bool flash_backward(const Call& c, const std::array<Tensor, 7>& in, const Tensor& dq, const Tensor& dk,
                    const Tensor& dv);

}  // namespace troupe::ops::on_cuda
