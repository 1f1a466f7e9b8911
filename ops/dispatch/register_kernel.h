// Kernels for operators that a program defines.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// Gives an operator that is defined elsewhere, in a program, its kernel for a kind of device, before it is
/// first used there (at the start of main(), say). `adding`: as `kernel`, but adds result 0 to what is there;
/// see apply_adding(). `invalid` if `op` has kernels there already, needs none (view, compose), or has the
/// name of an operator of Troupe.
void register_kernel(const Op& op, Device::Kind kind, Kernel* kernel, Kernel* adding = nullptr);

}  // namespace troupe::ops
