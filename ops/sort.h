// Order: sort, argsort, topk. A NaN counts as larger than every number, as in PyTorch.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// Along dim; every dtype. Stable: equal elements stay in their order, descending too.
ValuesAndIndices sort(const Tensor& x, int64_t dim = -1, bool descending = false);
/// The indices of sort.
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false);
/// The k largest (smallest) elements along dim, best first, of every dtype but bool; of equal ones the first.
/// `invalid` unless 0 <= k <= size.
ValuesAndIndices topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true);

extern const Op kSort, kArgsort, kTopk;

}  // namespace troupe::ops
