// Attention on the matrix unit, of which each rule can be left out (flash_without.py).
#pragma once
#include <string>
#include <vector>

#include "ops/cuda/flash.h"

namespace troupe::testing {

extern const std::vector<std::string> kFlashRules;
/// From now on; a number beyond the last rule: none.
void leave_out_of_flash(size_t rule);
/// As those of ops/cuda/flash.h, for bfloat16 and at most 64 columns.
bool flash_forward(const ops::Call& c, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                   const Tensor& logs);
bool flash_backward(const ops::Call& c, const std::array<Tensor, 7>& in, const Tensor& dq, const Tensor& dk,
                    const Tensor& dv);

}  // namespace troupe::testing
