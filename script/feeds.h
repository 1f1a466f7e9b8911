// Sources and feeds by name.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "core/value/value.h"
#include "data/streams/feed.h"
#include "data/streams/source.h"

namespace troupe::script {

struct NamedSource {
  datasets::SourcePtr source;
};

bool is_source(std::string_view name);
/// What data.NAME makes of these arguments; one path may stand for a list of one. `invalid` as the source's
/// own.
datasets::SourcePtr source_of(std::string_view name, ValueList positional, ValueMap named);

/// A feed with options by name: batch, seed, block, together, repeat, take, pack (a field and a length), pad
/// (fields and numbers), pad_to, drop_last, skip_broken, threads, ahead, rank, ranks. `invalid` for others.
std::shared_ptr<datasets::Feed> feed_of(const datasets::SourcePtr& source, ValueMap options);

}  // namespace troupe::script
