// Calls whose arguments come straight from the workers that make them: a worker's part in them, as the one
// that calls, that makes an argument, or that is called. (actors/worker/late_replies.cpp says how they go.)
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "actors/calls/call_limit.h"
#include "actors/calls/call_options.h"
#include "actors/calls/hand_over.h"
#include "actors/calls/late_arguments.h"
#include "actors/cell/invocation.h"
#include "core/async/future.h"
#include "core/base/mutex.h"

namespace troupe::internal::actors {

class LateReplies;
class Worker;

/// Thread-safe.
class LateCalls {
 public:
  explicit LateCalls(Worker& worker) : worker_(worker) {}
  /// Once, in the worker's set-up.
  void install();
  void clear() { arguments_.clear(); }

  // ---- the caller
  /// For CallOptions::late: that reply, if its result can go straight to worker `to`. There must be no other
  /// handle on it.
  std::optional<LateReply> reply(const Future<Value>& reply, uint32_t index, WorkerId to,
                                 bool keep = false) const;
  /// The call leaves, with its number.
  void send(WorkerId to, net::Call& call);

  // ---- the worker that makes an argument
  /// ActorHost::pass_on.
  bool pass_on(const HandOver& how, Invocation& call, const Value& value, net::Reply& reply);

  // ---- the worker that is called
  /// Throws `invalid` if that number has been before.
  void arrives(WorkerId from, const net::Call& call);
  /// Its actor is there.
  void ready(const Ref<Invocation>& call);
  void lost(WorkerId id, const Error& why);
  LateArguments& arguments() { return arguments_; }
  const LateArguments& arguments() const { return arguments_; }

 private:
  friend class LateReplies;
  void enter(LateArguments::Whole whole);

  Worker& worker_;
  LateArguments arguments_;
  RecursiveMutex order_;  // late calls leave in the order of their numbers
  std::unordered_map<WorkerId, uint64_t> numbers_;
  std::atomic<int64_t> sent_{0}, passed_on_{0};  // arguments
};

}  // namespace troupe::internal::actors
