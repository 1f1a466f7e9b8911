// A batch in parts: trees of tensors cut along their first dimension.
#pragma once
#include <vector>

#include "core/value/value.h"

namespace troupe::parallel {

/// The size of the first dimension of the tensors in `batch`; `invalid` if they differ, or if there is none.
/// `what` begins the complaint: "the batch".
int64_t rows_of(const Value& batch, const char* what);

/// `invalid` unless there are as many targets as rows; or several of one for each of the other, and
/// micro-batches all of one size, so that they stay together.
void check_rows(const Value& batch, const Value& targets, int count);

/// `count` parts of `batch`, whose tensors (all that have a dimension) are cut along the first: the first
/// parts have one row more where the rows do not come out even. Everything else goes into each part. Views;
/// no copies. `invalid` if there are fewer rows than parts.
std::vector<Value> split_batch(const Value& batch, int count, const char* what);

/// Parts of these sizes, whose sum are the rows.
std::vector<Value> split_batch(const Value& batch, const std::vector<int64_t>& sizes);

/// Each of those parts, cut into `slices` along the second dimension (the positions of a sequence): the parts
/// of the first rows, from the first position on, then those of the next. Tensors without a second dimension
/// go into each. `invalid` also if there are fewer positions than slices.
std::vector<Value> slice_batch(const Value& batch, int count, int slices, const char* what);
/// The positions of a slice, which all its tensors with a second dimension have.
int64_t positions_of(const Value& slice, const char* what);

/// `invalid` unless each slice has as many targets as positions, which it counts for.
void check_positions(const std::vector<Value>& batch, const std::vector<Value>& targets);
/// What each part of slice_batch() counts for: a slice its part of what its micro-batch does, by positions.
/// `of_micro_batches`: empty: their rows; of another number, they are given back.
std::vector<double> weights_of_slices(const std::vector<Value>& parts, int slices,
                                      const std::vector<double>& of_micro_batches);

}  // namespace troupe::parallel
