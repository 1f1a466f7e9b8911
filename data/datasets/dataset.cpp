// Views of a part of a data set.
#include "data/datasets/dataset.h"

#include "core/base/error.h"

namespace troupe::datasets {
namespace {

Tensor rows_of(const Tensor& t, int64_t from, int64_t count) {
  Shape shape = t.shape();
  shape[0] = count;
  return t.alias(shape, t.strides(), t.storage_offset() + from * t.strides()[0]);
}

}  // namespace

Dataset rows(const Dataset& set, int64_t from, int64_t count) {
  if (from < 0 || count < 0 || from > set.size() - count)
    throw_invalid("[data] rows from " + std::to_string(from) + ", " + std::to_string(count) +
                  " of them, asked of a set of " + std::to_string(set.size()));
  if (!set.y.defined()) return set;
  return {rows_of(set.x, from, count), rows_of(set.y, from, count)};
}

}  // namespace troupe::datasets
