// Statistics of several operators: variances with their means, lengths of 1, angles between vectors.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// What is taken off the number of elements by which the sum of squares is divided; where nothing is left the
/// variance is infinite or NaN, as PyTorch's.
struct Correction {
  double value = 1;
};
Tensor var(const Tensor& x, const IntList& dim, Correction correction, bool keepdim = false);
Tensor std(const Tensor& x, const IntList& dim, Correction correction, bool keepdim = false);

/// These give var() or std(), and mean(), over the same dimensions.
std::pair<Tensor, Tensor> var_mean(const Tensor& x, const IntList& dim = {}, bool unbiased = true,
                                   bool keepdim = false);
std::pair<Tensor, Tensor> std_mean(const Tensor& x, const IntList& dim = {}, bool unbiased = true,
                                   bool keepdim = false);
/// Gives x divided by its p-norm over dim, or by eps if that is larger.
Tensor normalize(const Tensor& x, double p = 2, const IntList& dim = 1, double eps = 1e-12);
/// The products of x1 and x2 over dim, divided by the lengths of both, of which each counts as at least eps.
Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int64_t dim = 1, double eps = 1e-8);

}  // namespace troupe::ops
