// What a worker tells about itself, for tools: its actor types, and what its actors are doing.
#pragma once
#include <string>
#include <vector>

#include "actors/worker/service.h"
#include "core/async/future.h"
#include "core/entry/entry.h"

namespace troupe::internal::actors {

/// An actor type, described.
struct TypeReport {
  struct Made {
    uint64_t id = 0;      ///< for RefTable::spawn
    bool listed = false;  ///< in `remote`
    troupe::Entry entry;
  };
  std::string name;
  std::vector<Made> constructors;
  std::vector<troupe::Entry> methods;
};

/// An actor, as it is now.
struct ActorReport {
  ObjectId id;
  std::string label;  ///< "Layer#0:3 on w1"
  std::string type;
  std::string doing;   ///< "Layer::forward"; empty: nothing
  double seconds = 0;  ///< for how long
};

struct WorkerReport {
  std::string worker;
  std::vector<ActorReport> actors;
  Worker::Metrics metrics;
};

/// A call that has no answer yet.
struct WaitReport {
  std::string worker;  ///< that waits
  std::string label;   ///< "Layer::forward"
  std::string to;      ///< the callee's worker
  double seconds = 0;  ///< since when; 0: not known
  std::string status;  ///< as in Worker::Wait
};

/// Anybody to any worker: Cluster::metrics().
inline constexpr Service<Worker::Metrics()> kMetrics{"metrics"};

/// Registers the services behind the functions below, which answer on the thread that delivers: also while
/// actors are stuck. Part of every worker's set-up.
void install_reports(Worker& worker);

/// Asks worker `of`. Errors as of any call.
Future<std::vector<TypeReport>> ask_types(Worker& worker, WorkerId of);
Future<WorkerReport> ask_report(Worker& worker, WorkerId of);
Future<std::vector<WaitReport>> ask_waits(Worker& worker, WorkerId of);

/// The types of this program, and those of the worker's hosting list.
std::vector<TypeReport> types_of(const Worker& worker);

}  // namespace troupe::internal::actors
