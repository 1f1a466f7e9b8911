// Feeds by what a script says of their source and options.
#pragma once
#include <memory>

#include "data/streams/feed.h"
#include "script/session.h"

namespace troupe::script {

/// `source`: as described_source() takes it, or the files of token_windows. Options: those of
/// described_pipeline(), threads, ahead, rank, ranks, device, and readers, workers of the session.
std::unique_ptr<datasets::Feed> make_feed(Session& session, const Value& source, ValueMap options);

}  // namespace troupe::script
