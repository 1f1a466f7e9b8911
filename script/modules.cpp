#include "script/modules.h"

#include "nn/make.h"

namespace troupe::script {

nn::Layer& NamedModule::made() {
  if (!layer) layer = nn::make(spec);
  return *layer;
}

NamedModule module_of(std::string_view name, ValueList positional, ValueMap named) {
  return {nn::spec_of(name, std::move(positional), std::move(named))};
}

Value state_value(const std::map<std::string, Tensor>& state) {
  ValueMap out;
  for (const auto& [name, tensor] : state) out[name] = tensor;
  return out;
}

}  // namespace troupe::script
