#include "script/data_sets.h"

#include <initializer_list>

#include "core/base/error.h"
#include "core/codec/codec.h"
#include "data/datasets/set_catalog.h"

namespace troupe::script {
namespace {

template <class T>
bool take_option(ValueMap& named, std::initializer_list<const char*> names, T& into) {
  bool found = false;
  for (const char* name : names)
    if (auto node = named.extract(name); !node.empty()) {
      into = Codec<T>::from(fitted(std::move(node.mapped()), Codec<T>::name()));
      found = true;
    }
  return found;
}
void take_loader_options(ValueMap& named, datasets::LoaderOptions& into) {
  take_option(named, {"batch", "batch_size"}, into.batch_size);
  take_option(named, {"shuffle"}, into.shuffle);
  take_option(named, {"drop_last"}, into.drop_last);
  take_option(named, {"rank"}, into.rank);
  take_option(named, {"ranks"}, into.ranks);
  if (std::string shard; take_option(named, {"shard"}, shard)) {
    if (shard != "pad" && shard != "drop")
      throw_invalid("[data] shard must be \"pad\" or \"drop\", got \"" + shard + "\"");
    into.shard = shard == "pad" ? datasets::Uneven::pad : datasets::Uneven::drop;
  }
  int64_t seed = static_cast<int64_t>(into.seed);
  take_option(named, {"order_seed"}, seed);
  into.seed = static_cast<uint64_t>(seed);
}

}  // namespace

NamedDataSet data_set_of(std::string_view name, ValueList positional, ValueMap named) {
  NamedDataSet out;
  take_loader_options(named, out.options);
  for (const auto& s : datasets::sets())
    if (s.name == name) out.set = s(std::move(positional), std::move(named));
  return out;
}

NamedDataSet data_set_of(Tensor x, Tensor y, ValueMap options) {
  NamedDataSet out{{std::move(x), std::move(y)}};
  take_loader_options(options, out.options);
  if (!options.empty())
    throw_invalid("data.of has no option \"" + options.begin()->first +
                  "\"; there are: batch, shuffle, drop_last, rank, ranks, shard, order_seed");
  return out;
}

std::string NamedDataSet::str() const {
  return "data set of " + std::to_string(set.size()) + ": x " + set.x.summary() + ", y " + set.y.summary() +
         ", in batches of " + std::to_string(options.batch_size);
}

}  // namespace troupe::script
