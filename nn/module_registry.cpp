#include "nn/module_registry.h"

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include "core/base/call_frame.h"
#include "core/base/mutex.h"
#include "core/graph/construction_scope.h"
#include "nn/module.h"

namespace troupe::nn {
namespace {

struct Live {
  troupe::internal::Mutex mutex;
  std::map<Module*, uint64_t, std::less<>> modules;  // to their numbers
  struct Entry {
    Module* module;
    const void* actor;  // that made it
  };
  std::map<uint64_t, Entry> numbered;
  uint64_t last = 0;
};

// Never destroyed: modules may be static.
Live& live() {
  static Live& all = *new Live;
  return all;
}

}  // namespace

void module_made(Module& module) {
  uint64_t number;
  {
    std::lock_guard lock(live().mutex);
    number = ++live().last;
    live().modules[&module] = number;
    live().numbered[number] = {&module, frame().actor.address()};
  }
  ConstructionScope::note_module(number);
}

void module_gone(Module& module) {
  std::lock_guard lock(live().mutex);
  const auto at = live().modules.find(&module);
  if (at == live().modules.end()) return;
  live().numbered.erase(at->second);
  live().modules.erase(at);
}

std::vector<Module*> modules_numbered(const std::vector<uint64_t>& numbers) {
  std::lock_guard lock(live().mutex);
  std::vector<Module*> out;
  for (const uint64_t number : numbers)
    if (const auto at = live().numbered.find(number); at != live().numbered.end())
      out.push_back(at->second.module);
  return out;
}

std::vector<Module*> modules_made_by(const void* actor) {
  std::lock_guard lock(live().mutex);
  std::vector<Module*> out;
  for (const auto& [number, entry] : live().numbered)
    if (entry.actor == actor) out.push_back(entry.module);
  return out;
}

std::vector<Module*> modules_within(const void* begin, std::size_t size) {
  const auto at = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
  const auto first = reinterpret_cast<Module*>(at(begin));
  std::lock_guard lock(live().mutex);
  std::vector<Module*> out;
  for (auto it = live().modules.lower_bound(first); it != live().modules.end(); ++it) {
    if (at(it->first) >= at(begin) + size) break;
    out.push_back(it->first);
  }
  return out;
}

}  // namespace troupe::nn
