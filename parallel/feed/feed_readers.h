// Readers: other workers that read for a feed.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "actors/cell/methods.h"
#include "actors/cell/task.h"
#include "data/streams/feed.h"
#include "rref/here.h"

namespace troupe {
namespace internal {

/// Reads what one rank's feed asks for. It has no state, and jobs do not know of it.
class FeedReader : public Actor {
 public:
  /// `order`: of the feed's own pipeline. `invalid` if the recipe gives another one here.
  FeedReader(datasets::Recipe recipe, int64_t rank, int64_t ranks, std::vector<int64_t> order);
  datasets::detail::ReadChunk read(int64_t epoch, int64_t first) { return reader_.read(epoch, first); }
  static constexpr auto remote = methods<blocking<&FeedReader::read>>;

 private:
  const datasets::detail::ChunkReader reader_;
};

}  // namespace internal

namespace datasets {

/// Workers that read for a feed (FeedOptions), each with as many of its threads at a time as
/// PrefetchOptions::threads says, and hand what they have read to the feed's worker: the driver's, or that of
/// an actor which has one rank's feed. They read ahead as PrefetchOptions::ahead says, all of them together,
/// in the order of the feed.
///
///   datasets::Feed feed(datasets::recipe<wiki>("wiki.bin", 32),
///                       {.ahead = {.ahead = 16}, .readers = datasets::readers(cluster, {"w5", "w6"})});
///
/// What a lost reader owes, others read; if none is left, the feed does. The rows stay the same. `invalid`,
/// when the feed is made: an unknown worker, no worker, a pipeline without recipe().
detail::MakeReading readers(const Here& here, const std::vector<std::string>& workers);
detail::MakeReading readers(internal::actors::Worker& worker, const std::vector<std::string>& workers);

/// An actor, which does not block, gets the next batch so: co_await datasets::later(feed). Other messages
/// that it handles meanwhile leave the feed alone.
Task<std::optional<FedBatch>> later(Feed& feed);

}  // namespace datasets
}  // namespace troupe
