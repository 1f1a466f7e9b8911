// One worker's references: the owner's and the holder's tables put to work. Sees every message pass and
// registers the references in it.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "actors/cell/interceptor.h"
#include "actors/worker/worker.h"
#include "core/base/generator.h"
#include "core/base/mutex.h"
#include "rref/handle.h"
#include "rref/name_table.h"
#include "rref/tables/creations.h"
#include "rref/tables/holder_table.h"
#include "rref/tables/owner_table.h"
#include "rref/tables/value_table.h"

namespace troupe::internal::rref {

/// What a method whose result stays returned, or threw.
struct StoredResult {
  Value value;
  std::unique_ptr<const Error> error;  ///< set: there is no value
  /// The actor whose method it was, in whose mailbox the value is read: it may share tensors with the actor's
  /// state, and its history with later calls. Null with an error.
  std::shared_ptr<actors::ActorCell> cell;
};
using StoredResultPtr = std::shared_ptr<const StoredResult>;

/// Thread-safe.
class RefTable : public std::enable_shared_from_this<RefTable> {
 public:
  /// Adds interceptor, services and metrics to the worker.
  static std::shared_ptr<RefTable> install(actors::Worker& worker);
  /// The table of a worker that has one.
  static std::shared_ptr<RefTable> of(actors::Worker& worker);

  /// Makes an actor on worker `owner`; does not wait. A failed creation shows when the reference is used.
  /// `invalid` at once if an argument needs gradients or is a reference of another cluster.
  /// With a name that is taken: that is its failure.
  HandlePtr spawn(WorkerId owner, const std::string& type, uint64_t constructor, ValueList args,
                  const std::string& name = {});
  /// A path for the next thing of that kind that the current actor makes, or the program's own code here: the
  /// same in every run, wherever actors live, as long as each makes its things in the same order.
  std::string path_of_next(const std::string& kind);
  /// Paths of the program's own things begin again.
  void count_anew();
  /// While one is alive, what this thread spawns has these paths, one after the other and then the last, as
  /// if it were the actors that had them before: no count moves for it, nor the thread's stream of random
  /// numbers.
  class SpawnAs {
   public:
    SpawnAs(RefTable& table, std::string path) : SpawnAs(table, std::vector{std::move(path)}) {}
    SpawnAs(RefTable& table, std::vector<std::string> paths);
    SpawnAs(const SpawnAs&) = delete;
    ~SpawnAs();

   private:
    RefTable& table_;
    const Generator::Position random_;
  };
  /// Calls a method whose result stays with the actor's worker; a reference to it. Does not wait.
  HandlePtr remote(const Handle& actor, const char* method, const std::string& type, ValueList args,
                   actors::CallOptions options);
  /// A number for the caller's JointCalls.
  uint64_t next_joint_calls() { return ++joint_calls_; }
  /// The reference to a result that went elsewhere, if that is what a call gave; else null.
  static HandlePtr kept_result(const Value& value);
  /// The value of such a reference, when it is there.
  Future<Value> fetch(const Handle& value, const actors::CallOptions& options);
  /// A reference to an actor of this worker.
  HandlePtr refer(const actors::ActorCell& cell);

  /// An actor of this worker goes, whoever has references to it: later calls fail with `why`.
  void end(const ObjectId& actor, const Error& why);
  /// All actors of this worker go so, with their names, or those that a guest has made, and these in turn.
  void end_all(const Error& why, WorkerId guest = kNoWorker);
  /// Throws why the reference cannot be used, if it cannot.
  void check(const ObjectId& id);
  /// Ready once the object has been made, with the error if that failed.
  Future<void> ready(const Handle& handle);
  /// Calls f with the actor, in its mailbox, or with the reason why not. `invalid` on other workers than its
  /// own.
  void at_owner(const Handle& handle, std::function<void(const Result<Actor*>&)> f);

  // ---- names: "w1/server"
  /// The name, which its owner knows, keeps the object until drop_name.
  Future<void> set_name(const Handle& handle, const std::string& name);
  Future<void> drop_name(const std::string& full);
  /// A reference value. `type`: the only one that will do; empty: any. `wait`: until the name is given.
  Future<Value> lookup(const std::string& full, const std::string& type, bool wait,
                       std::optional<Duration> timeout);
  /// Names and types of what a worker has given names to.
  Future<std::map<std::string, std::string>> names(WorkerId worker);
  /// Text, names and holders of an object.
  using Described = std::tuple<std::string, std::vector<std::string>, std::vector<std::string>>;
  /// What lives on a worker, at most `limit` objects.
  Future<std::vector<Described>> objects(WorkerId worker, int64_t limit);

