#include "optim/loss_scaler.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "optim/clip.h"
#include "optim/gradient_norm.h"
#include "optim/saved_state.h"

namespace troupe::optim {

LossScaler::LossScaler(const Options& o) : options_(o), scale_(o.init_scale) {
  if (!(o.init_scale > 0) || !std::isfinite(o.init_scale))
    throw_invalid(fmt::format("[loss_scaler] init_scale must be finite and above 0, got {}", o.init_scale));
  if (!(o.growth_factor >= 1) || !std::isfinite(o.growth_factor))
    throw_invalid(fmt::format("[loss_scaler] growth_factor must be at least 1, got {}", o.growth_factor));
  if (!(o.backoff_factor > 0 && o.backoff_factor <= 1))
    throw_invalid(fmt::format("[loss_scaler] backoff_factor must be in (0, 1], got {}", o.backoff_factor));
  if (o.growth_interval < 1)
    throw_invalid(fmt::format("[loss_scaler] growth_interval must be at least 1, got {}", o.growth_interval));
}

Tensor LossScaler::scale(const Tensor& loss) const { return ops::mul(loss, scale_); }

bool LossScaler::unscale_(Tensors& grads) {
  bool finite = true;
  for (const double one : sizes_of(grads, Size::finite)) finite &= one != 0;
  for (Tensor& g : grads)
    if (g.defined()) g = scaled(g, 1 / scale_);
  overflow_ |= !finite;
  return finite;
}

void LossScaler::note_unscaled(const void* of, bool finite) {
  refuse_twice(of);
  overflow_ |= !finite;
  finite_[of] = finite;
}

std::optional<bool> LossScaler::unscaled(const void* of) const {
  const auto at = finite_.find(of);
  return at == finite_.end() ? std::nullopt : std::optional(at->second);
}

void LossScaler::refuse_twice(const void* of) const {
  if (finite_.contains(of))
    throw_invalid("[loss_scaler] the gradients of this optimizer are unscaled already: call update() first");
}

bool LossScaler::unscale_(Optimizer& optimizer) {
  refuse_twice(&optimizer);
  Tensors grads;
  for (const Tensor& p : optimizer.params()) grads.push_back(p.grad());
  const bool finite = unscale_(grads);
  for (size_t i = 0; i < grads.size(); ++i)
    if (grads[i].defined()) optimizer.params()[i].set_grad(grads[i]);
  note_unscaled(&optimizer, finite);
  return finite;
}

bool LossScaler::step(Optimizer& optimizer) {
  if (stepped_.contains(&optimizer))
    throw_invalid("[loss_scaler] this optimizer has stepped already: call update() first");
  if (!finite_.contains(&optimizer)) unscale_(optimizer);
  if (finite_.at(&optimizer)) optimizer.step();
  stepped_.insert(&optimizer);
  return finite_.at(&optimizer);
}

void LossScaler::update() {
  if (overflow_) {
    scale_ *= options_.backoff_factor;
    good_steps_ = 0;
  } else if (++good_steps_ == options_.growth_interval) {
    scale_ *= options_.growth_factor;
    good_steps_ = 0;
  }
  overflow_ = false;
  finite_.clear();
  stepped_.clear();
}

StateDict LossScaler::state() const {
  return {{"scale", tensor(scale_, float64)}, {"good_steps", tensor(good_steps_, int64)}};
}

void LossScaler::load_state(const StateDict& state) {
  const double scale = saved_number("loss_scaler", state, "scale");
  const int64_t good = saved_count("loss_scaler", state, "good_steps");
  if (!(scale > 0) || !std::isfinite(scale))
    throw_invalid(fmt::format("[loss_scaler] state scale must be finite and above 0, got {}", scale));
  scale_ = scale;
  good_steps_ = good;
}

}  // namespace troupe::optim
