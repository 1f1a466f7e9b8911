#include "script/feeds.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/codec/codec.h"
#include "core/entry/entry.h"
#include "data/streams/source_catalog.h"

namespace troupe::script {
namespace {

template <class T>
std::optional<T> taken(ValueMap& options, const char* name) {
  auto node = options.extract(name);
  if (node.empty() || node.mapped().is_null()) return {};
  try {
    return Codec<T>::from(fitted(std::move(node.mapped()), Codec<T>::name()));
  } catch (const Error& e) {
    throw_invalid(std::string("[data] feed: ") + name + ": " + e.message());
  }
}

void take_shuffle(ValueMap& options, datasets::Pipeline& pipeline) {
  datasets::ShuffleOptions shuffle;
  shuffle.block = taken<int64_t>(options, "block").value_or(shuffle.block);
  shuffle.together = taken<int64_t>(options, "together").value_or(shuffle.together);
  if (const auto seed = taken<int64_t>(options, "seed")) {
    shuffle.seed = static_cast<uint64_t>(*seed);
    pipeline.shuffle(shuffle);
  }
}

void take_rows(ValueMap& options, datasets::Pipeline& pipeline) {
  if (auto pack = taken<ValueList>(options, "pack")) {
    const auto* field = pack->size() == 2 ? pack->front().get_if<std::string>() : nullptr;
    const Value length = field ? fitted(pack->back(), "int64") : Value();
    if (!length.get_if<int64_t>())
      throw_invalid("[data] feed: pack must be a field and a length, {\"ids\", 1024}");
    pipeline.pack(*field, *length.get_if<int64_t>());
  }
  datasets::BatchOptions batch;
  batch.drop_last = taken<bool>(options, "drop_last").value_or(batch.drop_last);
  for (auto& [field, number] : taken<ValueMap>(options, "pad").value_or(ValueMap())) {
    const auto* whole = number.get_if<int64_t>();
    const auto* real = number.get_if<double>();
    if (!whole && !real) throw_invalid("[data] feed: pad must be numbers by field, {ids = 0}");
    batch.pad[field] = whole ? double(*whole) : *real;
  }
  batch.pad_to = taken<int64_t>(options, "pad_to").value_or(batch.pad_to);
  pipeline.batch(taken<int64_t>(options, "batch").value_or(32), std::move(batch));
}

}  // namespace

bool is_source(std::string_view name) {
  return std::ranges::any_of(datasets::sources(), [&](const auto& s) { return s.name == name; });
}

datasets::SourcePtr source_of(std::string_view name, ValueList positional, ValueMap named) {
  for (const auto& s : datasets::sources()) {
    if (s.name != name) continue;
    const Parameter& first = s.parameters.front();
    Value* paths = nullptr;
    if (!positional.empty())
      paths = &positional.front();
    else if (const auto at = named.find(first.name); at != named.end())
      paths = &at->second;
    if (paths && paths->get_if<std::string>() && first.type.starts_with("list"))
      *paths = ValueList{std::move(*paths)};
    return s(std::move(positional), std::move(named));
  }
  throw_invalid("[data] no source is called " + std::string(name));
}

std::shared_ptr<datasets::Feed> feed_of(const datasets::SourcePtr& source, ValueMap options) {
  datasets::Pipeline pipeline(source);
  take_shuffle(options, pipeline);
  if (const auto samples = taken<int64_t>(options, "take")) pipeline.take(*samples);
  take_rows(options, pipeline);
  pipeline.repeat(taken<int64_t>(options, "repeat").value_or(1))
      .skip_broken(taken<bool>(options, "skip_broken").value_or(false));
  datasets::FeedOptions how;
  how.ahead.threads = taken<int64_t>(options, "threads").value_or(how.ahead.threads);
  how.ahead.ahead = taken<int64_t>(options, "ahead").value_or(how.ahead.ahead);
  how.rank = taken<int64_t>(options, "rank").value_or(how.rank);
  how.ranks = taken<int64_t>(options, "ranks").value_or(how.ranks);
  if (!options.empty())
    throw_invalid("[data] feed has no option \"" + options.begin()->first +
                  "\"; there are: batch, seed, block, together, repeat, take, pack, pad, pad_to, drop_last, "
                  "skip_broken, threads, ahead, rank, ranks");
  return std::make_shared<datasets::Feed>(std::move(pipeline), how);
}

}  // namespace troupe::script
