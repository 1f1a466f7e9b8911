// Losses. `reduction` is "mean", "sum" or "none".
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// x [N, C] (or [C], or [N, C, ...]) of scores, target [N] (or [], or [N, ...]) of classes, int64.
/// Rows whose target is ignore_index count for nothing. label_smoothing spreads that much over all classes.
/// A floating target of x's shape is a distribution over the classes: a row's loss is
/// -sum(target log_softmax(x)), the mean is over rows, and ignore_index is not looked at.
Tensor cross_entropy(const Tensor& x, const Tensor& target, const std::string& reduction = "mean",
                     int64_t ignore_index = -100, double label_smoothing = 0.0);
/// With a weight for each class [C], of x's dtype; undefined: 1. A row counts as much as its class, and the
/// mean divides by the sum of what the rows count; of distributions it divides by the number of rows.
Tensor cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                     const std::string& reduction = "mean", int64_t ignore_index = -100,
                     double label_smoothing = 0.0);
/// The same on log-probabilities.
Tensor nll_loss(const Tensor& log_p, const Tensor& target, const std::string& reduction = "mean",
                int64_t ignore_index = -100);
Tensor nll_loss(const Tensor& log_p, const Tensor& target, const Tensor& weight,
                const std::string& reduction = "mean", int64_t ignore_index = -100);

/// Inputs of shapes that broadcast.
Tensor mse_loss(const Tensor& x, const Tensor& target, const std::string& reduction = "mean");
Tensor l1_loss(const Tensor& x, const Tensor& target, const std::string& reduction = "mean");
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, const std::string& reduction = "mean",
                      double beta = 1.0);
Tensor huber_loss(const Tensor& x, const Tensor& target, const std::string& reduction = "mean",
                  double delta = 1.0);
/// Of x's shape; target in [0, 1].
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        const std::string& reduction = "mean");
/// Each element times `weight`, and what a target of 1 costs times `pos_weight`; both of x's dtype, and
/// broadcast to x. Undefined: 1. The mean is over all elements, whatever they weigh.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight,
                                        const Tensor& pos_weight = {}, const std::string& reduction = "mean");
/// Takes probabilities in [0, 1] (on the CPU `invalid` outside; logarithms count as at least -100), of x's
/// shape; weight broadcasts to it.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                            const std::string& reduction = "mean");
/// x: log-probabilities, target: probabilities. reduction also "batchmean": the sum over the first
/// dimension's size.
Tensor kl_div(const Tensor& x, const Tensor& target, const std::string& reduction = "mean");

extern const Op kCrossEntropy, kCrossEntropyGrad, kSoftCrossEntropy, kNllLoss, kNllLossGrad, kMseLoss,
    kL1Loss, kSmoothL1Loss, kHuberLoss, kBinaryCrossEntropy, kBinaryCrossEntropyWithLogits, kKlDiv;

}  // namespace troupe::ops
