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

}  // namespace troupe::parallel
