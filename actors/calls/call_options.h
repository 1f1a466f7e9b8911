// The options of one call.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "actors/calls/flow_limits.h"
#include "actors/calls/held.h"
#include "core/async/future.h"
#include "core/base/clock.h"
#include "core/value/value.h"

namespace troupe::internal::actors {

/// An argument that is there later.
struct LateReply {
  Future<Value> future;       ///< the only handle on the answer of a call, or any future
  uint32_t index = 0;         ///< among the arguments
  WorkerId from = kNoWorker;  ///< whose answer it is; this worker: its value is waited for here, and sent
  uint64_t call = 0;          ///< of that answer
  bool keep = false;          ///< others have it, too: it becomes a reference to the result
};

struct CallOptions {
  /// Empty: the worker's; zero: none; negative: it has passed, and the call fails at once. Never beyond the
  /// deadline of the call being handled.
  std::optional<Duration> timeout;
  bool one_way = false;  ///< no reply: the future is ready at once
  uint64_t store_as =
      0;  ///< one-way: the number, of this worker, of the object that the result becomes there
  /// The call is one with store_as: the callee knows of the number already, so it may wait behind calls that wait
  /// for room. It takes none; its future is ready when it has left.
  bool in_line = false;
  /// For what changes something: it is handled although its future has gone, was cancelled, or its time has
  /// passed. These end the wait for the answer alone.
  bool uncancellable = false;
  std::optional<OnFull> on_full;  ///< empty: the worker's
  /// Arguments that are null: results of other calls, which go straight from their workers to the callee.
  std::vector<LateReply> late = {};
  const Held* held = nullptr;  ///< the reference that the call is made with; null: its object needs none
  uint64_t joint = 0;          ///< net::Call::joint
};

}  // namespace troupe::internal::actors
