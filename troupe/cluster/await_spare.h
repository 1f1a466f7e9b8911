// Workers that an elastic job waits for.
#pragma once
#include "troupe/cluster/cluster.h"

namespace troupe::internal {

/// Waits until there is a spare. False: none has come within ElasticJob::wait, or the end was asked for.
bool await_spare(Cluster& cluster);

}  // namespace troupe::internal
