// Modules by name: what they are made from, and the modules themselves.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "core/value/value.h"
#include "nn/module.h"

namespace troupe::script {

/// A module: what it is made from, and, once it has been used here, the module itself.
struct NamedModule {
  Value spec;
  std::shared_ptr<nn::Layer> layer = nullptr;
  nn::Layer& made();
};

/// What nn.NAME makes of these arguments: nn::spec_of().
NamedModule module_of(std::string_view name, ValueList positional, ValueMap named);

/// A state, tensors by name, as a value.
Value state_value(const std::map<std::string, Tensor>& state);

}  // namespace troupe::script
