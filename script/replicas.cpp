#include "script/replicas.h"

#include <fmt/format.h>

#include <utility>

#include "script/options.h"

namespace troupe::script {
namespace {

std::vector<AnyRef> references_in(ValueList list) {
  std::vector<AnyRef> actors;
  for (Value& v : list) {
    if (!v.get_if<RefValue>())
      throw_invalid("[data parallel] the replicas are a list of references to actors, or a module; got " +
                    v.describe());
    actors.push_back(Codec<AnyRef>::from(std::move(v)));
    if (actors.back().type() != actors.front().type())
      throw_invalid("[data parallel] replicas are actors of one type; got " + actors.front().str() + " and " +
                    actors.back().str());
  }
  return actors;
}

}  // namespace

Replicas::Replicas(std::vector<AnyRef> actors, const parallel::DataParallelOptions& options, Make make)
    : AnyDataParallel(actors, Group(actors), options), make_(std::move(make)) {}

AnyRef Replicas::make_replica(const Place& worker) {
  if (make_) return make_(worker);
  throw_invalid(
      "[data parallel] these replicas were given as references, and nobody knows how to make another one: "
      "give the module");
}

std::shared_ptr<Replicas> Replicas::make(Session& session, Value model, ValueMap given) {
  Options options(std::move(given), "[data parallel]");
  parallel::DataParallelOptions out;
  out.buffers = options.take("buffers", out.buffers);
  out.buckets.first = options.take("first_bucket", out.buckets.first);
  out.buckets.others = options.take("bucket", out.buckets.others);
  out.compression = options.take("compression", out.compression);
  out.aggregation = options.take("aggregation", out.aggregation);
  out.average.every = options.take("average_every", out.average.every);
  out.average.after = options.take("average_after", out.average.after);
  out.average.outer_lr = options.take("outer_lr", out.average.outer_lr);
  out.average.outer_momentum = options.take("outer_momentum", out.average.outer_momentum);
  out.average.nesterov = options.take("outer_nesterov", out.average.nesterov);
  out.shard = parallel::shard_named(options.take("shard", std::string("none")));
  out.spare_pieces = options.take("spare_pieces", out.spare_pieces);
  out.gather = parallel::per_named(options.take("gather", std::string("use")));
  out.reduce = parallel::per_named(options.take("reduce", std::string("use")));
  std::vector<AnyRef> actors;
  Make make;
  if (auto* list = model.get_if<ValueList>()) {
    actors = references_in(std::move(*list));
  } else {
    const Value on = options.take("on", Value());
    std::vector<Place> places;
    if (on.is_null())
      for (const std::string& w : session.cluster().workers()) places.emplace_back(w);
    else
      places = places_of(on, "[data parallel]");
    const char* const type = out.shard == parallel::Shard::all ? "ShardedModule" : "Module";
    make = [&session, type, model](const Place& place) { return session.spawn(type, place, {model}); };
    for (const Place& place : places) actors.push_back(make(place));
  }
  options.end();
  return std::shared_ptr<Replicas>(new Replicas(std::move(actors), out, std::move(make)));
}

// A tensor, or a list of one and what it counts for.
parallel::AnyDataParallel::Given Replicas::given_by(const Value& result) {
  const auto* list = result.get_if<ValueList>();
  if (!list) return {Codec<Tensor>::from(result), {}};
  if (list->size() != 2)
    throw_invalid("[data parallel] a method gave " + result.describe() +
                  ": expected a tensor, or a tensor and the number that it counts for");
  return {Codec<Tensor>::from((*list)[0]), Codec<double>::from((*list)[1])};
}

Future<Tensor> Replicas::call(Session& session, Join join, const std::string& method,
                              const std::vector<Argument>& args) {
  std::vector<std::pair<size_t, parallel::Split>> splits;
  std::vector<parallel::Split> divided;
  ValueList values;
  for (const Argument& arg : args)
    if (const auto* split = std::get_if<parallel::Split>(&arg)) {
      splits.emplace_back(values.size(), *split);
      divided.push_back(*split);
      values.emplace_back(split->whole.defined() || split->parts.empty() ? split->whole
                                                                         : split->parts.front());
    } else {
      values.push_back(std::get<Value>(arg));
    }
  if (splits.empty())
    throw_invalid(
        "[data parallel] no argument is divided over the replicas: write split(x) for those that have rows");
  values = session.arguments(actors().front(), method, std::move(values), {});
  return forward(rows_of(divided, size()), join, method,
                 [actors = actors(), values, splits, method](size_t r, uint64_t joint) {
                   ValueList own = values;
                   for (const auto& [place, split] : splits) own[place] = split.part(r, actors.size());
                   return actors[r].call(method, std::move(own), {.joint = joint}).then(given_by);
                 });
}

}  // namespace troupe::script
