// What a worker tells about itself, for tools: its actor types, and what its actors are doing.
#pragma once
#include <limits>
#include <string>
#include <vector>

#include "actors/worker/service.h"
#include "core/async/future.h"
#include "core/base/process_facts.h"
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
  int64_t queued = 0;  ///< calls that have come and not begun
  int64_t calls = 0;   ///< that have begun
  double busy = 0;     ///< seconds at work, all in all
};

/// A method, of all actors of a type that a worker has and had.
struct MethodReport {
  std::string name;  ///< "Layer::forward"; "Layer: backward" for its parts of backward passes
  int64_t calls = 0;
  double busy = 0;    ///< seconds at work, without the methods that it runs in place
  double queued = 0;  ///< seconds from arrival until it began; of calls without a limit, none
};

struct WorkerReport {
  std::string worker;
  std::vector<ActorReport> actors;  ///< by number, as many as were asked for
  int64_t more_actors = 0;
  std::vector<MethodReport> methods;
  Progress::State progress;
  ProcessFacts process;
  double clock = 0;  ///< seconds of the worker's clock when it answered
  Worker::Metrics metrics;
};

/// Anybody to any worker: Cluster::metrics().
inline constexpr Service<Worker::Metrics()> kMetrics{"metrics"};

inline constexpr int64_t kAllActors = std::numeric_limits<int64_t>::max();

/// Registers the services behind the functions below, which answer on the thread that delivers: also while
/// actors are stuck. Part of every worker's set-up.
void install_reports(Worker& worker);

/// Asks worker `of`. Errors as of any call.
Future<std::vector<TypeReport>> ask_types(Worker& worker, WorkerId of);
Future<WorkerReport> ask_report(Worker& worker, WorkerId of, int64_t most_actors = kAllActors);
/// Of this worker.
WorkerReport report_of(const Worker& worker, int64_t most_actors = kAllActors);

/// The types of this program, and those of the worker's hosting list.
std::vector<TypeReport> types_of(const Worker& worker);

}  // namespace troupe::internal::actors
