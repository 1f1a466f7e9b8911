// Members of a group: actors, or workers.
#pragma once
#include <algorithm>
#include <vector>

#include "core/value/value.h"

namespace troupe::internal::rref {

/// Whether two ids of members mean one: that of an actor, or of the worker on which it lives.
inline bool is_same_member(const ObjectId& a, const ObjectId& b) {
  return a.number && b.number ? a == b : a.owner == b.owner;
}
inline bool are_members(const std::vector<ObjectId>& some, const std::vector<ObjectId>& of_all) {
  return std::ranges::all_of(some, [&](const ObjectId& m) {
    return std::ranges::any_of(of_all, [&](const ObjectId& other) { return is_same_member(m, other); });
  });
}

}  // namespace troupe::internal::rref
