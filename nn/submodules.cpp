// Modules inside a module, by name: found, and replaced.
#include <fmt/format.h>

#include "core/base/error.h"
#include "nn/any_layer.h"
#include "nn/module.h"

namespace troupe::nn {

namespace {

// Lists all modules inside, by their names in the whole.
void names_of(Module& module, const std::string& prefix, std::vector<std::pair<std::string, Module*>>& out) {
  for (auto& [name, child] : module.children()) {
    const std::string full = prefix.empty() ? name : name.empty() ? prefix : prefix + "." + name;
    out.emplace_back(full, child);
    names_of(*child, full, out);
  }
}

}  // namespace

Module& Module::get_submodule(const std::string& name) {
  if (name.empty()) return *this;
  std::vector<std::pair<std::string, Module*>> all;
  names_of(*this, "", all);
  std::vector<std::string> known;
  for (const auto& [other, module] : all) {
    if (other == name) return *module;
    known.push_back(other);
  }
  const std::string near = nearest(name, known);
  throw_invalid(fmt::format("[nn] {} has no module \"{}\"{}", str(), name,
                            near.empty() ? "" : ": did you mean \"" + near + "\"?"));
}

// Who holds the module of that name by a pointer, and what it is called there.
std::pair<Module*, std::string> Module::holder_of(const std::string& name) {
  Module& there = get_submodule(name);
  if (there.held_child("")) return {&there, ""};  // an AnyLayer
  const size_t dot = name.rfind('.');
  Module& parent = get_submodule(dot == std::string::npos ? "" : name.substr(0, dot));
  const std::string last = dot == std::string::npos ? name : name.substr(dot + 1);
  if (!name.empty() && parent.held_child(last)) return {&parent, last};
  throw_invalid(
      fmt::format("[nn] {} is a member of {} itself, so no other module can take its place: make it an "
                  "nn::AnyLayer, or a part of a "
                  "Sequential or a ModuleList",
                  name.empty() ? "the whole" : "\"" + name + "\"", parent.str()));
}

std::shared_ptr<Module> Module::shared_submodule(const std::string& name) {
  const auto [holder, last] = holder_of(name);
  return holder->held_child(last);
}

void Module::set_submodule(const std::string& name, const std::shared_ptr<Module>& module) {
  if (!module) throw_invalid("[nn] set_submodule() needs a module, got a pointer to none");
  const auto [holder, last] = holder_of(name);
  holder->hold_child(last, module);
}

std::shared_ptr<Layer> Module::as_layer(const std::shared_ptr<Module>& module) {
  if (auto layer = std::dynamic_pointer_cast<Layer>(module)) return layer;
  throw_invalid(
      fmt::format("[nn] {} is no Layer, from one tensor to one tensor, which is needed here", module->str()));
}

AnyLayer::AnyLayer(std::shared_ptr<Layer> layer) : held_(std::move(layer)) {
  if (!held_) throw_invalid("[nn] AnyLayer needs a layer, got a pointer to none");
}

std::shared_ptr<Module> AnyLayer::held_child(const std::string& name) {
  return name.empty() ? held_ : nullptr;
}

void AnyLayer::hold_child(const std::string&, const std::shared_ptr<Module>& module) {
  held_ = as_layer(module);
}

}  // namespace troupe::nn
