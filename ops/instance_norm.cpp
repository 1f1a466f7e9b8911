#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/batch_norm.h"
#include "ops/dispatch/promote.h"
#include "ops/inplace.h"
#include "ops/reduce.h"
#include "ops/resize.h"
#include "ops/statistics.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

[[noreturn]] void refuse_instances(const std::string& text) { throw_invalid("[instance_norm] " + text); }

void require_instances(const Tensor& x) {
  if (!x.defined()) refuse_instances("got an undefined tensor");
  if (!is_floating(x.dtype())) refuse_instances("needs a floating dtype, got " + x.summary() + "; use .to()");
  if (x.dim() < 3) refuse_instances("needs [N, C, ..] of 3 or more dimensions, got " + x.summary());
}

void require_spread(const Tensor& x) {
  int64_t each = 1;
  for (int d = 2; d < x.dim(); ++d) each *= x.shape()[d];
  if (each < 2)
    refuse_instances("a channel needs more than one element to have a variance, got " + x.summary());
}

void require_of_channels(const Tensor& x, const char* what, const Tensor& t) {
  if (!t.defined() || (t.shape() == Shape{x.size(1)} && is_floating(t.dtype()))) return;
  refuse_instances(fmt::format("{} must be floating [{}], one for each channel of {}, got {}", what,
                               x.size(1), x.summary(), t.summary()));
}

// They go by momentum to the means over all samples.
void move_statistics(const Tensor& x, const Tensor& mean, const Tensor& var, double momentum) {
  const NoGradGuard no_grad;
  std::vector<int64_t> dims;
  for (int d = 2; d < x.dim(); ++d) dims.push_back(d);
  const auto [of_var, of_mean] = var_mean(to(x.detach(), compute_dtype(x.dtype())), dims);
  const auto move = [&](const Tensor& running, const Tensor& by_sample) {
    if (!running.defined()) return;
    const Tensor batch = ops::mean(by_sample, {0});
    const Tensor before = to(running, batch.dtype());
    copy_(running, to(add(mul(before, 1 - momentum), mul(batch, momentum)), running.dtype()));
  };
  move(mean, of_mean), move(var, of_var);
}

}  // namespace

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  require_instances(x);
  require_spread(x);
  return to(group_norm(x, x.size(1), weight, bias, eps), x.dtype());
}

Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                     const Tensor& weight, const Tensor& bias, bool use_input_stats, double momentum,
                     double eps) {
  require_instances(x);
  require_of_channels(x, "running_mean", running_mean), require_of_channels(x, "running_var", running_var);
  if (use_input_stats) {
    const Tensor y = instance_norm(x, weight, bias, eps);
    if (x.numel() && (running_mean.defined() || running_var.defined()))
      move_statistics(x, running_mean, running_var, momentum);
    return y;
  }
  if (!running_mean.defined() || !running_var.defined())
    refuse_instances("without use_input_stats needs running_mean and running_var");
  require_of_channels(x, "weight", weight), require_of_channels(x, "bias", bias);
  return rounded_once(x.dtype(), [&](DType wide) {
    const auto given = [&](const Tensor& t, Scalar standard) {
      return t.defined() ? to(t, wide) : full({x.size(1)}, standard, {wide, x.device()});
    };
    // It takes copies: later passes change the running ones, and a backward pass may still read these.
    return batch_norm_eval(to(x, wide), given(weight, 1), given(bias, 0), to(running_mean.clone_data(), wide),
                           to(running_var.clone_data(), wide), eps);
  });
}

}  // namespace troupe::ops
