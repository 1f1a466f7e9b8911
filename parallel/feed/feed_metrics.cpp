#include "parallel/feed/feed_metrics.h"

#include <chrono>

#include "data/streams/feed_counts.h"

namespace troupe::internal {

void install_feed_metrics(actors::Worker& worker) {
  worker.add_metrics([&worker](actors::Worker::Metrics& m) {
    const auto sum = datasets::detail::FeedCounts::of(&worker, worker.id() == 0);
    if (sum.feeds == 0) return;
    m["feed_rows"] = sum.rows;
    m["feed_waited_us"] = std::chrono::duration_cast<std::chrono::microseconds>(sum.waited).count();
  });
}

}  // namespace troupe::internal
