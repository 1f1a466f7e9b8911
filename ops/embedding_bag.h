// Sums and means of rows of a table.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// ids [n] int64, weight [rows, d], offsets [bags] int64 -> [bags, d]: bag i holds the rows ids[offsets[i]]
/// up to, without, ids[offsets[i + 1]] (the last one: to the end), summed (mode "sum") or averaged ("mean").
/// Zero for an empty bag. Without offsets ids are [bags, n], a bag in each row. `invalid` unless offsets
/// begin with 0 and do not fall.
Tensor embedding_bag(const Tensor& ids, const Tensor& weight, const Tensor& offsets = {},
                     const std::string& mode = "mean");

extern const Op kEmbeddingBag;

}  // namespace troupe::ops
