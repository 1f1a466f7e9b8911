#include "nn/instance_norm.h"

#include <fmt/format.h>

#include <utility>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "nn/init.h"
#include "nn/norm_parameters.h"
#include "ops/arithmetic.h"
#include "ops/inplace.h"
#include "ops/resize.h"
#include "ops/view.h"

namespace troupe::nn {

InstanceNorm2d::InstanceNorm2d(int64_t channels, const Options& o)
    : weight(parameter("instance_norm", {channels}, 1, o.dtype)),
      bias(parameter("instance_norm", {channels}, 0, o.dtype)),
      channels_(channels),
      eps_(checked_eps("instance_norm", o.eps)),
      momentum_(o.momentum.value_or(0)) {
  if (!(momentum_ >= 0 && momentum_ <= 1))
    throw_invalid(fmt::format("[instance_norm] momentum must be in [0, 1], got {}", momentum_));
  if (!o.affine) weight = {};
  if (!o.affine || !o.bias) bias = {};
  if (!o.track_running_stats) return;
  running_mean = zeros({channels}, o.dtype);
  running_var = ones({channels}, o.dtype);
  num_batches_tracked = zeros({}, int64);
}

Tensor InstanceNorm2d::forward(const Tensor& x) {
  const int one = inner() + 1;
  if (!x.defined() || (x.dim() != one && x.dim() != one + 1) || x.size(-one) != channels_)
    throw_invalid(
        fmt::format("[instance_norm] got {}, expected {} dimensions, or one more for a batch, of "
                    "{} channels",
                    x.summary(), one, channels_));
  return x.dim() == one ? ops::squeeze(normalized(ops::unsqueeze(x, 0)), 0) : normalized(x);
}

Tensor InstanceNorm2d::by(const Tensor& x, const Tensor& mean, const Tensor& var, bool of_input,
                          double momentum) const {
  return ops::instance_norm(x, mean, var, weight, bias, of_input, momentum, eps_);
}

Tensor InstanceNorm2d::normalized(const Tensor& x) {
  if (!running_mean.defined()) return by(x, {}, {}, true, 0);
  if (!training()) return by(x, running_mean, running_var, false, 0);
  switch (statistics_) {
    case Statistics::move:
      return by(x, running_mean, running_var, true, momentum_);
    case Statistics::gather:
      return gather(x);
    case Statistics::leave:
      break;
  }
  return by(x, {}, {}, true, 0);
}

Tensor InstanceNorm2d::gather(const Tensor& x) {
  const Tensor mean = zeros_like(running_mean), var = zeros_like(running_var);
  const Tensor y = by(x, mean, var, true, 1);
  const NoGradGuard no_grad;
  Gathered& all = gathered_;
  if (all.samples == 0) all = {0, zeros_like(mean), zeros_like(var)};
  const auto samples = static_cast<double>(x.size(0));
  ops::add_(all.mean, mean, samples);
  ops::add_(all.var, var, samples);
  all.samples += x.size(0);
  return y;
}

void InstanceNorm2d::settle(bool keep) {
  const Gathered all = std::exchange(gathered_, {});
  statistics_ = Statistics::move;
  if (!keep || all.samples == 0) return;
  const NoGradGuard no_grad;
  const double share = momentum_ / static_cast<double>(all.samples);
  for (const auto& [running, sum] : {std::pair(running_mean, all.mean), std::pair(running_var, all.var)}) {
    ops::mul_(running, 1 - momentum_);
    ops::add_(running, sum, share);
  }
}

void InstanceNorm2d::members(Members& m) {
  m("weight", weight), m("bias", bias);
  m.buffer("running_mean", running_mean), m.buffer("running_var", running_var);
  m.buffer("num_batches_tracked", num_batches_tracked);
}

void InstanceNorm2d::reset(Generator&) {
  reset_affine(weight, bias);
  if (!running_mean.defined()) return;
  init::zeros_(running_mean), init::ones_(running_var);
  num_batches_tracked.fill_(0);
}

std::string InstanceNorm2d::str() const { return fmt::format("InstanceNorm2d({})", channels_); }
std::string InstanceNorm1d::str() const { return fmt::format("InstanceNorm1d({})", channels()); }
std::string InstanceNorm3d::str() const { return fmt::format("InstanceNorm3d({})", channels()); }

}  // namespace troupe::nn
