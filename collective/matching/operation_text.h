// How errors of operations name them, and who takes part.
#pragma once
#include <string>
#include <vector>

#include "collective/matching/operation_id.h"
#include "collective/matching/signature.h"
#include "core/base/error.h"

namespace troupe::internal::collective {

/// "rank 3 (w1)".
std::string rank_text(const std::vector<GroupMember>& members, size_t rank);
/// The same of several.
template <class Ranks>
std::string ranks_text(const std::vector<GroupMember>& members, const Ranks& ranks) {
  std::string all;
  for (const size_t r : ranks) all += (all.empty() ? "" : ", ") + rank_text(members, r);
  return all;
}
/// "[all_reduce] use 3 of tag "grads"".
std::string operation_text(const OperationId& id, Collective what);
inline std::string operation_text(const OperationId& id, const Signature& s) {
  return operation_text(id, s.operation());
}
Error lost_error(const OperationId& id, const Signature& s, const std::vector<GroupMember>& members,
                 size_t rank, const Error& why);
Error uses_no_more(const OperationId& id);

}  // namespace troupe::internal::collective
