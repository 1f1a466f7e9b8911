// A worker: one member of the cluster. Everything that belongs to it hangs off this object; several live in
// one process.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>

#include "actors/calls/call_limit.h"
#include "actors/calls/call_options.h"
#include "actors/calls/incoming_calls.h"
#include "actors/calls/late_arguments.h"
#include "actors/calls/pending_calls.h"
#include "actors/calls/traffic.h"
#include "actors/cell/actor_cell.h"
#include "actors/cell/actor_host.h"
#include "actors/cell/interceptor.h"
#include "actors/membership/links.h"
#include "actors/membership/members.h"
#include "actors/worker/canceller.h"
#include "actors/worker/late_replies.h"
#include "actors/worker/parked_packets.h"
#include "actors/worker/progress.h"
#include "core/base/clock.h"
#include "core/base/fork.h"
#include "core/base/mutex.h"

namespace troupe::internal::actors {

struct CallActivity;

struct WorkerOptions {
  WorkerId id = 0;
  std::string name = "w0";
  std::string host;  ///< equal for workers of one machine
  TypeRegistry hosting;
  std::shared_ptr<Runtime> runtime;  ///< null: one of its own
  Dispatch dispatch = Dispatch::adaptive;
  Duration timeout = std::chrono::seconds(60);        ///< of calls that name none; zero: none
  std::map<std::string, net::DeviceMap> device_maps;  ///< by the other worker's name
  FlowLimits limits;                                  ///< of calls that have not begun where they go
  OnFull on_full = OnFull::wait;
  const Clock* clock = &Clock::system();
  bool timer_thread = true;  ///< false: whoever owns the clock calls tick()
};

/// Thread-safe. An owner that may outlive the cluster, as the scope of a thread, shares it: then it is there,
/// and refuses calls.
class Worker final : public net::Events, public std::enable_shared_from_this<Worker> {
 public:
  using Handler = std::function<void(const Ref<Invocation>&)>;
  using Metrics = std::map<std::string, int64_t>;

  explicit Worker(WorkerOptions options);
  ~Worker() override;  ///< end()
  Worker(const Worker&) = delete;

  WorkerId id() const { return options_.id; }
  const std::string& name() const { return options_.name; }
  const std::string& host() const { return options_.host; }
  const Clock& clock() const { return *options_.clock; }
  Members& members() { return members_; }
  /// What its actors see of it.
  const ActorHost& as_host() const { return as_host_; }
  Runtime& runtime() { return *options_.runtime; }
  Dispatch dispatch() const { return options_.dispatch; }
  /// How long calls made on this worker may take that name no time of their own; zero: for ever. Changes
  /// count for calls made after them.
  Duration timeout() const { return Duration(timeout_ns_.load()); }
  void set_timeout(Duration timeout);

  // ---- set-up, before the first message
  void set_transport(std::unique_ptr<net::Transport> transport);
  net::Transport& transport() { return *transport_; }
  /// Other ways for tensors of devices than connections. They outlive the messages of this worker.
  void set_ways(net::TensorWays& ways) { ways_ = &ways; }
  /// Where this worker's tensors of devices arrive on worker `to`, and how.
  net::DevicePlacing placing(WorkerId to) const;
  /// T: an Extension, which learns in order of addition what becomes of workers. An Interceptor sees outgoing
  /// calls in that order, and incoming ones in reverse.
  template <class T>
  T& add_extension(std::unique_ptr<T> extension) {
    T& added = *extension;
    if constexpr (std::is_base_of_v<Interceptor, T>) interceptors_.push_back(&added);
    extensions_.push_back({&typeid(T), std::move(extension)});
    return added;
  }
  /// The extension that was added as a T, or null.
  template <class T>
  T* extension() const {
    for (const auto& [type, extension] : extensions_)
      if (*type == typeid(T)) return static_cast<T*>(extension.get());
    return nullptr;
  }
  /// What extensions wait for, in words (Extension::waits()).
  std::vector<std::string> waits() const {
    std::vector<std::string> all;
    for (const auto& [type, extension] : extensions_) extension->waits(all);
    return all;
  }
  std::vector<JointWait> joint_waits() const {
    std::vector<JointWait> all;
    for (const auto& [type, extension] : extensions_) extension->joint_waits(all);
    return all;
  }
  /// Calls to `name` on this worker go to `handler`, on the delivering thread: it must not block, and
  /// completes the invocation now or later. Messages are declared (Service in actors/worker/service.h), which
  /// adds them here. `takes_unplaced`: also those whose contents could not be taken in.
  void add_service(const std::string& name, Handler handler, bool takes_unplaced = false);
  /// A method that every actor of this worker has besides its own; runs in the actor's mailbox.
  void add_actor_method(const std::string& name, ActorType::Invoke invoke);
  const std::vector<ActorType::Method>& actor_methods() const { return actor_methods_; }
  void add_metrics(std::function<void(Metrics&)> collect);

