#include "rref/owner_table.h"

#include <algorithm>

namespace troupe::rref {

bool OwnerTable::create(const ObjectId& id, WorkerId creator) {
  auto [at, fresh] = objects_.try_emplace(id);
  if (fresh) at->second[creator] = 1;
  return fresh;
}

bool OwnerTable::grant(const ObjectId& id, WorkerId holder) {
  auto at = objects_.find(id);
  if (at == objects_.end() || std::find(lost_.begin(), lost_.end(), holder) != lost_.end()) return false;
  ++at->second[holder];
  return true;
}

bool OwnerTable::give_back(const ObjectId& id, WorkerId holder, uint64_t count) {
  auto at = objects_.find(id);
  if (at == objects_.end()) return false;
  auto entry = at->second.find(holder);
  if (entry == at->second.end()) return false;
  if (entry->second > count) {
    entry->second -= count;
    return false;
  }
  at->second.erase(entry);
  if (!at->second.empty()) return false;
  objects_.erase(at);
  return true;
}

std::vector<ObjectId> OwnerTable::lose(WorkerId holder) {
  lost_.push_back(holder);
  std::vector<ObjectId> dead;
  for (auto at = objects_.begin(); at != objects_.end();) {
    at->second.erase(holder);
    if (!at->second.empty()) {
      ++at;
      continue;
    }
    dead.push_back(at->first);
    at = objects_.erase(at);
  }
  return dead;
}

size_t OwnerTable::holders() const {
  size_t n = 0;
  for (const auto& [id, holders] : objects_) n += holders.size();
  return n;
}

}  // namespace troupe::rref
