#include "rref/holder_table.h"

namespace troupe::rref {

void HolderTable::created(const ObjectId& id) {
  Entry& entry = entries_[id];
  entry.handles = entry.grants = 1;
}

HolderActions HolderTable::imported(const ObjectId& id, WorkerId sender, uint64_t pin) {
  HolderActions actions;
  Entry& entry = entries_[id];
  ++entry.handles;
  if (pin == 0) {
    ++entry.grants;
  } else if (entry.grants || entry.failed) {
    actions.unpins.push_back({sender, pin});
  } else {
    entry.waiting.push_back({sender, pin});
    actions.register_at_owner = !entry.registering;
    entry.registering = true;
  }
  return actions;
}

void HolderTable::copied(const ObjectId& id) { ++entries_[id].handles; }

HolderActions HolderTable::dropped(const ObjectId& id) {
  auto at = entries_.find(id);
  if (at == entries_.end()) return {};
  --at->second.handles;
  return forget_if_unused(id);
}

HolderActions HolderTable::registered(const ObjectId& id, std::optional<Error> refused) {
  auto at = entries_.find(id);
  if (at == entries_.end()) return {};
  Entry& entry = at->second;
  entry.registering = false;
  if (refused)
    entry.failed = std::move(refused);
  else
    ++entry.grants;
  std::vector<Unpin> unpins = std::move(entry.waiting);
  HolderActions actions = forget_if_unused(id);
  actions.unpins = std::move(unpins);
  return actions;
}

// While the owner's answer is on its way the entry stays, so that the grant it brings is given back.
HolderActions HolderTable::forget_if_unused(const ObjectId& id) {
  auto at = entries_.find(id);
  const Entry& entry = at->second;
  if (entry.handles || entry.registering) return {};
  HolderActions actions;
  actions.give_back = entry.failed ? 0 : entry.grants;
  entries_.erase(at);
  return actions;
}

std::optional<Error> HolderTable::failure(const ObjectId& id) const {
  auto at = entries_.find(id);
  return at == entries_.end() ? std::nullopt : at->second.failed;
}

void HolderTable::owner_lost(WorkerId owner, const Error& why) {
  for (auto& [id, entry] : entries_)
    if (id.owner == owner && !entry.failed) entry.failed = why;
}

size_t HolderTable::registering() const {
  size_t n = 0;
  for (const auto& [id, entry] : entries_) n += entry.registering;
  return n;
}

}  // namespace troupe::rref