  // ---- calls
  /// Calls method `method` (`label`: "Layer::forward", for errors) of an actor.
  Future<Value> call(const ObjectId& target, std::string label, uint64_t method, ValueList args,
                     CallOptions options = {});
  /// Whether calls to actors of worker `to` wait for room: later ones are not to overtake them.
  bool calls_wait(WorkerId to) const { return pending_.wait(to); }
  /// A service by its name, unchecked: for tests and tools.
  Future<Value> call_service(WorkerId to, const std::string& service, ValueList args,
                             CallOptions options = {});
  /// For CallOptions::late: that reply, if its result can go straight to worker `to`. There must be no other
  /// handle on it.
  std::optional<LateReply> late_reply(const Future<Value>& reply, uint32_t index, WorkerId to,
                                      bool keep = false) const;
  /// Nobody wants the result of call `id` of an actor's method: it fails with `cancelled`, and its callee is
  /// told. Nothing if it has ended.
  void give_up(uint64_t id);
  /// Uses a connection that was opened for worker `id`, to which nothing has been sent yet.
  void adopt(WorkerId id, const std::shared_ptr<net::Connection>& connection) {
    links_.opened(id, connection);
  }
  /// Makes sure that the end of worker `id` will be noticed (members().loss, on_lost) although nothing is
  /// sent to it.
  void watch(WorkerId id);
  /// Lets a call in: finds the actor or service, or fails the call.
  void dispatch(const Ref<Invocation>& invocation);
  /// The same for a call of that actor.
  void deliver(const std::shared_ptr<ActorCell>& cell, const Ref<Invocation>& invocation);

  // ---- actors
  /// The type of that name, of WorkerOptions::hosting or of the program; `invalid` listing those that there
  /// are.
  const ActorType& type(const std::string& name) const;
  /// A new actor, which will be constructed before it handles anything. Nobody finds it before add_actor().
  /// `constructor`: its id, or 0 for a listed one that takes these arguments. `seed`: of its stream of random
  /// numbers. `path`: ActorCell::path().
  std::shared_ptr<ActorCell> make_actor(const ObjectId& id, const std::string& type, uint64_t constructor,
                                        ValueList args, uint64_t seed, std::string path);
  void add_actor(const std::shared_ptr<ActorCell>& cell);
  std::shared_ptr<ActorCell> find_actor(const ObjectId& id) const;
  std::vector<std::shared_ptr<ActorCell>> actors() const;
  /// Those that may be at work: these, and the ones that are released.
  std::vector<std::weak_ptr<ActorCell>> cells() const;
  const TypeRegistry& hosting() const { return options_.hosting; }
  /// Forgets the actor and destroys its object after what is in its mailbox.
  void release_actor(const ObjectId& id);
  /// A number for a new object, unique on this worker; starts at 1.
  uint64_t next_number() { return ++last_number_; }

  /// Live actors, pending calls and what upper layers count: all return to where they were when nothing is
  /// used. But those named *_sent only grow.
  Metrics metrics() const;
  /// What is under way.
  Traffic& traffic() { return traffic_; }
  /// What failed, and nobody knows yet.
  Unheard& unheard() { return unheard_; }
  /// Labels of the calls that wait for their replies; of the actors in the table.
  std::vector<std::string> waits_for() const { return pending_.labels(); }
  const PendingCalls& pending_calls() const { return pending_; }
  const IncomingCalls& incoming_calls() const { return incoming_; }
  /// The state of a call to an actor of this worker.
  CallActivity activity_of(const Invocation& call) const;
  /// Has what actors handled that have gone.
  const LiveCells& live_cells() const { return live_cells_; }
  /// How far the program has come that this worker drives.
  Progress& progress() { return progress_; }
  const Progress& progress() const { return progress_; }
  /// Links::queued_bytes().
  std::vector<std::pair<WorkerId, int64_t>> queued_bytes() const { return links_.queued_bytes(); }
  std::vector<std::string> actor_labels() const;
  /// Fails expired calls; returns when to come again. Called by the timer thread, or by a simulation.
  TimePoint tick();
  /// The worker is gone: its pending calls fail, upper layers are told. Idempotent.
  void lose(WorkerId id, const Error& why);
  /// Called once per lost worker, after everything else was told.
  void on_lost(std::function<void(WorkerId, const Error&)> f);
  /// The same, as long as `owner` is there.
  void on_lost(std::weak_ptr<const void> owner, std::function<void(WorkerId, const Error&)> f);
  /// Pending calls of actors' methods fail with `cancelled` and this text, and so do all that are made later.
  /// The services that end a cluster go on.
  void interrupt(const std::string& why);
  /// No more calls: pending ones fail with `cancelled`. Idempotent.
  void stop();

  bool stopped() const { return stopped_; }

