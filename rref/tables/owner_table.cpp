#include "rref/tables/owner_table.h"

#include <algorithm>

namespace troupe::internal::rref {

OwnerTable::Grants::iterator OwnerTable::find(Grants& grants, WorkerId holder) {
  return std::lower_bound(grants.begin(), grants.end(), holder,
                          [](const auto& entry, WorkerId w) { return entry.first < w; });
}

void OwnerTable::add(Grants& grants, WorkerId holder) {
  auto entry = find(grants, holder);
  if (entry == grants.end() || entry->first != holder) {
    entry = grants.emplace(entry, holder, 0);
    ++holders_;
  }
  ++entry->second;
}

// True if nobody is left.
bool OwnerTable::remove(Grants& grants, WorkerId holder, uint64_t count) {
  auto entry = find(grants, holder);
  if (entry == grants.end() || entry->first != holder) return false;
  if (entry->second > count) {
    entry->second -= count;
    return false;
  }
  grants.erase(entry);
  --holders_;
  return grants.empty();
}

bool OwnerTable::create(const ObjectId& id, WorkerId creator) {
  auto [at, fresh] = objects_.try_emplace(id);
  if (!fresh) return false;
  if (auto early = pending_.extract(id); !early.empty()) at->second = std::move(early.mapped());
  add(at->second, creator);
  return true;
}

bool OwnerTable::grant(const ObjectId& id, WorkerId holder) {
  auto at = objects_.find(id);
  if (at == objects_.end() || lost_.contains(holder)) return false;
  add(at->second, holder);
  return true;
}

bool OwnerTable::grant_early(const ObjectId& id, WorkerId holder) {
  if (lost_.contains(holder)) return false;
  add(pending_[id], holder);
  return true;
}

bool OwnerTable::release_grants(const ObjectId& id, WorkerId holder, uint64_t count) {
  if (auto at = objects_.find(id); at != objects_.end()) {
    if (!remove(at->second, holder, count)) return false;
    objects_.erase(at);
    return true;
  }
  if (auto at = pending_.find(id); at != pending_.end() && remove(at->second, holder, count))
    pending_.erase(at);
  return false;
}

std::vector<ObjectId> OwnerTable::lose(WorkerId holder) {
  lost_.insert(holder);
  std::vector<ObjectId> dead;
  for (auto at = objects_.begin(); at != objects_.end();) {
    Grants& grants = at->second;
    auto entry = find(grants, holder);
    if (entry != grants.end() && entry->first == holder) {
      grants.erase(entry);
      --holders_;
      lost_holders_.emplace_back(at->first, holder);
    }
    if (!grants.empty()) {
      ++at;
      continue;
    }
    dead.push_back(at->first);
    at = objects_.erase(at);
  }
  while (lost_holders_.size() > 1000) lost_holders_.pop_front();
  for (auto at = pending_.begin(); at != pending_.end();) {
    Grants& grants = at->second;
    remove(grants, holder, ~uint64_t{0});
    if (at->first.creator == holder) holders_ -= grants.size(), grants.clear();  // they hold nothing
    at = grants.empty() ? pending_.erase(at) : std::next(at);
  }
  return dead;
}

std::optional<WorkerId> OwnerTable::lost_holder(const ObjectId& id) const {
  for (const auto& [object, holder] : lost_holders_)
    if (object == id) return holder;
  return std::nullopt;
}

std::vector<WorkerId> OwnerTable::holders_of(const ObjectId& id) const {
  std::vector<WorkerId> out;
  if (auto at = objects_.find(id); at != objects_.end())
    for (const auto& [worker, grants] : at->second) out.push_back(worker);
  return out;
}

std::vector<ObjectId> OwnerTable::some(size_t limit) const {
  std::vector<ObjectId> out;
  for (auto at = objects_.begin(); at != objects_.end() && out.size() < limit; ++at) out.push_back(at->first);
  return out;
}

}  // namespace troupe::internal::rref
