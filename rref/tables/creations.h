// Which objects have been made on this worker, and the calls that came before the object that they are for. A
// pure state machine.
//
// Creations of one worker arrive in the order of their numbers. A reference that it passes on may be faster:
// what is asked of a number that has not come yet waits for it. So does what comes while the object is being
// made, from other workers and so on other threads: nobody may overtake what waits.
#pragma once
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/value/value.h"

namespace troupe::internal::rref {

/// Not synchronized. `Call` is what waits.
template <class Call>
class Creations {
 public:
  /// Its creation is here.
  void begin(const ObjectId& id) { constructing_.insert(id); }
  bool constructing(const ObjectId& id) const { return constructing_.contains(id); }
  /// May an object of this number still come?
  bool pending(const ObjectId& id) const {
    if (constructing(id)) return true;
    if (lost_.contains(id.creator)) return false;
    const auto at = last_.find(id.creator);
    return at == last_.end() || id.number > at->second;
  }
  void wait(const ObjectId& id, Call call) { waiting_[id].push_back(std::move(call)); }

  /// What waits for it.
  std::vector<Call> take(const ObjectId& id) {
    auto node = waiting_.extract(id);
    return node.empty() ? std::vector<Call>() : std::move(node.mapped());
  }
  /// From now on it is there, or not, and nothing waits for it. (Nor for an older one: see
  /// HolderTable::unshareable.)
  void made(const ObjectId& id) {
    constructing_.erase(id);
    last_[id.creator] = id.number;
  }
  /// The creator is gone: what waits for its creations waits in vain, but for those that are being made.
  std::vector<Call> lose(WorkerId creator) {
    lost_.insert(creator);
    std::vector<Call> out;
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      if (at->first.creator != creator || constructing(at->first)) {
        ++at;
        continue;
      }
      for (auto& c : at->second) out.push_back(std::move(c));
      at = waiting_.erase(at);
    }
    return out;
  }
  /// Objects that are waited for.
  size_t waiting() const { return waiting_.size(); }

 private:
  std::unordered_map<WorkerId, uint64_t> last_;  // number that came last, by creator
  std::unordered_set<WorkerId> lost_;
  std::unordered_set<ObjectId> constructing_;
  std::unordered_map<ObjectId, std::vector<Call>> waiting_;
};

}  // namespace troupe::internal::rref