  /// stop(), and no message arrives afterwards. Not from a thread of the transport. Idempotent.
  void disconnect();
  /// Disconnects, then waits for the jobs of its actors, and ends them. Not from one of them. Idempotent.
  void end();

  // ---- net::Events
  void on_accepted(std::shared_ptr<net::Connection> connection) override;
  void on_message(net::Connection& connection, net::Message message) override;
  void on_closed(net::Connection& connection, const Error& reason) override;
  void on_held_up(net::Connection& connection, Duration time) override;

 private:
  friend class LateReplies;
  void deliver_reply(const PendingCall& call, net::Reply reply);
  void send(WorkerId to, net::Message message);
  void receive_call(net::Connection& connection, net::Call call);
  void take_in(net::Connection& connection, net::Packet&& packet);
  void refuse(net::Connection& connection, const Error& why);
  void end(const GivenUp& call, Error why);
  void tell(const GivenUp& call);
  void install_late_arguments();
  bool pass_on(const HandOver& how, Invocation& call, const Value& value, net::Reply& reply);
  void send_late(WorkerId to, net::Call& call, const net::DevicePlacing& placing);
  void fail_late(uint64_t call, const Error& why);
  void begin_late(uint64_t call, CallLimit limit, TimePoint callers_end);
  void arrives_late(WorkerId from, const net::Call& call);
  void ready_late(const Ref<Invocation>& call);
  void enter(LateArguments::Whole whole);
  void answered(WorkerId by, net::Reply reply);
  void drain(WorkerId to);
  void depart(WorkerId to, const PendingCalls::Next& next);
  void has_left(uint64_t id, WorkerId to);
  void undo(const PendingCall& call);
  void notify_started(WorkerId caller, uint64_t id);
  Error overloaded(WorkerId to, const FlowControl::Sums& taken) const;
  static CallFrame callback_frame();
  void log_unanswered(const net::Reply& reply) const;
  void send_cancel(WorkerId to, uint64_t id);
  void timer_loop();
  CallLimit limit_of(const CallOptions& options) const;
  void ask_for_status(uint64_t id, WorkerId to);
  void serve_status();
  void tell_status(const Ref<Invocation>& question, uint64_t id);
  std::string status_of(const Invocation& call) const;

  const RefuseChildren no_children_;
  WorkerOptions options_;
  std::atomic<int64_t> timeout_ns_;  // of calls that name none
  Traffic traffic_;
  Members members_;
  LiveCells live_cells_;
  Progress progress_;
  Unheard unheard_;
  Links links_;
  PendingCalls pending_;
  IncomingCalls incoming_;
  LateArguments late_arguments_;
  ParkedPackets parked_;
  net::TensorWays* ways_ = nullptr;
  internal::RecursiveMutex late_order_;  // late calls leave in the order of their numbers
  std::unordered_map<WorkerId, uint64_t> late_numbers_;
  std::atomic<int64_t> arguments_sent_{0}, arguments_passed_on_{0};
  std::shared_ptr<Canceller> canceller_;
  struct Added {
    const std::type_info* type;
    std::unique_ptr<Extension> extension;
  };
  std::vector<Added> extensions_;
  std::vector<Interceptor*> interceptors_;  // those of extensions_ that see calls
  struct Served {
    std::string name;
    Handler handler;
    bool takes_unplaced;
  };
  std::unordered_map<uint64_t, Served> services_;
  std::vector<ActorType::Method> actor_methods_;
  ActorHost as_host_;
  std::vector<std::function<void(Metrics&)>> metrics_;
  std::atomic<uint64_t> last_number_{0};

  mutable Mutex actors_mutex_;
  std::unordered_map<ObjectId, std::shared_ptr<ActorCell>> actors_ TROUPE_GUARDED_BY(actors_mutex_);
  // No reference is left, but a coroutine may wait.
  std::vector<std::weak_ptr<ActorCell>> released_ TROUPE_GUARDED_BY(actors_mutex_);
  size_t prune_released_at_ TROUPE_GUARDED_BY(actors_mutex_) = 64;

  Mutex lost_mutex_;
  struct LossListener {
    std::function<void(WorkerId, const Error&)> told;
    std::optional<std::weak_ptr<const void>> owner;
    bool gone() const { return owner && owner->expired(); }
  };
  std::vector<LossListener> on_lost_ TROUPE_GUARDED_BY(lost_mutex_);

  Mutex timer_mutex_;
  std::condition_variable timer_wake_;
  bool timer_poked_ TROUPE_GUARDED_BY(timer_mutex_) = false;
  bool stopping_ TROUPE_GUARDED_BY(timer_mutex_) = false;
  std::thread timer_;
  std::atomic<bool> stopped_{false}, interrupted_{false}, ended_{false};
  std::unique_ptr<net::Transport> transport_;
};

}  // namespace troupe::internal::actors
