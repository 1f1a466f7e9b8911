// What a worker forgets as an actor ends that was a member of groups.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "actors/cell/actor_cell.h"
#include "collective/group.h"
#include "collective/lanes.h"
#include "collective/matching/operations.h"
#include "core/base/mutex.h"

namespace troupe::internal::collective {

// Kept with an actor: what it has called as a rank of groups is forgotten as it ends.
struct Memberships {
  Memberships() = default;
  Memberships(const Memberships&) = delete;
  ~Memberships() {
    if (const auto l = lanes_.lock())
      for (const auto& [group, rank] : ranks_) l->drop(group, rank);
    if (const auto t = table_.lock())
      for (const auto& [group, rank] : ranks_) t->leave(group, rank);
  }
  // From any thread: passes call groups on several.
  void add(const std::shared_ptr<Operations>& table, const std::shared_ptr<Lanes>& lanes, uint64_t group,
           size_t rank) {
    const Lock lock(mutex_);
    table_ = table;
    lanes_ = lanes;
    ranks_.emplace(group, rank);
  }

 private:
  Mutex mutex_;
  std::weak_ptr<Operations> table_ TROUPE_GUARDED_BY(mutex_);
  std::weak_ptr<Lanes> lanes_ TROUPE_GUARDED_BY(mutex_);
  std::set<std::pair<uint64_t, size_t>> ranks_ TROUPE_GUARDED_BY(mutex_);
};

inline void keep_membership(const std::shared_ptr<Operations>& table, const std::shared_ptr<Lanes>& lanes,
                            const Group& group, uint64_t number, size_t rank) {
  const auto cell = actors::current_cell();
  if (!cell || cell->id() != ids_of(group)[rank]) return;
  cell->keep<Memberships>().add(table, lanes, number, rank);
}

}  // namespace troupe::internal::collective
