// The messages by which a distributed optimizer reaches the part of it that is beside an actor.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "actors/worker/common_method.h"
#include "core/tensor/tensor.h"

namespace troupe::optim {

using internal::actors::CommonMethod;
using OptimizerState = std::map<std::string, Tensor>;

// `key` is the optimizer's.
/// Optimizer to its actors: it has been made. How many parameters each has.
inline constexpr CommonMethod<int64_t(std::string key, std::string name, ValueMap options)> kCreate{
    "optim.create"};
/// Optimizer to its actors: a step, with the gradients of the call's context. How many parameters had one.
inline constexpr CommonMethod<int64_t(std::string key, ValueMap options)> kStep{"optim.step"};
/// Optimizer to its actors: gradients are to be clipped. A size for each parameter: its norm, or its largest
/// element.
inline constexpr CommonMethod<std::vector<double>(std::string key, bool largest)> kSizes{"optim.sizes"};
/// Optimizer to its actors: gradients are clipped.
inline constexpr CommonMethod<void(std::string key, double factor)> kScale{"optim.scale"};
/// Optimizer to its actors: state().
inline constexpr CommonMethod<OptimizerState(std::string key, ValueMap options)> kState{"optim.state"};
/// Optimizer to its actors: load_state(). The options in it.
inline constexpr CommonMethod<ValueMap(std::string key, OptimizerState state)> kLoadState{"optim.load_state"};
/// Optimizer to its actors: save().
inline constexpr CommonMethod<void(std::string key, ValueMap options, std::string folder, std::string file)>
    kSave{"optim.save"};
/// Optimizer to its actors: load(). The options in the file.
inline constexpr CommonMethod<ValueMap(std::string key, std::string folder, std::string file)> kLoad{
    "optim.load"};
/// Optimizer to its actors: it has gone.
inline constexpr CommonMethod<void(std::string key)> kDrop{"optim.drop"};

/// In an actor's method: another actor has the same parameter with the same gradient, and counts it in norms
/// of all gradients; here it is left out of them.
void leave_out_of_norms(const Tensor& parameter);

}  // namespace troupe::optim
