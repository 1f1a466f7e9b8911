// One worker's references: the owner's and the holder's tables put to work. Sees every message pass and
// registers the references in it.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/interceptor.h"
#include "actors/worker.h"
#include "rref/holder_table.h"
#include "rref/owner_table.h"

namespace troupe::rref {

class RefTable;

/// A counted reference on this worker, shared by all copies of an RRef. May outlive the worker: uses then
/// fail.
class Handle {
 public:
  Handle(std::shared_ptr<RefTable> table, ObjectId id, std::string type);
  ~Handle();
  Handle(const Handle&) = delete;

  const ObjectId& id() const { return id_; }
  const std::string& type() const { return type_; }  ///< of the actor
  RefTable& table() const { return *table_; }

 private:
  std::shared_ptr<RefTable> table_;
  ObjectId id_;
  std::string type_;
};
using HandlePtr = std::shared_ptr<Handle>;

/// Thread-safe.
class RefTable : public std::enable_shared_from_this<RefTable> {
 public:
  /// Adds interceptor, services and metrics to the worker.
  static std::shared_ptr<RefTable> install(actors::Worker& worker);
  /// The table of a worker that has one.
  static std::shared_ptr<RefTable> of(actors::Worker& worker);

  /// Makes an actor on worker `owner`; does not wait. A failed creation shows when the reference is used.
  /// `invalid` at once if an argument needs gradients or is a reference of another cluster.
  HandlePtr spawn(WorkerId owner, const std::string& type, ValueList args);
  /// A reference to an actor of this worker.
  HandlePtr refer(const actors::ActorCell& cell);
  /// Throws why the reference cannot be used, if it cannot.
  void check(const ObjectId& id);
  /// Ready once the object has been made, with the error if that failed.
  Future<void> ready(const Handle& handle);
  /// Calls f with the actor, in its mailbox, or with the reason why not. `invalid` on other workers than its
  /// own.
  void at_owner(const Handle& handle, std::function<void(const Result<Actor*>&)> f);
  bool is_here(const ObjectId& id) const;
  std::string describe(const Handle& handle) const;
  /// `cancelled` once the worker has stopped.
  actors::Worker& worker();

 private:
  friend class Handle;
  class Hook;
  explicit RefTable(actors::Worker& worker) : worker_(&worker) {}

  // What the hook sees.
  /// All references of a message to worker `to`, or none: then it throws.
  template <class Tree>
  void outgoing_all(WorkerId to, Tree& tree);
  void outgoing(WorkerId to, RefValue& ref);
  void not_sent(WorkerId to, RefValue& ref);
  void incoming(WorkerId from, RefValue& ref);
  void check_own(const RefValue& ref) const;  // `invalid` for a reference of another cluster
  bool missing(const Ref<actors::Invocation>& invocation);
  void lost(WorkerId id, const Error& why);
  void stop();

  void create(const ObjectId& id, const std::string& type, ValueList args);
  void dropped(const ObjectId& id);
  void perform(const ObjectId& id, HolderActions actions);
  void notify(WorkerId to, const char* service, ValueList args);
  void release(const std::vector<ObjectId>& ids);

  // Services.
  void on_spawn(const Ref<actors::Invocation>& call);
  void on_register(const Ref<actors::Invocation>& call);
  void on_give_back(const Ref<actors::Invocation>& call);
  void on_unpin(const Ref<actors::Invocation>& call);
  bool not_yet_created(const ObjectId& id) const;  // with mutex_

  struct Pin {
    std::shared_ptr<void> hold;
    WorkerId to;
  };
  std::recursive_mutex spawn_mutex_;  // spawns leave in the order of their numbers
  mutable std::mutex mutex_;  // guards what follows; no handle is let go and nothing is sent while it is held
  actors::Worker* worker_;
  OwnerTable owner_;
  HolderTable holder_;
  std::unordered_map<uint64_t, Pin> pins_;
  uint64_t last_pin_ = 0;
  std::map<ObjectId, Error> failed_;           // creations that failed, while they are held
  std::map<WorkerId, uint64_t> last_spawned_;  // by creator
  std::map<ObjectId, std::vector<Ref<actors::Invocation>>> parked_;  // calls that came before the creation
};

}  // namespace troupe::rref
