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
}  // namespace troupe::internal::collective
