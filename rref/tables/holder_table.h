// A holder's side of distributed reference counting: the references to other workers' objects. A pure state
// machine: what has to be sent comes back as actions.
//
// A reference that arrives from the owner is registered already. One that arrives from another holder is not:
// that holder keeps its own ("pinned") until this worker has registered at the owner and said so.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/value/value.h"

namespace troupe::internal::rref {

/// Tell `to` that pin `pin` is no longer needed.
struct Unpin {
  WorkerId to;
  uint64_t pin;
  bool operator==(const Unpin&) const = default;
};

struct HolderActions {
  bool register_at_owner = false;  ///< ask the owner for a grant, then call registered()
  uint64_t release_grants = 0;     ///< tell the owner that so many grants are given back; 0: nothing
  std::vector<Unpin> unpins;
};

/// Not synchronized. Every operation but owner_lost() takes the same time however many references there are.
class HolderTable {
 public:
  /// We made the object: the owner will list us when it hears of it.
  void created(const ObjectId& id);
  /// The owner will not hear of it after all.
  void not_made(const ObjectId& id, const Error& why);
  /// A reference arrived and gets one more handle. `pin` 0: it came from the owner.
  HolderActions imported(const ObjectId& id, WorkerId sender, uint64_t pin);
  /// One more handle on a reference that has one.
  void copied(const ObjectId& id);
  /// A handle is gone.
  HolderActions dropped(const ObjectId& id);
  /// All handles are gone.
  std::vector<std::pair<ObjectId, HolderActions>> detach();
  /// The owner's answer to register_at_owner.
  HolderActions registered(const ObjectId& id, std::optional<Error> refused);
  /// Why a reference cannot be used, if it cannot.
  std::optional<Error> failure(const ObjectId& id) const;
  /// Why it cannot be passed on, if it cannot: the owner does not know of it, so nobody will ever use it.
  std::optional<Error> unshareable(const ObjectId& id) const;
  /// The owner is gone; its references stay until their handles go, and need no message then.
  void owner_lost(WorkerId owner, const Error& why);

  size_t held() const { return entries_.size(); }
  size_t registering() const { return registering_; }

 private:
  struct Registration {
    std::vector<Unpin> waiting;  // to be unpinned once registered
  };
  struct Entry {
    uint64_t handles = 0, grants = 0;
    std::unique_ptr<Registration> registering;  // null: none is under way
    std::shared_ptr<const Error> failed;
  };
  HolderActions forget_if_unused(const ObjectId& id);
  std::unordered_map<ObjectId, Entry> entries_;
  size_t registering_ = 0;
};

}  // namespace troupe::internal::rref
