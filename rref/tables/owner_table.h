// The owner's side of distributed reference counting: who holds what lives here. A pure state machine.
//
// Reference listing after Birrell's network objects: one entry per object and holding worker, so a worker
// that dies takes all its references with it. An entry counts the copies that the owner knows of ("grants"):
// each reference that the owner sends to the holder, and each that the holder registers, is one; the holder
// gives back, in one message, as many as it has seen. Whatever the order of messages, an entry is empty
// exactly when the holder has nothing and nothing is on its way to it from the owner.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/value/value.h"

namespace troupe::internal::rref {

/// Not synchronized. Every operation but lose() takes the same time however many objects there are.
class OwnerTable {
 public:
  /// A new object; its creator holds the first reference. False if it exists.
  bool create(const ObjectId& id, WorkerId creator);
  /// One more reference for `holder`. False if there is no such object, or the holder was lost.
  bool grant(const ObjectId& id, WorkerId holder);
  /// The same for an object whose creation has not come yet, but may: it counts once that comes, and is
  /// forgotten with the creator. False if the holder was lost.
  bool grant_early(const ObjectId& id, WorkerId holder);
  /// `holder` gives back `count` references. True if nobody holds the object any more: it is forgotten here
  /// and to be released. What was granted to nobody is ignored.
  bool release_grants(const ObjectId& id, WorkerId holder, uint64_t count);
  /// The holder is gone, with all its references, for good. The objects that nobody holds now, forgotten
  /// here.
  std::vector<ObjectId> lose(WorkerId holder);
  /// A lost worker that held the object, if there was one (known of the last thousand objects): where the
  /// object is gone, that may be why.
  std::optional<WorkerId> lost_holder(const ObjectId& id) const;

  bool owns(const ObjectId& id) const { return objects_.contains(id); }
  size_t objects() const { return objects_.size(); }
  /// Objects that have grants, and no creation yet.
  size_t pending() const { return pending_.size(); }
  /// Entries over all objects.
  size_t holders() const { return holders_; }
  /// Who holds an object, by number.
  std::vector<WorkerId> holders_of(const ObjectId& id) const;
  /// At most `limit` objects, in no order.
  std::vector<ObjectId> some(size_t limit) const;

 private:
  using Grants = std::vector<std::pair<WorkerId, uint64_t>>;  // by worker; mostly one
  static Grants::iterator find(Grants& grants, WorkerId holder);
  void add(Grants& grants, WorkerId holder);
  bool remove(Grants& grants, WorkerId holder, uint64_t count);
  std::unordered_map<ObjectId, Grants> objects_, pending_;
  std::unordered_set<WorkerId> lost_;
  std::deque<std::pair<ObjectId, WorkerId>> lost_holders_;
  size_t holders_ = 0;
};

}  // namespace troupe::internal::rref
