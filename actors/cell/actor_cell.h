// An actor on its worker: the object, its mailbox, and what the framework keeps beside it.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <typeindex>
#include <vector>

#include "actors/actor.h"
#include "actors/calls/current_activity.h"
#include "actors/cell/actor_host.h"
#include "actors/cell/actor_type.h"
#include "actors/cell/handled_tally.h"
#include "actors/cell/in_use.h"
#include "actors/cell/invocation.h"
#include "actors/runtime/runtime.h"
#include "core/base/mutex.h"
#include "core/base/seed_stream.h"

namespace troupe::internal::actors {

class Suspension;

/// Owned by the worker's table and by the jobs in its mailbox. The object is made, used and destroyed in the
/// mailbox.
class ActorCell : public std::enable_shared_from_this<ActorCell> {
 public:
  /// `seed`: of its stream of random numbers. `path`: see path().
  ActorCell(ActorHost& host, ObjectId id, const ActorType& type, uint64_t seed, std::string path);
  ~ActorCell();

  /// Posts the construction; calls delivered later wait behind it.
  void construct(ActorType::Constructor::Make make, ValueList args);
  /// Runs the call, or fails it: unknown method, failed construction.
  void deliver(Ref<Invocation> invocation);
  /// Posts any job that needs the actor to itself. Runs in the frame of the caller of post(), as this actor.
  /// `what`: for who asks what the actor is doing, a literal; null: the job says itself.
  void post(std::function<void()> job, DispatchTarget where, const char* what = "a job of the framework");
  /// The same for recurring work of upper layers, which runs where its pace so far suggests.
  void post_adaptive(std::function<void()> job);
  /// A coroutine of the actor waits.
  void add_suspension(std::weak_ptr<Suspension> suspension);
  /// Coroutines that wait give up: the worker stops.
  void cancel_suspensions(const Error& why);
  /// Destroys the object after what is in the mailbox, and after its coroutines that wait.
  void release();

  Worker& worker() const { return host_.worker; }
  ActorHost& host() const { return host_; }
  ObjectId id() const { return id_; }
  const ActorType& type() const { return type_; }
  /// What the actor's random numbers come from: current while its constructor and methods run.
  SeedStream& stream() { return stream_; }
  /// CallFrame::nodes, while the actor runs.
  uint64_t* nodes() { return &nodes_; }
  StreamId device_stream() const { return device_stream_; }
  /// Position of a method among the type's and then the worker's actor methods; kUnknown if there is none.
  size_t find_method(uint64_t id) const;
  static constexpr size_t kUnknown = ~size_t{0};
  /// Who it is in the program, wherever it lives: "Bottom#0" is the first Bottom that the driver made,
  /// "Trainer#1/Accelerator#0" the first Accelerator that its second Trainer made.
  const std::string& path() const { return path_; }
  /// How many things of that kind it has named before; from any thread.
  int64_t count(const std::string& kind);
  /// "Layer#0:3 on w1", as RRef::str().
  const std::string& label() const { return label_; }
  /// The same behind a word: "w1 (Layer#0:3)", as in "backward on w1 (Layer#0:3)".
  std::string place() const;
  /// "Layer::forward on w1 (Layer#0:3)".
  const std::string& method_label(size_t method) const {
    const std::string* label = method_labels_[method].load(std::memory_order_acquire);
    return label ? *label : make_label(method);
  }

