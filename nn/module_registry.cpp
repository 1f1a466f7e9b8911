#include "nn/module_registry.h"

#include <cstdint>
#include <functional>
#include <mutex>
#include <set>

#include "nn/module.h"

namespace troupe::nn {
namespace {

struct Live {
  std::mutex mutex;
  std::set<Module*, std::less<>> modules;
};

// Never destroyed: modules may be static.
Live& live() {
  static Live& all = *new Live;
  return all;
}

}  // namespace

void module_made(Module& module) {
  std::lock_guard lock(live().mutex);
  live().modules.insert(&module);
}

void module_gone(Module& module) {
  std::lock_guard lock(live().mutex);
  live().modules.erase(&module);
}

std::vector<Module*> modules_within(const void* begin, std::size_t size) {
  const auto at = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
  const auto first = reinterpret_cast<Module*>(at(begin));
  std::lock_guard lock(live().mutex);
  std::vector<Module*> out;
  for (auto it = live().modules.lower_bound(first); it != live().modules.end(); ++it) {
    if (at(*it) >= at(begin) + size) break;
    out.push_back(*it);
  }
  return out;
}

}  // namespace troupe::nn
