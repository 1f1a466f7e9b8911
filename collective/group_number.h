// The number by which messages name a group.
#pragma once
#include <cstdint>
#include <vector>

#include "collective/group.h"
#include "collective/matching/operations.h"

namespace troupe::internal::collective {

/// Groups of one name and members are one, on all workers.
uint64_t number_of(const Group& group);
std::vector<GroupMember> members_of(const Group& group);
/// Whether two ids of members mean one: that of an actor, or of the worker on which it lives.
inline bool is_same_member(const ObjectId& a, const ObjectId& b) {
  return a.number && b.number ? a == b : a.owner == b.owner;
}

}  // namespace troupe::internal::collective
