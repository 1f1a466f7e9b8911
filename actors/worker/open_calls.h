// The calls of a worker that have no answer, and those of others that it has not answered: from those of all
// workers it follows who waits for whom (troupe/watch/waits.h).
#pragma once
#include <string>
#include <vector>

#include "actors/worker/service.h"

namespace troupe::internal::actors {

/// A call that has no answer yet, as its caller knows it.
struct OpenCall {
  enum State : uint8_t {
    no_room,  ///< it waits for room where it goes (FlowLimits)
    leaving,  ///< it is being sent
    sent,
  };
  uint64_t id = 0;
  std::string label = {};  ///< "Half::forward"
  WorkerId to = 0;
  std::string target = {};       ///< "Half#0:1", where that is known
  std::string by = {};           ///< the actor that made it, "Relay#0:2 on w1"; empty: none
  WorkerId by_from = kNoWorker;  ///< of the call in whose course it was made; kNoWorker: of none, or unknown
  uint64_t by_id = 0;            ///< its number
  double seconds = 0;            ///< since it was made; 0: unknown, of a call without a limit
  double left = -1;              ///< until its limit; below 0: it has none
  bool service = false;          ///< it is no method's
  uint8_t state = sent;
};

/// A call that has not been answered, as its callee knows it.
struct HandledCall {
  WorkerId from = 0;
  uint64_t id = 0;
  std::string label = {};  ///< "Half::forward"
  std::string actor = {};  ///< CallActivity
  std::string what = {};
  double seconds = 0;
  uint8_t state = 0;
};

/// The work of an actor at the moment.
struct ActorAtWork {
  std::string actor, what;  ///< "Half#0:1 on w1", "Half::forward on w1 (Half#0:1)"
  double seconds = 0;
  int64_t queued = 0;  ///< calls that wait until it has ended
};

/// A connection, as this end knows it.
struct LinkLoad {
  WorkerId to = 0;
  int64_t queued_bytes = 0;  ///< that the other end has not taken
};

struct CallsReport {
  std::vector<OpenCall> open;        ///< the oldest first, at most kMostCalls; but questions of tools
  std::vector<HandledCall> handled;  ///< likewise
  int64_t more_open = 0, more_handled = 0;
  std::vector<std::string> waits;  ///< of groups and others, in words (Extension::waits())
  std::vector<JointWait> joint;    ///< of groups, one by one
  std::vector<ActorAtWork> at_work;
  std::vector<LinkLoad> links;  ///< on which bytes wait
  int64_t threads = 1;          ///< of the pool
};

inline constexpr size_t kMostCalls = 512;

CallsReport calls_of(const Worker& worker);
/// Registers what answers ask_calls(), on the thread that delivers. Part of every worker's set-up.
void install_open_calls(Worker& worker);
Future<CallsReport> ask_calls(Worker& worker, WorkerId of, Duration within);

}  // namespace troupe::internal::actors
