// An extension is the state that an upper layer keeps with a worker.
#pragma once
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/value/value.h"

namespace troupe::internal::actors {

/// Something that several do together, and that is not over for one of them here.
struct JointWait {
  std::string key;                        ///< the same for all that take part, and for nothing else
  std::string what;                       ///< "[all_reduce] use 3 of tag "grads""
  std::string self;                       ///< who takes part here: "rank 0 (Replica#0:1 on w1)"
  std::vector<std::string> missing = {};  ///< from whom parts are
};

/// Owned by its worker. Thread-safe. One that sees calls as well is an Interceptor.
class Extension {
 public:
  virtual ~Extension() = default;
  /// The worker is gone for good.
  virtual void worker_lost(WorkerId, const Error&) {}
  /// The user wants to stop: give up what is being waited for.
  virtual void interrupted(const Error&) {}
  /// What is waited for here, in words: for the error of what takes too long.
  virtual void waits(std::vector<std::string>&) const {}
  /// Adds the operations that several take part in and that are not over here.
  virtual void joint_waits(std::vector<JointWait>&) const {}
  /// The worker stops: let go of actors and invocations, and keep none from now on.
  virtual void stop() {}
};

}  // namespace troupe::internal::actors
