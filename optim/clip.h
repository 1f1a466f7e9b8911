// Gradient clipping, by norm and by value.
#pragma once
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe::optim {

/// How a norm is taken, and what a norm that is infinite or NaN means.
struct ClipOptions {
  bool largest = false;             ///< the largest absolute value in place of the Euclidean norm
  bool error_if_nonfinite = false;  ///< `failed`, with nothing changed; otherwise gradients stay as they are
};

/// Scales the `.grad` of all parameters so that their norm, as if they were one vector, is at most max_norm:
/// by max_norm / (norm + 1e-6), if that is below 1 (as PyTorch). Parameters without `.grad` are passed over.
/// Returns the norm before. A gradient that changes is a new tensor. `invalid` unless max_norm >= 0.
double clip_grad_norm_(const Tensors& params, double max_norm, const ClipOptions& options = {});
/// Limits each element of the `.grad` of all parameters to [-limit, limit]; NaN stays. `invalid` unless
/// limit >= 0.
void clip_grad_value_(const Tensors& params, double limit);

/// The same for gradients that are not in `.grad`, as those of a context: entries of `grads` that change are
/// replaced; undefined ones are passed over.
double clip_norm_(Tensors& grads, double max_norm, const ClipOptions& options = {});
void clip_value_(Tensors& grads, double limit);

/// The same in parts, for gradients that lie in several places: the size of each gradient, the norm of all of
/// them, by what to scale, and the scaling. In this order they do what clip_norm_ does, bit for bit.
///
/// Sums of squares, or with `largest` largest absolute values; 0 for undefined gradients.
std::vector<double> gradient_sizes(const Tensors& grads, bool largest = false);
double norm_of_sizes(const std::vector<double>& sizes, bool largest = false);
/// 1 if the gradients stay as they are. Throws as clip_norm_.
double clip_factor(double norm, double max_norm, const ClipOptions& options = {});
/// factor * grad in grad's dtype; in place if `grad` is the only handle on its elements.
Tensor clipped(Tensor grad, double factor);

/// by * grad, contiguous, without history; float32 if grad is bfloat16 or float16, so that nothing is lost.
Tensor scaled(const Tensor& grad, double by);
/// The norm alone.
double total_norm(const Tensors& grads, bool largest = false);

}  // namespace troupe::optim
