// Which objects have been made on this worker, and the calls that came before the object that they are for. A
// pure state machine.
//
// Creations of one worker arrive in the order of their numbers. A reference that it passes on may be faster:
// what is asked of a number that has not come yet waits for it.
#pragma once
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/value.h"

namespace troupe::rref {

/// Not synchronized. `Call` is what waits.
template <class Call>
class Creations {
 public:
  /// May an object of this number still come?
  bool due(const ObjectId& id) const {
    if (lost_.contains(id.creator)) return false;
    const auto at = last_.find(id.creator);
    return at == last_.end() || id.number > at->second;
  }
  void wait(const ObjectId& id, Call call) { waiting_[id].push_back(std::move(call)); }

  struct Arrival {
    std::vector<Call> waiting, forlorn;  ///< those for it; those for older ones, which will never come
  };
  Arrival made(const ObjectId& id) {
    Arrival out;
    last_[id.creator] = id.number;
    for (auto at = waiting_.lower_bound({id.owner, id.creator, 0});
         at != waiting_.end() && at->first <= id;) {
      auto& calls = at->first == id ? out.waiting : out.forlorn;
      for (auto& c : at->second) calls.push_back(std::move(c));
      at = waiting_.erase(at);
    }
    return out;
  }
  /// The creator is gone: what waits for its creations waits in vain.
  std::vector<Call> lose(WorkerId creator) {
    lost_.insert(creator);
    std::vector<Call> out;
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      if (at->first.creator != creator) {
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
  std::map<ObjectId, std::vector<Call>> waiting_;
};

}  // namespace troupe::rref
