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
#include "actors/calls/traffic.h"
#include "actors/cell/actor_cell.h"
#include "actors/cell/actor_host.h"
#include "actors/cell/interceptor.h"
#include "actors/membership/links.h"
#include "actors/membership/members.h"
#include "actors/worker/actor_table.h"
#include "actors/worker/call_status.h"
#include "actors/worker/call_timer.h"
#include "actors/worker/canceller.h"
#include "actors/worker/late_calls.h"
#include "actors/worker/loss_listeners.h"
#include "actors/worker/outgoing_calls.h"
#include "actors/worker/parked_packets.h"
#include "actors/worker/progress.h"
#include "core/base/clock.h"
#include "core/base/fork.h"
#include "core/base/mutex.h"

namespace troupe::internal::actors {

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
  net::Transport& transport();
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
  /// A service by its name, unchecked: for tests and tools.
  Future<Value> call_service(WorkerId to, const std::string& service, ValueList args,
                             CallOptions options = {});
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
  /// A new actor, which will be constructed before it handles anything. Nobody finds it before it is in
  /// actors(). `constructor`: its id, or 0 for a listed one that takes these arguments. `seed`: of its stream
  /// of random numbers. `path`: ActorCell::path().
  std::shared_ptr<ActorCell> make_actor(const ObjectId& id, const std::string& type, uint64_t constructor,
                                        ValueList args, uint64_t seed, std::string path);
  ActorTable& actors() { return actors_; }
  const ActorTable& actors() const { return actors_; }
  const TypeRegistry& hosting() const { return options_.hosting; }
  /// A number for a new object, unique on this worker; starts at 1.
  uint64_t next_number() { return ++last_number_; }

  /// Live actors, pending calls and what upper layers count: all return to where they were when nothing is
  /// used. But those named *_sent only grow.
  Metrics metrics() const;
  /// What is under way.
  Traffic& traffic() { return traffic_; }
  /// What failed, and nobody knows yet.
  Unheard& unheard() { return unheard_; }
  /// Calls of this worker to others.
  OutgoingCalls& calls() { return calls_; }
  const PendingCalls& pending_calls() const { return calls_.pending(); }
  const IncomingCalls& incoming_calls() const { return incoming_; }
  LateCalls& late_calls() { return late_calls_; }
  const LateCalls& late_calls() const { return late_calls_; }
  CallStatus& call_status() { return status_; }
  const CallStatus& call_status() const { return status_; }
  /// Has what actors handled that have gone.
  const LiveCells& live_cells() const { return live_cells_; }
  /// How far the program has come that this worker drives.
  Progress& progress() { return progress_; }
  const Progress& progress() const { return progress_; }
  /// Links::queued_bytes().
  std::vector<std::pair<WorkerId, int64_t>> queued_bytes() const { return links_.queued_bytes(); }
  /// Fails expired calls; returns when to come again. Called by the timer thread, or by a simulation.
  TimePoint tick();
  /// The worker is gone: its pending calls fail, upper layers are told. Idempotent.
  void lose(WorkerId id, const Error& why);
  LossListeners& on_lost() { return on_lost_; }
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
  friend class OutgoingCall;
  friend class OutgoingCalls;
  friend class LateCalls;
  void send(WorkerId to, net::Message message);
  void receive_call(net::Connection& connection, net::Call call);
  void take_in(net::Connection& connection, net::Packet&& packet);
  void refuse(net::Connection& connection, const Error& why);
  void notify_started(WorkerId caller, uint64_t id);
  static CallFrame callback_frame();

  const RefuseChildren no_children_;
  WorkerOptions options_;
  std::atomic<int64_t> timeout_ns_;  // of calls that name none
  Traffic traffic_;
  Members members_;
  LiveCells live_cells_;
  Progress progress_;
  Unheard unheard_;
  Links links_;
  OutgoingCalls calls_;
  IncomingCalls incoming_;
  LateCalls late_calls_{*this};
  CallStatus status_{*this};
  ParkedPackets parked_;
  net::TensorWays* ways_ = nullptr;
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

  ActorTable actors_;

  LossListeners on_lost_;
  CallTimer timer_;
  std::atomic<bool> stopped_{false}, interrupted_{false}, ended_{false};
  bool carries_devices_ = false;   // the transport does
  mutable Mutex transport_mutex_;  // who looks at it while disconnect() lets it go
  std::unique_ptr<net::Transport> transport_ TROUPE_GUARDED_BY(transport_mutex_);
};

}  // namespace troupe::internal::actors
