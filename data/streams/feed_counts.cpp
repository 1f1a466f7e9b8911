#include "data/streams/feed_counts.h"

#include <vector>

#include "core/base/call_frame.h"
#include "core/base/mutex.h"

namespace troupe::datasets::detail {
namespace {

internal::Mutex all_mutex;
std::vector<std::weak_ptr<FeedCounts>> all TROUPE_GUARDED_BY(all_mutex);

}  // namespace

std::shared_ptr<FeedCounts> FeedCounts::make() {
  std::shared_ptr<FeedCounts> made(new FeedCounts);
  made->worker_ = frame().worker.address();
  const internal::Lock lock(all_mutex);
  std::erase_if(all, [](const auto& counts) { return counts.expired(); });
  all.push_back(made);
  return made;
}

FeedCounts::Sum FeedCounts::of(const void* worker, bool others_too) {
  Sum sum;
  const internal::Lock lock(all_mutex);
  for (const auto& counts : all) {
    const auto one = counts.lock();
    if (!one || !(one->worker_ == worker || (others_too && !one->worker_))) continue;
    ++sum.feeds;
    sum.rows += one->rows_;
    sum.waited += Duration(one->waited_ns_);
  }
  return sum;
}

}  // namespace troupe::datasets::detail
