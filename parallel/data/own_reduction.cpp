#include "parallel/data/own_reduction.h"

#include <fmt/format.h>

#include "core/graph/copy_on_write.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "parallel/data/aggregation.h"
#include "parallel/data/gradient_reducer.h"
#include "parallel/server/compression/own_compression.h"

namespace troupe::parallel {
namespace {

constexpr const char* kOfOwn = "[GradientReducer] ";  // begins its errors
constexpr const char* kOwnPrefix = "kept.";

}  // namespace

std::shared_ptr<OwnReduction> OwnReduction::of(const ReducerOptions& options) {
  AggregationRule rule = aggregation_named(options.aggregation);
  const bool compressed = options.compression.kind == Compression::Kind::own;
  if (!rule && !compressed) return nullptr;
  if (rule && options.compression.on())
    throw_invalid(
        fmt::format("{}gradients that travel by {} are sums, and {} is none: leave out the compression, or "
                    "the aggregation",
                    kOfOwn, options.compression.str(), options.aggregation));
  if (rule && (options.shard == Shard::gradients || options.shard == Shard::all))
    throw_invalid(fmt::format("{}{} needs whole gradients: write Shard::state or none, or leave it out",
                              kOfOwn, options.aggregation));
  if (rule) return std::make_shared<OwnReduction>(options.aggregation, aggregated(std::move(rule)), true);
  BucketReduction reduce = own_compression(options.compression.name);
  if (!reduce)
    throw_invalid(
        fmt::format("{}no compression \"{}\" is registered here, where one of the members runs: "
                    "call register_compression() in every process; there are {}",
                    kOfOwn, options.compression.name, own_compressions()));
  return std::make_shared<OwnReduction>(options.compression.name, std::move(reduce), false);
}

std::vector<KeptTensors> OwnReduction::take(const std::vector<size_t>& parameters) {
  std::vector<KeptTensors> out;
  const internal::Lock lock(mutex_);
  for (const size_t i : parameters)
    if (kept_[i].taken)
      throw_invalid(
          fmt::format("{}a pass has begun while another one reduces its gradients by {}, which go "
                      "one by one: let one end before the next",
                      kOfOwn, name));
  for (const size_t i : parameters) {
    kept_[i].taken = true;
    out.push_back(kept_[i].tensors);
  }
  return out;
}

void OwnReduction::put(size_t parameter, KeptTensors kept) {
  const internal::Lock lock(mutex_);
  kept_[parameter] = {std::move(kept), false};
}

StateDict OwnReduction::state() const {
  StateDict out;
  const internal::Lock lock(mutex_);
  for (size_t i = 0; i < kept_.size(); ++i)
    for (const auto& [name, t] : kept_[i].tensors)
      if (t.defined()) out[fmt::format("{}{}.{}", kOwnPrefix, i, name)] = internal::lazy_copy(t.detach());
  return out;
}

void OwnReduction::load_state(const StateDict& state) {
  const internal::Lock lock(mutex_);
  std::vector<Kept> kept(kept_.size());
  size_t known = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    const std::string prefix = fmt::format("{}{}.", kOwnPrefix, i);
    for (auto at = state.lower_bound(prefix); at != state.end() && at->first.starts_with(prefix);
         ++at, ++known)
      kept[i].tensors[at->first.substr(prefix.size())] = at->second.clone_data();
  }
  if (known != state.size())
    throw_invalid(
        fmt::format("{}the state has {} tensors, of which {} are what {} keeps of its {} parameters: give "
                    "it the compression and the parameters that it had",
                    kOfOwn, state.size(), known, name, kept.size()));
  kept_ = std::move(kept);
}

}  // namespace troupe::parallel
