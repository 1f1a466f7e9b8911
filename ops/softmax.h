// softmax and log_softmax along one dimension.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// Any floating dtype and shape; exp(x - max) / sum.
Tensor softmax(const Tensor& x, int64_t dim);
/// x - logsumexp(x).
Tensor log_softmax(const Tensor& x, int64_t dim);
/// Takes any dtype, converted to a floating one first.
Tensor softmax(const Tensor& x, int64_t dim, DType dtype);
Tensor log_softmax(const Tensor& x, int64_t dim, DType dtype);

extern const Op kSoftmax, kLogSoftmax, kSoftmaxGrad, kLogSoftmaxGrad;

}  // namespace troupe::ops
