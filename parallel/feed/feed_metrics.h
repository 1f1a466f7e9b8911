// The feeds of a worker among its counters.
#pragma once
#include "actors/worker/worker.h"

namespace troupe::internal {

/// Part of every worker's set-up. While it has feeds, metrics() has "feed_rows", which they have given, and
/// "feed_waited_us", which their next() has waited for rows. Of the driver's feeds w0 says so.
void install_feed_metrics(actors::Worker& worker);

}  // namespace troupe::internal
