// Layers of convolutions share this: checks of sizes and modes, initial values, and padding with other values
// than zeros.
#pragma once
#include <span>
#include <string>

#include "core/tensor/tensor.h"

namespace troupe {
class Generator;
}

namespace troupe::nn {

/// `invalid` if a size is below 1 or groups do not divide in and out.
void check_kernels(const char* layer, int64_t in, int64_t out, std::span<const int64_t> kernel,
                   int64_t groups);
/// `invalid` unless it is "zeros", "reflect", "replicate" or "circular".
void check_padding_mode(const char* layer, const std::string& mode);
/// Uniform in +-1/sqrt(inputs of an output).
void start_uniform(const Tensor& weight, const Tensor& bias, Generator& generator);
/// Gives x with so much of its last dimensions around it, on both sides of each.
Tensor padded(const Tensor& x, std::span<const int64_t> padding, const std::string& mode);

}  // namespace troupe::nn