  // ---- for jobs running in the mailbox
  /// Throws what the constructor threw.
  Actor& object();
  /// What object() throws was told to who used the actor.
  void failure_heard() {
    if (failure_) host_.unheard.heard(id_);
  }
  /// What upper layers keep with the actor, one object of each type: the one that is there, or a new one.
  /// From any thread, as passes run on several; the object itself is theirs to guard.
  template <class T>
  T& keep() {
    const Lock lock(kept_mutex_);
    auto& object = kept_[typeid(T)];
    if (!object) object = std::make_shared<T>();
    return *static_cast<T*>(object.get());
  }
  /// Null: nobody has asked for one.
  template <class T>
  T* kept() const {
    const Lock lock(kept_mutex_);
    const auto at = kept_.find(typeid(T));
    return at == kept_.end() ? nullptr : static_cast<T*>(at->second.get());
  }
  const ActorType::Method& method(size_t index) const;
  /// The method took that long.
  void note_duration(size_t method, Duration took);
  /// What it is at work on; from any thread.
  CurrentActivity& activity() { return activity_; }
  /// A call of that method begins, which has waited in the mailbox for so long.
  void note_begun(size_t method, Duration queued) {
    begun_.store(begun_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    tally(method).began(queued);
  }
  /// One begins that is run in place.
  void note_inner(size_t method) { tally(method).began(Duration(0)); }
  /// While one is alive, in the mailbox, a method is at work. Those that it runs in place have time of their
  /// own.
  class AtWork {
   public:
    AtWork(ActorCell& cell, size_t method, TimePoint since)
        : cell_(cell), method_(method), since_(since), before_(std::exchange(cell.inner_, Duration(0))) {}
    /// Ends it.
    void until(TimePoint end) {
      const Duration took = end - since_;
      cell_.tally(method_).ran(took - cell_.inner_);
      cell_.inner_ = before_ + took;
    }

   private:
    ActorCell& cell_;
    const size_t method_;
    const TimePoint since_;
    const Duration before_;
  };

  // ---- for others, from any thread
  /// What waits for the actor goes first at the next co_await of a coroutine of it, even if that has nothing
  /// to wait for.
  void give_way() { gives_way_.store(true, std::memory_order_relaxed); }
  /// Whether that is so; once.
  bool gives_way() {
    return gives_way_.load(std::memory_order_relaxed) &&
           gives_way_.exchange(false, std::memory_order_relaxed);
  }
  /// Calls that have arrived and have not begun.
  int64_t queued() const {
    return std::max<int64_t>(
        0, arrived_.load(std::memory_order_relaxed) - begun_.load(std::memory_order_relaxed));
  }
  /// Counts of its methods, those of the worker's actors, and its parts of backward passes, in this order;
  /// empty if nothing has run.
  std::vector<HandledCount> handled() const;

 private:
  friend class InUse;
  void destroy();
  const std::string& make_label(size_t method) const;
  HandledTally& tally(size_t method) {
    HandledTally* all = tallies_.load(std::memory_order_relaxed);
    return (all ? all : make_tallies())[method];
  }
  HandledTally* make_tallies();
  ActorHost& host_;
  const ObjectId id_;
  const ActorType& type_;
  SeedStream stream_;
  uint64_t nodes_ = 0;
  const StreamId device_stream_ = next_device_stream();
  const std::string path_;
  std::string label_;
  const size_t methods_;
  // Most of what an actor would take: each is made when it is first asked for.
  std::unique_ptr<std::atomic<const std::string*>[]> method_labels_;
  // Of the methods, then of post_adaptive(). An actor's first runs go where its type's went.
  std::unique_ptr<DispatchHistory[]> histories_;
  DispatchHistory* of_type_;  // likewise, then of construction and destruction
  std::unique_ptr<Actor> object_;
  int in_use_ = 0;  // coroutines that run or wait
  bool released_ = false;
  std::optional<Error> failure_;
  CurrentActivity activity_;
  std::atomic<bool> gives_way_{false};
  std::atomic<int64_t> arrived_{0}, begun_{0};
  std::atomic<HandledTally*> tallies_{nullptr};  // made when the first method runs
  Duration inner_{0};                            // of what the method at work has run in place
  mutable Mutex kept_mutex_;
  std::map<std::type_index, std::shared_ptr<void>> kept_ TROUPE_GUARDED_BY(kept_mutex_);
  Mutex suspensions_mutex_;
  // Pruned when it has doubled.
  std::vector<std::weak_ptr<Suspension>> suspensions_ TROUPE_GUARDED_BY(suspensions_mutex_);
  size_t prune_at_ TROUPE_GUARDED_BY(suspensions_mutex_) = 16;
  bool cancelled_ TROUPE_GUARDED_BY(suspensions_mutex_) = false;
  Mutex counts_mutex_;
  std::map<std::string, int64_t> counts_ TROUPE_GUARDED_BY(counts_mutex_);
  std::unique_ptr<Mailbox> mailbox_;
};

/// The actor whose message the current thread is handling, or null.
std::shared_ptr<ActorCell> current_cell();

}  // namespace troupe::internal::actors
