#include "troupe/cluster/await_spare.h"

#include "actors/worker/worker.h"
#include "troupe/launch/stop.h"

namespace troupe::internal {
bool await_spare(Cluster& cluster) {
  constexpr Duration kLook = std::chrono::milliseconds(100);  // The end may be asked for.
  auto& worker = cluster.worker();
  const TimePoint until = worker.clock().now() + cluster.elastic_job().wait;
  for (;;) {
    const Future<void> next = worker.members().next_listed();
    if (!cluster.spares().empty()) return true;
    while (!next.wait_for(kLook)) {
      if (stop_asked()) return false;
      if (worker.clock().now() >= until) return false;
    }
  }
}

}  // namespace troupe::internal