  // ---- asking about references
  bool is_here(const ObjectId& id) const;
  std::string describe(const Handle& handle) const;
  /// `cancelled` once the worker has stopped.
  actors::Worker& worker();
  /// Gives back every reference that this worker holds, as if all handles went, for the end of the cluster:
  /// later uses of them are `cancelled`.
  void detach();

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
  void incoming(WorkerId from, RefValue& ref, std::vector<Unpin>& unpins);
  void check_own(const RefValue& ref) const;  // `invalid` for a reference of another cluster
  bool missing(const Ref<actors::Invocation>& invocation);
  void lost(WorkerId id, const Error& why);
  void stop();

  void create(const ObjectId& id, const std::string& type, uint64_t constructor, ValueList args,
              const std::string& name, uint64_t seed, std::string path);
  void give_name(const std::string& name, const ObjectId& id, const std::string& type);
  void name_given(const std::string& name);
  Future<Value> ask(const Handle& handle, uint64_t question, const char* label, actors::CallOptions options);
  void admit(const ObjectId& id, const std::shared_ptr<actors::ActorCell>& cell);
  // Has an object of this worker not been made yet?
  bool may_come(const ObjectId& id) const TROUPE_REQUIRES(mutex_);
  // False: it is gone, or the holder lost.
  bool grant(const ObjectId& id, WorkerId holder) TROUPE_REQUIRES(mutex_);
  std::optional<Error> gone_with_worker(const ObjectId& id) const TROUPE_REQUIRES(mutex_);
  Error gone(const ObjectId& id) const TROUPE_REQUIRES(mutex_);
  void expect_value(WorkerId from, uint64_t number);
  void not_called(const ObjectId& id, const Error& why);
  void store_result(actors::Invocation& call, const Result<Value>& result);
  Value keep_result(const actors::Invocation& call, const Value& result);
  void finish_value(const ObjectId& id, StoredResultPtr value);
  static void answer(const Ref<actors::Invocation>& call, const StoredResultPtr& value);
  const std::string* keep_type(const std::string& type);
  void dropped(const ObjectId& id);
  void perform(const ObjectId& id, HolderActions actions);
  void unpin(const std::vector<Unpin>& unpins);
  actors::Worker* living_worker() const;
  void release(const std::vector<ObjectId>& ids);

  // Services.
  void on_spawn(actors::Invocation& call, uint64_t number, const std::string& type, uint64_t constructor,
                ValueList args, const std::string& name, uint64_t seed, std::string path);
  void on_register(const Ref<actors::Invocation>& call, const ObjectId& id);
  void on_release_grants(WorkerId from, const ObjectId& id, uint64_t grants);
  void on_unpin(WorkerId from, const std::vector<uint64_t>& pins);
  void on_set_name(const Ref<actors::Invocation>& call, const ObjectId& id, const std::string& type,
                   const std::string& name);
  void on_drop_name(const actors::Worker& worker, const std::string& name);
  void on_lookup(const Ref<actors::Invocation>& call, const std::string& name, const std::string& type,
                 bool wait);
  std::map<std::string, std::string> names_here() const;
  std::vector<Described> objects_here(actors::Worker& worker, int64_t at_most) const;

  struct Pin {
    std::shared_ptr<void> hold;
    WorkerId to;
  };
  std::atomic<uint64_t> joint_calls_{0};
  internal::RecursiveMutex spawn_mutex_;  // spawns leave in the order of their numbers
  mutable Mutex mutex_;                   // no handle is let go and nothing is sent while it is held
  actors::Worker* worker_ TROUPE_GUARDED_BY(mutex_);
  bool detached_ TROUPE_GUARDED_BY(mutex_) = false;
  OwnerTable owner_ TROUPE_GUARDED_BY(mutex_);
  HolderTable holder_ TROUPE_GUARDED_BY(mutex_);
  // The paths that SpawnAs has given, the next one last.
  std::map<std::thread::id, std::vector<std::string>> paths_ TROUPE_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> counts_ TROUPE_GUARDED_BY(mutex_);  // of things that the program named
  std::unordered_map<uint64_t, Pin> pins_ TROUPE_GUARDED_BY(mutex_);
  uint64_t last_pin_ TROUPE_GUARDED_BY(mutex_) = 0;
  Mutex types_mutex_;
  // Names of types are kept once, not by every handle.
  std::unordered_set<std::string> types_ TROUPE_GUARDED_BY(types_mutex_);
  ValueTable<StoredResult, Ref<actors::Invocation>> values_ TROUPE_GUARDED_BY(mutex_);
  NameTable names_ TROUPE_GUARDED_BY(mutex_);
  // Creations that failed, while they are held.
  std::unordered_map<ObjectId, Error> failed_ TROUPE_GUARDED_BY(mutex_);
  Creations<Ref<actors::Invocation>> creations_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal::rref
