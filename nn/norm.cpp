#include "nn/norm.h"

#include <fmt/format.h>

#include "core/error.h"
#include "nn/init.h"
#include "nn/scale.h"
#include "ops/inplace.h"
#include "ops/norm.h"

namespace troupe::nn {
GroupNorm::GroupNorm(int64_t groups, int64_t channels, const Options& o)
    : weight(parameter("group_norm", {channels}, 1, o.dtype)),
      bias(parameter("group_norm", {channels}, 0, o.dtype)),
      groups_(groups),
      eps_(checked_eps("group_norm", o.eps)) {
  if (groups < 1 || channels % groups != 0)
    throw_invalid(fmt::format("[group_norm] {} groups do not divide {} channels", groups, channels));
}

Tensor GroupNorm::forward(const Tensor& x) { return ops::group_norm(x, groups_, weight, bias, eps_); }

void GroupNorm::reset(Generator&) { ones_(weight), zeros_(bias); }

std::string GroupNorm::str() const { return fmt::format("GroupNorm({}, {})", groups_, weight.size(0)); }

BatchNorm2d::BatchNorm2d(int64_t channels, const Options& o)
    : weight(parameter("batch_norm", {channels}, 1, o.dtype)),
      bias(parameter("batch_norm", {channels}, 0, o.dtype)),
      running_mean(Tensor::zeros({channels}, o.dtype)),
      running_var(Tensor::full({channels}, 1, o.dtype)),
      num_batches_tracked(Tensor::zeros({}, int64)),
      eps_(checked_eps("batch_norm", o.eps)),
      momentum_(o.momentum) {
  if (!(o.momentum >= 0 && o.momentum <= 1))
    throw_invalid(fmt::format("[batch_norm] momentum must be in [0, 1], got {}", o.momentum));
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  if (!training())  // of copies: later passes change the running ones, and a backward pass may still read
                    // these
    return ops::batch_norm_eval(x, weight, bias, running_mean.clone_data(), running_var.clone_data(), eps_);
  if (!x.defined() || x.dim() != 4 || x.size(1) != weight.size(0))
    throw_invalid(
        fmt::format("[batch_norm] got {}, expected [batch, {}, height, width]", x.str(), weight.size(0)));
  const int64_t count = x.numel() / weight.size(0);
  if (count < 2)
    throw_invalid(fmt::format("[batch_norm] training needs at least 2 values per channel, got {}", x.str()));
  const auto [y, mean, var] = ops::batch_norm_train(x, weight, bias, eps_);
  const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
  ops::lerp_(running_mean, mean.detach(), momentum_);
  ops::mul_(running_var, 1 - momentum_);
  ops::add_(running_var, var.detach(), momentum_ * unbiased);
  num_batches_tracked.fill_(num_batches_tracked.item() + 1);
  return y;
}

void BatchNorm2d::members(Members& m) {
  m("weight", weight), m("bias", bias);
  m.buffer("running_mean", running_mean), m.buffer("running_var", running_var);
  m.buffer("num_batches_tracked", num_batches_tracked);
}

void BatchNorm2d::reset(Generator&) {
  ones_(weight), zeros_(bias), zeros_(running_mean), ones_(running_var);
  num_batches_tracked.fill_(0);
}

std::string BatchNorm2d::str() const { return fmt::format("BatchNorm2d({})", weight.size(0)); }

}  // namespace troupe::nn
