// The results that stay with the worker that computed them: known from the moment their call arrives, there
// when it has ended, and asked for in between by calls that wait here. A pure state machine.
#pragma once
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/value/value.h"

namespace troupe::internal::rref {

/// Not synchronized. `StoredResult` is what there is to know of a value, `Call` what waits for it.
template <class StoredResult, class Call>
class ValueTable {
 public:
  using StoredResultPtr = std::shared_ptr<const StoredResult>;
  /// A value will be there, and has a reference.
  void expect(const ObjectId& id) { entries_.try_emplace(id); }
  /// It is there. The calls that waited for it.
  std::vector<Call> finish(const ObjectId& id, StoredResultPtr value) {
    auto at = entries_.find(id);
    if (at == entries_.end() || at->second.value) return {};
    std::vector<Call> waiting = std::move(at->second.waiting);
    if (at->second.released)
      entries_.erase(at);
    else
      at->second.value = std::move(value);
    return waiting;
  }
  bool has(const ObjectId& id) const { return entries_.contains(id); }
  /// The value, or null: then the call waits for it.
  StoredResultPtr get(const ObjectId& id, const Call& call) {
    Entry& entry = entries_.at(id);
    if (!entry.value) entry.waiting.push_back(call);
    return entry.value;
  }
  /// The value; null if it is not there yet, or unknown.
  StoredResultPtr peek(const ObjectId& id) const {
    const auto at = entries_.find(id);
    return at == entries_.end() ? nullptr : at->second.value;
  }
  /// Nobody refers to it any more. It is forgotten, but not before the calls that wait for it have it. What
  /// is returned is to be let go without any lock: values may hold references.
  StoredResultPtr release(const ObjectId& id) {
    auto at = entries_.find(id);
    if (at == entries_.end()) return nullptr;
    if (!at->second.waiting.empty()) {
      at->second.released = true;
      return nullptr;
    }
    StoredResultPtr value = std::move(at->second.value);
    entries_.erase(at);
    return value;
  }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    StoredResultPtr value;  // null: the method has not ended
    std::vector<Call> waiting;
    bool released = false;
  };
  std::unordered_map<ObjectId, Entry> entries_;
};

}  // namespace troupe::internal::rref
