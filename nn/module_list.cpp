#include "nn/module_list.h"

#include <charconv>
#include <cstdint>

#include "core/base/error.h"

namespace troupe::nn {

size_t place_of(const std::string& name) {
  size_t i = SIZE_MAX;
  const auto end = std::from_chars(name.data(), name.data() + name.size(), i);
  return end.ec == std::errc() && end.ptr == name.data() + name.size() ? i : SIZE_MAX;
}

ModuleList& ModuleList::add(std::shared_ptr<Module> module) {
  if (!module) throw_invalid("[nn] add() needs a module, got a pointer to none");
  modules_.push_back(std::move(module));
  return *this;
}

void ModuleList::refuse_type(size_t i) const {
  throw_invalid("[nn] module " + std::to_string(i) + " of the list is a " + modules_[i]->str());
}

std::shared_ptr<Module> ModuleList::held_child(const std::string& name) {
  const size_t i = place_of(name);
  return i < modules_.size() ? modules_[i] : nullptr;
}

void ModuleList::hold_child(const std::string& name, const std::shared_ptr<Module>& module) {
  modules_.at(place_of(name)) = module;
}

}  // namespace troupe::nn
