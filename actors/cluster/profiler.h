// What a worker notes while somebody profiles the cluster: calls as their callers see them and as they are
// handled, gradient messages, and spans that others name.
#pragma once
#include <atomic>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "actors/cell/interceptor.h"
#include "actors/worker/service.h"
#include "core/base/mutex.h"

namespace troupe::internal::actors {

/// Something that took time on a worker, or (begin == end) happened at a moment.
struct TraceEvent {
  /// call, tell, remote: at the caller, until its answer is there. handle: at the callee, from the arrival of
  /// the call to its answer. send, receive: a message of a backward pass, or a result that goes straight to
  /// the call that takes it. backward, part, span: work. group: an operation. operator: one
  /// of tensors, if they were asked for; on a GPU, its launch.
  std::string mode;
  std::string name;    ///< "Layer::forward"
  int64_t begin = 0;   ///< ns of the worker's clock
  int64_t end = -1;    ///< -1: no answer came
  int64_t start = -1;  ///< of a handle: when its method began, behind the wait in the mailbox; -1: it has not
  int64_t worker = 0;  ///< where it happened
  int64_t peer = 0;    ///< the callee, the caller, the other end of a message; else `worker`
  std::string key;     ///< equal at both ends of a message; empty: there is none
  std::string parent;  ///< key of the call during whose handling it happened
  int64_t context = 0;  ///< of distributed autograd; 0: none
  int64_t bytes = 0;    ///< of the message, nearly
  std::string shapes;   ///< of its tensors, if they were asked for
};

/// Of one worker. Costs a look at one flag per call while nobody profiles. Thread-safe.
class Profiler final : public Interceptor {
 public:
  static Profiler& install(Worker& worker);
  bool on() const { return on_.load(std::memory_order_relaxed); }

  /// Notes a span until it goes away; nothing while nobody profiles, or if `profiler` is null.
  class Span {
   public:
    Span() = default;
    Span(Profiler* profiler, const char* mode, const std::string& name, uint64_t context = 0);
    Span(Span&& o) noexcept : profiler_(std::exchange(o.profiler_, nullptr)), event_(o.event_) {}
    Span& operator=(Span o) noexcept {
      std::swap(profiler_, o.profiler_), std::swap(event_, o.event_);
      return *this;
    }
    ~Span() { end(); }
    void end();

   private:
    Profiler* profiler_ = nullptr;
    uint64_t event_ = 0;
  };
  /// A gradient message leaves for a worker, or came from it. `number`: unique in the cluster.
  void message(bool sent, const char* kind, WorkerId peer, uint64_t number, uint64_t context,
               ValueList& values);

  void outgoing_call(const CallerState& caller, net::Call& call) override;
  void call_not_sent(net::Call& call) override;
  void incoming_call(Invocation& invocation) override;
  void outgoing_reply(Invocation& invocation, net::Reply& reply) override;
  void store_result(Invocation& invocation, const Result<Value>& result) override;
  void incoming_reply(const CallerState& caller, net::Reply& reply) override;
  void worker_lost(WorkerId id, const Error&) override;
  void stop() override;

  static constexpr size_t kMaxEvents = 1'000'000;  ///< more are counted, and not kept

 private:
  explicit Profiler(Worker& worker) : worker_(worker) {}
  struct Scope {  // a profile that runs
    WorkerId owner;
    uint64_t first;  // event
    uint64_t missed;
    bool shapes, operators;
    std::vector<uint64_t> before = {};  // events of calls that had begun
  };
  uint64_t note(TraceEvent event);  // its number; 0: not kept
  uint64_t keep(TraceEvent event) TROUPE_REQUIRES(mutex_);
  void note_open_calls();
  void finish(uint64_t event) TROUPE_REQUIRES(mutex_);
  void finish_call(const net::Call& call);
  void handled(const Invocation& invocation);
  void service(bool sent, WorkerId peer, net::Call& call);
  TraceEvent event_of(const char* mode, std::string name, WorkerId peer, uint64_t context,
                      ValueList& values) const;
  void drop(std::map<int64_t, Scope>::iterator scope) TROUPE_REQUIRES(mutex_);
  int64_t now() const { return worker_.clock().now().time_since_epoch().count(); }
  int64_t begin(WorkerId owner, bool shapes, bool operators);
  void wants_operators(bool yes) TROUPE_REQUIRES(mutex_);
  static uint64_t operator_begins(const char* name);
  static void operator_ends(uint64_t event);
  std::pair<std::vector<TraceEvent>, int64_t> end(WorkerId owner, int64_t number);

  Worker& worker_;
  std::atomic<bool> on_{false}, shapes_{false}, operators_{false};
  mutable Mutex mutex_;
  std::map<int64_t, Scope> scopes_ TROUPE_GUARDED_BY(mutex_);
  int64_t last_scope_ TROUPE_GUARDED_BY(mutex_) = 0;
  uint64_t first_ TROUPE_GUARDED_BY(mutex_) = 1;  // number of the first event kept
  uint64_t missed_ TROUPE_GUARDED_BY(mutex_) = 0;
  std::deque<TraceEvent> events_ TROUPE_GUARDED_BY(mutex_);
  // Without an answer yet: their events.
  std::unordered_map<uint64_t, uint64_t> calls_ TROUPE_GUARDED_BY(mutex_);
  std::unordered_map<const Invocation*, uint64_t> handling_ TROUPE_GUARDED_BY(mutex_);
};

/// The worker that profiles, to all: a profile begins. Its number on that worker.
inline constexpr Service<int64_t(bool shapes, bool operators)> kProfileBegin{"profile.begin"};
/// The worker that profiles, to workers of other hosts: what time is it there? In ns of its clock.
inline constexpr Service<int64_t()> kProfileClock{"profile.clock"};
/// The worker that profiles, to all: it ends. Its events, and how many there were besides.
inline constexpr Service<std::pair<std::vector<TraceEvent>, int64_t>(int64_t number)> kProfileEnd{
    "profile.end"};

}  // namespace troupe::internal::actors
