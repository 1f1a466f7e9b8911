// What order makes of elements: running extrema, quantiles, places in sorted lines, distinct elements.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// The largest (smallest) of the first elements along dim, and the last place where it is; NaN from the first
/// one on. Every dtype. The places are found on the host.
ValuesAndIndices cummax(const Tensor& x, int64_t dim);
ValuesAndIndices cummin(const Tensor& x, int64_t dim);

/// The k-th smallest elements along dim (k from 1), of equal ones the first of those left, and their places;
/// NaN counts as the largest.
ValuesAndIndices kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false);
/// Gives what is where q, numbers in [0, 1], cut the sorted elements along dim (none: all): q of a tensor [n]
/// comes first in the result. interpolation between two elements: "linear", "lower", "higher", "midpoint",
/// "nearest". NaN where there is one. Of float32 and float64.
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false,
                const std::string& interpolation = "linear");
Tensor quantile(const Tensor& x, double q, std::optional<int64_t> dim = {}, bool keepdim = false,
                const std::string& interpolation = "linear");

/// Says where values would stand in sorted lines, int64 like `values`: before elements that equal them, or,
/// right, behind them. One line [n] for all, or lines [.., n] for values [.., m]. By way of the host. sorter:
/// int64, as the lines; it says which element is first, second, .., so that lines need not be sorted.
Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& values, bool right = false,
                    const Tensor& sorter = {});
Tensor bucketize(const Tensor& values, const Tensor& boundaries, bool right = false);

/// The distinct elements in order, where each element of x is among them, and how often each occurs. A NaN
/// equals none. Along dim its slices take the place of elements, in the order of their first elements that
/// differ, which is found on the host. Without history.
struct Unique {
  Tensor values, inverse, counts;
};
Unique unique(const Tensor& x, std::optional<int64_t> dim = {});

}  // namespace troupe::ops
