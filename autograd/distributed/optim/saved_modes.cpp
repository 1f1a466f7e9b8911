#include "autograd/distributed/optim/saved_modes.h"

#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/creation.h"

namespace troupe::internal {
namespace {

constexpr std::string_view kModes = "modes", kEval = "modes.eval.", kFrozen = "modes.frozen.";

using Named = std::vector<std::pair<std::string, nn::Module*>>;

// From the outside in; the wrapper of a module has its name.
void gather_named(nn::Module& module, const std::string& name, Named& all) {
  all.emplace_back(name, &module);
  for (auto& [child, inner] : module.children())
    gather_named(*inner, name.empty() || child.empty() ? name + child : name + "." + child, all);
}

Named named_modules(nn::Module& module) {
  Named all;
  gather_named(module, "", all);
  return all;
}

void set_trained(Tensor parameter, bool on) {
  if (parameter.requires_grad() != on) parameter.requires_grad_(on);
}

void set_by_order(nn::Module& module, const Tensor& saved) {
  const Named all = named_modules(module);
  const auto parameters = module.named_parameters();
  const Shape expected{static_cast<int64_t>(all.size() + parameters.size())};
  if (saved.dtype() != int64 || saved.shape() != expected)
    throw_invalid("[checkpoint] its modes of modules and parameters are " + saved.summary() +
                  ", expected int64 " + expected.str());
  const auto modes = saved.to_vector<int64_t>();
  for (size_t i = 0; i < all.size(); ++i) all[i].second->train(modes[i] != 0);
  for (size_t i = 0; i < parameters.size(); ++i)
    set_trained(parameters[i].second, modes[all.size() + i] != 0);
}

}  // namespace

StateDict modes_of(nn::Module& module) {
  const Tensor said = zeros({0}, int64);
  StateDict out{{std::string(kModes), said}};
  for (const auto& [name, m] : named_modules(module))
    if (!m->training()) out[std::string(kEval) + name] = said;
  for (const auto& [name, t] : module.named_parameters())
    if (!t.requires_grad()) out[std::string(kFrozen) + name] = said;
  return out;
}

void set_modes(nn::Module& module, const StateDict& saved) {
  const auto at = saved.find(std::string(kModes));
  if (at == saved.end()) throw_invalid("[checkpoint] it has no \"modes\" of a module");
  if (at->second.numel() > 0) return set_by_order(module, at->second);
  for (const auto& [name, m] : named_modules(module)) m->train(!saved.contains(std::string(kEval) + name));
  for (const auto& [name, t] : module.named_parameters())
    set_trained(t, !saved.contains(std::string(kFrozen) + name));
}

bool is_modes(const std::string& name) {
  return name.ends_with("." + std::string(kModes)) ||
         name.find("." + std::string(kEval)) != std::string::npos || !frozen_in(name).empty();
}

std::string frozen_in(const std::string& name) {
  const std::string begin = "." + std::string(kFrozen);
  const size_t at = name.find(begin);
  return at == std::string::npos ? std::string() : name.substr(at + begin.size());
}

}  // namespace troupe::internal
