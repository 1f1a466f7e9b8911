#include "collective/matching/operation_text.h"

namespace troupe::internal::collective {

std::string rank_text(const std::vector<GroupMember>& members, size_t rank) {
  return "rank " + std::to_string(rank) + " (" + members[rank].name + ")";
}

std::string operation_text(const OperationId& id, Collective what) {
  const bool single = id.use == OperationId::kSingleUse;
  return "[" + std::string(name(what)) + "] " + (single ? "the use" : "use " + std::to_string(id.use)) +
         (id.tag.empty() ? " without a tag" : " of tag \"" + id.tag + "\"");
}

Error lost_error(const OperationId& id, const Signature& s, const std::vector<GroupMember>& members,
                 size_t rank, const Error& why) {
  return Error(ErrorKind::disconnected,
               operation_text(id, s) + ": " + rank_text(members, rank) + " was lost: " + why.message() +
                   "; make a group of the members that are left: this one cannot be used any more")
      .with_worker(why.worker().empty() ? members[rank].name : why.worker());
}

Error uses_no_more(const OperationId& id) {
  return Error(ErrorKind::cancelled, "rank " + std::to_string(id.rank) + " uses the group no more");
}

}  // namespace troupe::internal::collective
