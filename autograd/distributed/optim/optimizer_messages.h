// The messages by which a distributed optimizer reaches the part of it that is beside an actor.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/worker/common_method.h"
#include "autograd/distributed/optim/copies.h"
#include "core/codec/plain_struct.h"
#include "core/tensor/shape.h"
#include "core/tensor/tensor.h"

namespace troupe::optim {

using internal::actors::CommonMethod;
using OptimizerState = std::map<std::string, Tensor>;

/// Options, and the names of the parameters that they are for, as ParameterFilter has them.
struct NamedGroup {
  std::vector<std::string> names;
  ValueMap options;
};
using GroupOptions = std::vector<ValueMap>;                // of each group
using GroupNames = std::vector<std::vector<std::string>>;  // of the parameters of each group
using NamedShapes = std::vector<std::pair<std::string, Shape>>;

// `key` is the optimizer's.
/// Optimizer to its actors: a function has to choose parameters. The names and shapes of all.
inline constexpr CommonMethod<NamedShapes()> kParameters{"optim.parameters"};
/// Optimizer to its actors: it has been made. The first group is for the parameters that no other one names;
/// a parameter that several name belongs to the first of these. The names of the parameters in each group.
inline constexpr CommonMethod<GroupNames(std::string key, std::string name, std::vector<NamedGroup> groups)>
    kCreate{"optim.create"};
/// Optimizer to its actors: a step, with the gradients of the call's context times `factor`. How many
/// parameters had one.
inline constexpr CommonMethod<int64_t(std::string key, GroupOptions options, double factor)> kStep{
    "optim.step"};
/// Optimizer to its actors: whether they could step now, as before kStep. With `sizes` the largest element of
/// each gradient.
inline constexpr CommonMethod<std::vector<double>(std::string key, GroupOptions options, bool sizes)> kReady{
    "optim.ready"};
/// Sizes of gradients: those that norms count, and those that are to be equal on several actors.
struct SizesHere {
  std::vector<double> counted;
  std::vector<CopySizes> copies;
};
/// Optimizer to its actors: gradients are to be clipped. A size for each parameter: its norm, or its largest
/// element.
inline constexpr CommonMethod<SizesHere(std::string key, bool largest)> kSizes{"optim.sizes"};
/// Optimizer to its actors: gradients are clipped, or unscaled; `wide` as in scale_gradients().
inline constexpr CommonMethod<void(std::string key, double factor, bool wide)> kScale{"optim.scale"};
/// Optimizer to its actors: state().
inline constexpr CommonMethod<OptimizerState(std::string key, GroupOptions options)> kState{"optim.state"};
/// Optimizer to its actors: load_state(). The options in it.
inline constexpr CommonMethod<GroupOptions(std::string key, OptimizerState state)> kLoadState{
    "optim.load_state"};
/// Optimizer to its actors: save().
inline constexpr CommonMethod<void(std::string key, GroupOptions options, std::string folder,
                                   std::string file)>
    kSave{"optim.save"};
/// Optimizer to its actors: load(). The options in the file.
inline constexpr CommonMethod<GroupOptions(std::string key, std::string folder, std::string file)> kLoad{
    "optim.load"};
/// Optimizer to its actors: it has gone.
inline constexpr CommonMethod<void(std::string key)> kDrop{"optim.drop"};

}  // namespace troupe::optim
