#include "nn/activation.h"

#include "nn/init.h"
#include "nn/norm_parameters.h"

namespace troupe::nn {

PReLU::PReLU(int64_t num_parameters, double init, DType dtype)
    : weight(parameter("prelu", {num_parameters}, init, dtype)), init_(init) {}

void PReLU::reset(Generator&) { init::constant_(weight, init_); }

}  // namespace troupe::nn
