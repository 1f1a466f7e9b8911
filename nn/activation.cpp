#include "nn/activation.h"

#include "core/base/error.h"
#include "nn/init.h"
#include "nn/norm_parameters.h"

namespace troupe::nn {

GELU::GELU(std::string approximate) : approximate_(std::move(approximate)) {
  if (approximate_ != "none" && approximate_ != "tanh")
    throw_invalid("[gelu] approximate must be \"none\" or \"tanh\", got \"" + approximate_ + "\"");
}

PReLU::PReLU(int64_t num_parameters, double init, DType dtype)
    : weight(parameter("prelu", {num_parameters}, init, dtype)), init_(init) {}

void PReLU::reset(Generator&) { init::constant_(weight, init_); }

}  // namespace troupe::nn
