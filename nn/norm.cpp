#include "nn/norm.h"

#include <fmt/format.h>

#include <utility>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "nn/init.h"
#include "nn/norm_parameters.h"
#include "ops/arithmetic.h"
#include "ops/batch_norm.h"
#include "ops/inplace.h"

namespace troupe::nn {

GroupNorm::GroupNorm(int64_t groups, int64_t channels, const Options& o)
    : weight(parameter("group_norm", {channels}, 1, o.dtype)),
      bias(parameter("group_norm", {channels}, 0, o.dtype)),
      groups_(groups),
      channels_(channels),
      eps_(checked_eps("group_norm", o.eps)) {
  if (!o.affine) weight = {};
  if (!o.affine || !o.bias) bias = {};
  if (groups < 1 || channels % groups != 0)
    throw_invalid(fmt::format("[group_norm] {} groups do not divide {} channels", groups, channels));
}

Tensor GroupNorm::forward(const Tensor& x) {
  return ops::group_norm(x, groups_, scale_or_ones(weight, {channels_}, x),
                         shift_or_zeros(bias, {channels_}, x), eps_);
}

void GroupNorm::reset(Generator&) { reset_affine(weight, bias); }

std::string GroupNorm::str() const { return fmt::format("GroupNorm({}, {})", groups_, channels_); }

BatchNorm2d::BatchNorm2d(int64_t channels, const Options& o)
    : weight(parameter("batch_norm", {channels}, 1, o.dtype)),
      bias(parameter("batch_norm", {channels}, 0, o.dtype)),
      running_mean(zeros({channels}, o.dtype)),
      running_var(ones({channels}, o.dtype)),
      num_batches_tracked(zeros({}, int64)),
      channels_(channels),
      eps_(checked_eps("batch_norm", o.eps)),
      momentum_(o.momentum) {
  if (momentum_ && !(*momentum_ >= 0 && *momentum_ <= 1))
    throw_invalid(fmt::format("[batch_norm] momentum must be in [0, 1], got {}", *momentum_));
  if (!o.affine) weight = {};
  if (!o.affine || !o.bias) bias = {};
  if (!o.track_running_stats) running_mean = running_var = num_batches_tracked = {};
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  if (!x.defined() || !takes(x.dim()) || x.size(1) != channels_)
    throw_invalid(fmt::format("[batch_norm] got {}, expected {}", x.summary(), expected()));
  const Tensor scale = scale_or_ones(weight, {channels_}, x), shift = shift_or_zeros(bias, {channels_}, x);
  const bool tracked = running_mean.defined();
  if (!training() && tracked)  // of copies: later passes change the running ones, and a backward pass may
                               // still read these
    return ops::batch_norm_eval(x, scale, shift, running_mean.clone_data(), running_var.clone_data(), eps_);
  const int64_t count = x.numel() / channels_;
  if (training() && count < 2)
    throw_invalid(
        fmt::format("[batch_norm] training needs at least 2 values per channel, got {}", x.summary()));
  const auto [y, mean, var] = ops::batch_norm_train(x, scale, shift, eps_);
  if (!training() || !tracked) return y;
  if (statistics_ == Statistics::move)
    move(mean.detach(), var.detach(), static_cast<double>(count) / static_cast<double>(count - 1));
  else if (statistics_ == Statistics::gather)
    gather(count, mean.detach(), var.detach());
  return y;
}

// By a batch of that mean, whose unbiased variance is by * var.
void BatchNorm2d::move(const Tensor& mean, const Tensor& var, double by) {
  NoGradGuard off;
  num_batches_tracked.add_(1);
  const double share = momentum_ ? *momentum_ : 1 / num_batches_tracked.item();
  if (mean.dtype() == running_mean.dtype())
    ops::lerp_(running_mean, mean, share);
  else
    running_mean.copy_(ops::lerp(running_mean.to(mean.dtype()), mean, share));
  ops::mul_(running_var, 1 - share);
  ops::add_(running_var, var, share * by);
}

// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances"
// (1979).
void BatchNorm2d::gather(int64_t count, const Tensor& mean, const Tensor& var) {
  NoGradGuard no_grad;
  const auto part = static_cast<double>(count);
  Gathered& all = gathered_;
  if (all.count == 0) {
    all = {count, mean.clone_data(), ops::mul(var, part)};
    return;
  }
  const double before = static_cast<double>(all.count), after = before + part;
  const Tensor distance = ops::sub(mean, all.mean);
  all.squares = ops::add(ops::add(all.squares, ops::mul(var, part)),
                         ops::mul(ops::mul(distance, distance), before * part / after));
  all.mean = ops::add(all.mean, ops::mul(distance, part / after));
  all.count += count;
}

void BatchNorm2d::settle(bool keep) {
  const Gathered all = std::exchange(gathered_, {});
  statistics_ = Statistics::move;
  if (keep && all.count > 0) move(all.mean, all.squares, 1 / static_cast<double>(all.count - 1));
}

void BatchNorm2d::members(Members& m) {
  m("weight", weight), m("bias", bias);
  m.buffer("running_mean", running_mean), m.buffer("running_var", running_var);
  m.buffer("num_batches_tracked", num_batches_tracked);
}

void BatchNorm2d::reset(Generator&) {
  reset_affine(weight, bias);
  if (!running_mean.defined()) return;
  init::zeros_(running_mean), init::ones_(running_var);
  num_batches_tracked.fill_(0);
}

std::string BatchNorm2d::str() const { return fmt::format("BatchNorm2d({})", channels_); }
std::string BatchNorm2d::expected() const { return fmt::format("[batch, {}, height, width]", channels_); }
std::string BatchNorm1d::str() const { return fmt::format("BatchNorm1d({})", channels()); }
std::string BatchNorm1d::expected() const {
  return fmt::format("[batch, {0}] or [batch, {0}, length]", channels());
}
std::string BatchNorm3d::str() const { return fmt::format("BatchNorm3d({})", channels()); }
std::string BatchNorm3d::expected() const {
  return fmt::format("[batch, {}, depth, height, width]", channels());
}

}  // namespace troupe::nn
