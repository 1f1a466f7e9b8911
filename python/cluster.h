// A cluster, its actors, calls and steps as Python has them.
#pragma once
#include <nanobind/stl/shared_ptr.h>  // a cluster is held by all that belongs to it

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/rendezvous.h"
#include "python/conversion.h"
#include "script/answers.h"
#include "tools/launch/worker_processes.h"
#include "troupe/cluster/cluster.h"

namespace troupe::python {

/// A cluster that Python drives, until its shutdown; what belongs to it holds it.
struct ClusterObject {
  std::optional<internal::net::Rendezvous> launcher;  // hears of the driver until the end
  tools::WorkerProcesses processes;                   // end after the cluster
  std::unique_ptr<Cluster> cluster;
  std::unique_ptr<script::Session> session_of;
  std::vector<std::function<void()>> at_end;  // of what ends before the session
  ~ClusterObject();
  /// Ends what belongs to the session, and it.
  void end_session();
  /// `invalid` after shutdown().
  script::Session& session() const;
};
using ClusterPtr = std::shared_ptr<ClusterObject>;

struct ActorObject {
  ClusterPtr cluster;
  AnyRef ref;
};
struct FutureObject {
  ClusterPtr cluster;
  script::Answer answer;
};
struct StepObject {
  ClusterPtr cluster;
  std::shared_ptr<script::Step> step;
};

/// The actor types of the libraries that have been loaded, and where these are.
internal::actors::TypeRegistry loaded_types();
std::vector<std::string> loaded_libraries();

/// The step of the `with` that this code is in, as a context variable of Python has it; null: none.
std::shared_ptr<script::Step> current_step();
/// Waits for all passes under way to leave their gradients in it.
std::shared_ptr<script::Step> step_with_gradients(script::Session& session);
/// A future as Python's: it goes on though nobody holds it.
nb::object future_object(const ClusterPtr& cluster, const Future<Value>& future, const std::string& what);

}  // namespace troupe::python
