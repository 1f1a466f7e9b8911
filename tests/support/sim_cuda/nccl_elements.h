// Elements of tensors, as collectives of the simulated NCCL add them.
#pragma once
#include <nccl.h>

#include <cstddef>

namespace sim_cuda::nccl {

size_t size_of(ncclDataType_t type);
/// to = to (+, *, max, min) from.
void reduce_into(std::byte* to, const std::byte* from, size_t n, ncclDataType_t type, ncclRedOp_t op);
void divide(std::byte* to, size_t n, ncclDataType_t type, int by);

}  // namespace sim_cuda::nccl
