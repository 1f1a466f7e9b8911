#include "script/feeds.h"

#include <utility>

#include "data/streams/described.h"
#include "parallel/feed/feed_readers.h"
#include "script/options.h"

namespace troupe::script {

std::unique_ptr<datasets::Feed> make_feed(Session& session, const Value& source, ValueMap options) {
  Options given(std::move(options), "[feed]");
  datasets::FeedOptions feed;
  feed.ahead.threads = given.take("threads", feed.ahead.threads);
  feed.ahead.ahead = given.take("ahead", feed.ahead.ahead);
  feed.rank = given.take("rank", feed.rank), feed.ranks = given.take("ranks", feed.ranks);
  feed.device = Device(given.take("device", std::string("cpu")));
  const auto readers = given.take("readers", std::vector<std::string>());
  if (!readers.empty()) feed.readers = datasets::readers(session.cluster(), readers);
  ValueMap description;
  if (const auto* described = source.get_if<ValueMap>())
    description["source"] = *described;
  else
    description["source"] =
        ValueMap{{"kind", std::string("token_windows")},
                 {"files", source.get_if<ValueList>() ? source : Value(ValueList{source})}};
  const auto pass_on = [&]<class T>(const char* name, T standard) {
    description[name] = Codec<T>::to(given.take(name, std::move(standard)));
  };
  const auto pass_on_if_there = [&](const char* name) {
    if (Value value = given.take(name, Value()); !value.is_null()) description[name] = std::move(value);
  };
  pass_on("batch", int64_t{32}), pass_on("repeat", int64_t{1}), pass_on("pad_to", int64_t{1});
  pass_on("block", int64_t{1024}), pass_on("together", int64_t{64});
  pass_on("drop_last", false), pass_on("skip_broken", false);
  pass_on("pad", std::map<std::string, double>());
  for (const char* name : {"seed", "take", "pack", "bucket"}) pass_on_if_there(name);
  given.end();
  return std::make_unique<datasets::Feed>(datasets::described_pipeline(description), std::move(feed));
}

}  // namespace troupe::script
