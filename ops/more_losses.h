// Losses of triples and of sequences.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// The p-norm of x1 - x2 + eps over the last dimension.
Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p = 2, double eps = 1e-6,
                         bool keepdim = false);
/// How much farther, by less than margin, anchors [N, D] (or [D]) are from negatives than from positives, at
/// least 0; with swap the nearer one of anchor and positive counts for the negative. reduction as in all
/// losses.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           double margin = 1, double p = 2, double eps = 1e-6, bool swap = false,
                           const std::string& reduction = "mean");
/// Connectionist temporal classification (Graves et al. 2006) of log-probabilities [T, N, C], or [T, C];
/// targets [N, S], or one after the other [sum of target_lengths], with lengths [N], all integers. "mean"
/// divides each by its target's length first. zero_infinity: 0 in the place of losses of targets that do not
/// fit their inputs.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank = 0, const std::string& reduction = "mean",
                bool zero_infinity = false);

}  // namespace troupe::ops
