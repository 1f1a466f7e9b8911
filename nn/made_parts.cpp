#include "nn/made_parts.h"

#include <algorithm>
#include <set>
#include <string>

#include "nn/module_registry.h"

namespace troupe::nn {
namespace {

void add_inside(Module& module, std::set<const Module*>& inside) {
  for (auto& [name, child] : module.children())
    if (inside.insert(child).second) add_inside(*child, inside);
}

}  // namespace

std::vector<Module*> modules_of(const MadeParts& parts) {
  std::vector<Module*> alive = modules_numbered(parts.modules);
  std::set<const Module*> inside;
  for (Module* m : alive) add_inside(*m, inside);
  std::erase_if(alive, [&](const Module* m) { return inside.contains(m); });
  return alive;
}

MadeModule::MadeModule(MadeParts& parts) : modules_(modules_of(parts)) {
  std::set<const TensorImpl*> known;
  for (Module* m : modules_)
    for (const Tensor& t : m->parameters()) known.insert(t.impl());
  std::erase_if(parts.leaves, [](const Tensor& t) { return t.is_sole_handle(); });  // the actor let go of it
  for (const Tensor& t : parts.leaves)
    if (!known.contains(t.impl())) tensors_.push_back(t);
  training_ = modules_.empty() || modules_.front()->training();
}

void MadeModule::members(Members& m) {
  for (size_t i = 0; i < modules_.size(); ++i) m(std::to_string(i), *modules_[i]);
  for (size_t i = 0; i < tensors_.size(); ++i) m("tensor" + std::to_string(i), tensors_[i]);
}

}  // namespace troupe::nn
