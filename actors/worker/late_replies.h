// A call of this worker that leaves before its arguments are there: what its callee still waits for.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "actors/calls/call_limit.h"
#include "actors/calls/call_options.h"
#include "actors/calls/late_call.h"
#include "core/async/future.h"
#include "core/base/call_frame.h"
#include "core/base/mutex.h"
#include "core/value/value.h"

namespace troupe::internal::actors {

class LateCalls;
class Worker;

/// Puts a LateCall to work. Thread-safe.
class LateReplies : public std::enable_shared_from_this<LateReplies> {
 public:
  /// In the frame and grad mode of the call, which are those of what is sent for it later. `own`: its limit,
  /// which counts from its last argument; until then only that of its caller does.
  LateReplies(LateCalls& calls, std::string label, std::vector<LateReply> replies, const CallLimit& own);

  /// The call has left, as late call `number` of this worker to `to`: the results are asked to go there.
  void left(WorkerId to, uint64_t call, uint64_t number);
  /// It has its result, or will never leave.
  void ended(bool well);

 private:
  void answered(size_t i, LateCall::Answer answer, const Result<Value>* result);
  void begin_time();
  void pass_on(size_t i, const Value& value);
  Future<Value> take(size_t i);

  LateCalls& calls_;
  Worker& worker_;
  const std::string label_;
  const CallFrame at_;
  const bool grad_;
  const CallLimit own_;
  const TimePoint callers_end_;
  LateCall state_;
  std::vector<uint32_t> indices_;
  WorkerId to_ = kNoWorker;  // set once, before anything is asked
  uint64_t call_ = 0, number_ = 0;
  Mutex mutex_;
  std::vector<LateReply> replies_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal::actors
