// Calls that wait for their reply: the caller's half of a call's life. Pure: the time is an argument, what
// has ended, and who has to be told, is returned.
//
// A call ends once: with its reply, its deadline, the end of its callee, or because nobody wants it any more.
// Who gives it up tells the callee, but never before the call itself has left: a call given up while another
// thread sends it is told by that thread.
#pragma once
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "actors/cancellable.h"
#include "actors/interceptor.h"
#include "core/future.h"

namespace troupe::actors {

struct PendingCall {
  CallerState caller;
  Promise<Value> promise;
  TimePoint deadline;
  Ref<Cancellable> local = {};  ///< the call itself, if its callee is on this worker
  bool to_actor = false;        ///< services are not told
  bool sent = false;            ///< set by PendingCalls::sent()
};

/// A call that nobody waits for any more.
struct GivenUp {
  uint64_t id = 0;
  PendingCall call;
  bool tell = false;  ///< the callee, on another worker, has to be told
};

/// Thread-safe.
class PendingCalls {
 public:
  /// Number of the new call. `sooner` is set if its deadline is before that of every sweep planned so far.
  uint64_t add(PendingCall call, bool& sooner);
  /// The message has left. False if the call was given up before: then its callee has to be told now.
  bool sent(uint64_t id);
  /// The message did not leave, and will not.
  void not_sent(uint64_t id);
  /// The call `id` to worker `to`, which then waits no more; empty if it ended before, or went to another
  /// worker.
  std::optional<PendingCall> take(uint64_t id, WorkerId to);
  /// Nobody wants the result; empty if the call has ended.
  std::optional<GivenUp> give_up(uint64_t id);
  /// All calls to one worker, or with kNoWorker all calls.
  std::vector<PendingCall> take_all(WorkerId to);
  /// Those whose deadline has passed. `next` becomes the time of the next sweep.
  std::vector<GivenUp> expire(TimePoint now, TimePoint& next);
  size_t size() const;

 private:
  using Calls = std::unordered_map<uint64_t, PendingCall>;
  GivenUp remove(Calls::iterator at);  // with mutex_

  mutable std::mutex mutex_;
  Calls calls_;
  std::unordered_set<uint64_t> leaving_;  // given up while they were being sent
  uint64_t last_ = 0;
  TimePoint next_sweep_ = TimePoint::max();
};

}  // namespace troupe::actors
