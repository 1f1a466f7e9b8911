// Calls that wait for their reply: the caller's half of a call's life. Pure: the time is an argument, what
// has ended, and who has to be told, is returned.
//
// A call ends once: with its reply, its deadline, the end of its callee, or because nobody wants it any more.
// One that is uncancellable (CallOptions) ends with its reply or its callee alone. A caller that gives up
// tells the callee, but never before the call itself has left: a call given up while another thread sends it
// is told by that thread. Calls for which there is no room (actors/calls/flow_control.h) wait here.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "actors/calls/call_limit.h"
#include "actors/calls/caller_state.h"
#include "actors/calls/flow_control.h"
#include "actors/calls/held.h"
#include "actors/runtime/cancellable.h"
#include "core/async/future.h"
#include "core/base/mutex.h"
#include "net/wire/wire.h"

namespace troupe::internal::actors {

class LateReplies;

struct PendingCall {
  CallerState caller;
  Promise<Value> promise;
  CallLimit limit;
  const void* by = nullptr;     ///< the Invocation that made it, for comparison alone; null: none
  Ref<Cancellable> local = {};  ///< the call itself, if its callee is on this worker
  bool to_actor = false;        ///< services are not told, and take no room
  bool no_result = false;       ///< nobody waits for the answer, but it gives back the room
  bool uncancellable = false;   ///< its callee handles it, whoever has given up waiting
  /// Of the few calls whose arguments or result go straight from worker to worker.
  struct Straight {
    std::shared_ptr<LateReplies> late;  ///< of one that leaves before its arguments are there
    std::function<void()> handed_over;  ///< where its result goes was decided; called if it went there
  };
  std::unique_ptr<Straight> straight = {};
  std::shared_ptr<const Held> held = {};  ///< until it ends, if it has to wait for room or for arguments
  // ---- of PendingCalls
  bool sent = false;
  bool asked = false;       ///< its callee, what it is doing
  std::string status = {};  ///< what that said
  FlowControl::Ticket ticket = {};
  std::unique_ptr<net::Call> unsent = {};  ///< while it waits for room, unless local
  std::optional<Promise<void>> left = {};  ///< ends when it has left, or never will; while it waits
};

/// A call that nobody waits for any more.
struct GivenUp {
  uint64_t id = 0;
  PendingCall call;
  bool tell = false;  ///< the callee, on another worker, has to be told
};

/// Thread-safe. Where `drain` is set, calls to that worker have waited for room, and the caller is to send
/// those that next() gives, one after the other, until there are none.
class PendingCalls {
 public:
  explicit PendingCalls(FlowLimits limits);
  ~PendingCalls();

  /// A number for a new call.
  uint64_t next_id() { return ++last_; }
  /// The number of the last call that was made.
  uint64_t last_id() const { return last_; }
  struct Added {
    enum { leaves, waits, refused } verdict = leaves;
    bool sooner = false;        ///< its deadline is before that of every sweep planned so far
    bool notify_start = false;  ///< leaves: the callee has to say when it has begun
    bool drain = false;
    std::optional<Future<void>> left;  ///< waits: ready when it has left or ended
    FlowControl::Sums taken;           ///< refused: the room that is taken
  };
  /// The call is taken unless it is refused. `message` goes with one that waits: it is taken then, and `held`
  /// is kept. `bytes`: of the message.
  Added add(uint64_t id, PendingCall&& call, net::Call* message, const ObjectId& actor, size_t bytes,
            OnFull on_full, const Held* held = nullptr);
  struct Next {
    uint64_t id;
    Ref<Cancellable> local;
    std::unique_ptr<net::Call> message;
    bool notify_start;
    Promise<void> left;
    std::shared_ptr<LateReplies> late;
  };
  std::optional<Next> next(WorkerId to);
  /// Whether calls to worker `to` wait for room.
  bool wait(WorkerId to) const;
  /// The message has left. False if the call was given up before: then its callee has to be told now.
  bool sent(uint64_t id);
  /// The message did not leave, and will not; or it has left, and nothing more will be heard of it.
  std::optional<PendingCall> not_sent(uint64_t id, bool& drain);
  /// Who is called, if its result could go elsewhere: it is a method's, on another worker, and has no answer
  /// yet.
  std::optional<WorkerId> could_hand_over(uint64_t id) const;
  /// The callee will be asked to send the result elsewhere. False if it has answered.
  bool hand_over(uint64_t id, std::function<void()> done);
  /// The time of a call that had none begins. True if its end is before that of every sweep planned so far.
  bool begin(uint64_t id, const CallLimit& limit);
  /// The callee has begun.
  void started(uint64_t id, WorkerId to, bool& drain);
  /// The call `id` to worker `to`, which then waits no more; empty if it ended before, or went to another
  /// worker.
  std::optional<PendingCall> take(uint64_t id, WorkerId to, bool& drain);
  /// Nobody wants the result; empty if the call has ended.
  std::optional<GivenUp> give_up(uint64_t id);
  /// All calls to one worker, or with kNoWorker all calls.
  std::vector<PendingCall> take_all(WorkerId to);
  struct Expired {
    struct Question {
      uint64_t id;
      WorkerId to;
      Ref<Cancellable> local;
    };
    std::vector<GivenUp> calls;    ///< whose deadline has passed
    std::vector<Question> to_ask;  ///< soon to pass: what is their callee doing?
    TimePoint next;                ///< when to come again
  };
  Expired expire(TimePoint now);
  /// What the callee said.
  void note_status(uint64_t id, std::string status);
  /// A call that waits for its reply, as its maker's status names it.
  struct Made {
    std::string label;
    WorkerId to = 0;
    uint64_t id = 0;
    std::string status;  ///< what its callee said of it; empty: nothing yet
    TimePoint when{}, end = TimePoint::max();
    bool sent = false, to_actor = false, waits_for_room = false;
    ObjectId target = {};                 ///< of one that waits for room
    Ref<Cancellable> local = {};          ///< as in PendingCall
    const void* by = nullptr;             ///< likewise
    std::shared_ptr<ActorCell> by_actor;  ///< null: none made it
  };
  /// Those that were made by that Invocation, by label.
  std::vector<Made> made_by(const void* invocation) const;
  /// All, the oldest first.
  std::vector<Made> all() const;
  size_t size() const;
  FlowControl::Sums in_flight() const;
  /// Of all calls: "Layer::forward".
  std::vector<std::string> labels() const;

 private:
  static Made made(uint64_t id, const PendingCall& call);
  using Calls = std::unordered_map<uint64_t, PendingCall>;
  struct Ghost {
    WorkerId to;
    FlowControl::Ticket ticket;
  };
  GivenUp remove(Calls::iterator at) TROUPE_REQUIRES(mutex_);
  void leave(FlowControl::Ticket& ticket, WorkerId to, bool& drain) TROUPE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  FlowControl flow_ TROUPE_GUARDED_BY(mutex_);
  Calls calls_ TROUPE_GUARDED_BY(mutex_);
  // Given up, but their messages take room still.
  std::unordered_map<uint64_t, Ghost> ghosts_ TROUPE_GUARDED_BY(mutex_);
  std::unordered_set<uint64_t> leaving_ TROUPE_GUARDED_BY(mutex_);  // given up while they were being sent
  std::atomic<uint64_t> last_ = 0;
  TimePoint next_sweep_ TROUPE_GUARDED_BY(mutex_) = TimePoint::max();
};

}  // namespace troupe::internal::actors
