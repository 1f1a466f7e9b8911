#include "rref/tables/holder_table.h"

namespace troupe::internal::rref {

void HolderTable::created(const ObjectId& id) {
  Entry& entry = entries_[id];
  entry.handles = entry.grants = 1;
}

void HolderTable::not_made(const ObjectId& id, const Error& why) {
  Entry& entry = entries_[id];
  entry.grants = 0;
  entry.failed = std::make_shared<const Error>(why);
}

std::optional<Error> HolderTable::unshareable(const ObjectId& id) const {
  auto at = entries_.find(id);
  if (at == entries_.end() || !at->second.failed || at->second.grants) return std::nullopt;
  return *at->second.failed;
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
    if (!entry.registering) {
      entry.registering = std::make_unique<Registration>();
      ++registering_;
      actions.register_at_owner = true;
    }
    entry.registering->waiting.push_back({sender, pin});
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

std::vector<std::pair<ObjectId, HolderActions>> HolderTable::detach() {
  std::vector<std::pair<ObjectId, HolderActions>> out;
  for (const auto& [id, entry] : entries_) out.emplace_back(id, HolderActions{});
  for (auto& [id, actions] : out) {
    entries_[id].handles = 0;
    actions = forget_if_unused(id);
  }
  return out;
}

HolderActions HolderTable::registered(const ObjectId& id, std::optional<Error> refused) {
  auto at = entries_.find(id);
  if (at == entries_.end()) return {};
  Entry& entry = at->second;
  std::vector<Unpin> unpins;
  if (auto ended = std::move(entry.registering)) {
    unpins = std::move(ended->waiting);
    --registering_;
  }
  if (refused)
    entry.failed = std::make_shared<const Error>(std::move(*refused));
  else
    ++entry.grants;
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
  actions.release_grants = entry.failed ? 0 : entry.grants;
  entries_.erase(at);
  return actions;
}

std::optional<Error> HolderTable::failure(const ObjectId& id) const {
  auto at = entries_.find(id);
  return at == entries_.end() || !at->second.failed ? std::nullopt : std::optional(*at->second.failed);
}

void HolderTable::owner_lost(WorkerId owner, const Error& why) {
  const auto shared = std::make_shared<const Error>(why);
  for (auto& [id, entry] : entries_)
    if (id.owner == owner && !entry.failed) entry.failed = shared;
}

}  // namespace troupe::internal::rref
