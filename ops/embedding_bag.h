// Sums, means and the largest of rows of a table.
#pragma once
#include <optional>

#include "ops/dispatch/op.h"

namespace troupe::ops {

/// ids [n] integers, weight [rows, d], offsets [bags] int64 -> [bags, d]: bag i holds the rows
/// ids[offsets[i]] up to, without, ids[offsets[i + 1]] (the last one: to the end), summed (mode "sum"),
/// averaged ("mean"), or the largest of each column ("max", of equal ones the first gets the gradient). Zero
/// for an empty bag. Without offsets ids are [bags, n], a bag in each row. `invalid` unless offsets begin
/// with 0 and do not fall. per_sample_weights: shaped as ids; by them rows are multiplied, of mode "sum".
/// include_last_offset: one more offset says where the last bag ends. padding_idx: a row that counts nowhere,
/// where it is among the ids.
Tensor embedding_bag(const Tensor& ids, const Tensor& weight, const Tensor& offsets = {},
                     const std::string& mode = "mean", const Tensor& per_sample_weights = {},
                     bool include_last_offset = false, std::optional<int64_t> padding_idx = {});

extern const Op kEmbeddingBag;

}  // namespace troupe::ops
