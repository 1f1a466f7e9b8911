// Data sets by name, with how they come in batches.
#pragma once
#include <string>
#include <string_view>

#include "core/value/value.h"
#include "data/datasets/loader.h"

namespace troupe::script {

struct NamedDataSet {
  datasets::Dataset set;
  datasets::LoaderOptions options = {};
  int64_t epoch = 0;  ///< of the next batches that name none
  datasets::Loader loader() const { return datasets::Loader(set, options); }
  std::string str() const;
};

/// What data.NAME makes of these arguments. Options of all sets: batch (or batch_size), shuffle, drop_last,
/// rank, ranks, shard, order_seed. `invalid` for values that these cannot have, and as the set's own.
NamedDataSet data_set_of(std::string_view name, ValueList positional, ValueMap named);
/// Tensors that a script has; `invalid` for other options.
NamedDataSet data_set_of(Tensor x, Tensor y, ValueMap options);

}  // namespace troupe::script
