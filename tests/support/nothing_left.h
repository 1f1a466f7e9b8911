// Counters of distributed autograd that fall back to zero.
#pragma once
#include <thread>

#include "troupe/cluster/cluster.h"

namespace troupe::testing {

/// Waits until no worker has contexts, nodes or passes any more; a leak hangs. (The threads that handled the
/// last messages may be a moment behind the answer.)
inline void nothing_left(Cluster& cluster) {
  for (const auto& name : cluster.workers())
    for (const char* what : {"contexts", "send_nodes", "receive_nodes", "backward_passes"})
      while (cluster.metrics(name)[what] != 0) std::this_thread::yield();
}

}  // namespace troupe::testing
