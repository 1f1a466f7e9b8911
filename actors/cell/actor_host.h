// What an actor and the calls that it handles need of the worker that they live on.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/calls/traffic.h"
#include "actors/cell/actor_type.h"
#include "actors/cell/interceptor.h"
#include "actors/cell/live_cells.h"
#include "actors/cell/unheard.h"
#include "actors/membership/members.h"
#include "actors/runtime/runtime.h"
#include "core/base/clock.h"

namespace troupe::internal::actors {

class Worker;

enum class Dispatch {
  adaptive,  ///< methods that have been short so far run on the delivering thread, others in the pool
  caller,    ///< always on the delivering thread: single-threaded, so deterministic, simulations
};

struct HandOver;
class LateArguments;

/// References into the worker, which owns this and outlives its actors.
struct ActorHost {
  Worker& worker;
  const WorkerId id;
  const std::string& name;
  const Clock& clock;
  Runtime& runtime;
  const Dispatch dispatch;
  Traffic& traffic;
  const Members& members;
  LiveCells& live_cells;
  Unheard& unheard;
  /// Set before the first message.
  const std::vector<Interceptor*>& interceptors;
  const std::vector<ActorType::Method>& actor_methods;
  /// Tells worker `caller` that the method of its call `id` has begun.
  const std::function<void(WorkerId caller, uint64_t id)> notify_started;
  /// Sends a result where it was asked to go, and says so in the reply. False if it has to go to its caller.
  const std::function<bool(const HandOver& how, Invocation& call, const Value& result, net::Reply& reply)>
      pass_on;
  LateArguments& late_arguments;
};

}  // namespace troupe::internal::actors
