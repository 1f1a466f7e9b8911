#include "collective/group_number.h"

#include "core/base/generator.h"
#include "net/wire/wire.h"

namespace troupe::internal::collective {

uint64_t number_of(const Group& group) {
  uint64_t number = net::method_id(group.name());
  for (const ObjectId& m : internal::collective::ids_of(group))
    for (const uint64_t x : {uint64_t{m.owner}, uint64_t{m.creator}, m.number})
      number = splitmix64(number ^ x);
  return number;
}

std::vector<GroupMember> members_of(const Group& group) {
  std::vector<GroupMember> members;
  for (size_t r = 0; r < group.size(); ++r)
    members.push_back({internal::collective::ids_of(group)[r].owner, group.label(r)});
  return members;
}

}  // namespace troupe::internal::collective
