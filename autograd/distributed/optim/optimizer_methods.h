// The methods by which a distributed optimizer reaches the part of it that is beside an actor.
#pragma once
#include "core/tensor/tensor.h"

namespace troupe::optim {

// The first argument is the optimizer's key.
inline constexpr const char* kCreate = "optim.create";         // optimizer name, options; how many parameters
inline constexpr const char* kStep = "optim.step";             // options; gradients of the call's context
inline constexpr const char* kSizes = "optim.sizes";           // largest?; a size for each parameter
inline constexpr const char* kScale = "optim.scale";           // factor
inline constexpr const char* kState = "optim.state";           // options; a map of tensors
inline constexpr const char* kLoadState = "optim.load_state";  // a map of tensors; the options
inline constexpr const char* kSave = "optim.save";             // options, folder, file name
inline constexpr const char* kLoad = "optim.load";             // folder, file name; the options
inline constexpr const char* kDrop = "optim.drop";

/// In an actor's method: another actor has the same parameter with the same gradient, and counts it in norms
/// of all gradients; here it is left out of them.
void leave_out_of_norms(const Tensor& parameter);

}  // namespace troupe::optim
