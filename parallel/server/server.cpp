#include "parallel/server/server.h"

#include <fmt/format.h>

#include "autograd/distributed/context.h"
#include "autograd/distributed/optim/context_gradients.h"
#include "core/codec/keep.h"
#include "core/graph/copy_on_write.h"
#include "ops/arithmetic.h"
#include "ops/inplace.h"
#include "ops/view.h"
#include "optim/clip.h"
#include "optim/gradient_norm.h"
#include "parallel/server/table.h"

namespace troupe::parallel {

Server::Server(Tensors start, ServerOptions options, ServerPair pair) : ServerBase(options, std::move(pair)) {
  for (size_t i = 0; i < start.size(); ++i) {
    if (!start[i].defined() || !is_floating(start[i].dtype()))
      throw_invalid(fmt::format("[server] value {} is {}; expected a floating tensor", i,
                                start[i].defined() ? start[i].summary() : "undefined"));
    values_.push_back(start[i].clone_data().requires_grad_());
  }
  use(optim::make(options.optimizer, options.options, values_));
}

// ---- checkpoints

ValueMap Server::saved() const {
  return {{"values", internal::to_value(values_)}, {"previous", internal::to_value(previous_)}};
}

void Server::load(ValueMap saved) {
  auto values = internal::from_value<Tensors>(std::move(saved.at("values")));
  if (values.size() != values_.size())
    throw_invalid(
        fmt::format("[server] the checkpoint has {} values; here are {}", values.size(), values_.size()));
  for (size_t i = 0; i < values.size(); ++i) internal::restore(values_[i], std::move(values[i]));
  previous_ = internal::from_value<Tensors>(std::move(saved.at("previous")));
  recorded_.clear();
}

// ---- reading

// Each trainer has gradients of its own, also of several in one context.
const Tensors& Server::leaves_of(const std::string& trainer) {
  Recorded& recorded = recorded_[trainer];
  if (std::exchange(recorded.context, frame().context) != frame().context) recorded.leaves.clear();
  if (recorded.leaves.empty())
    for (const Tensor& v : values_) recorded.leaves.push_back(leaf_without_elements(v.shape(), v.options()));
  return recorded.leaves;
}

Tensors Server::pulled(const Consistency::Reading& reading) const {
  Tensors out;
  for (const Tensor& value : reading.previous ? previous_ : values_) out.push_back(value.detach());
  return out;
}

Task<Pulled> Server::pulling(TrainerId trainer, int64_t at_least, Compression how, Pushed pushed) {
  check_pull(how, "[server]");
  const Consistency::Reading reading = co_await this->reading(trainer, at_least);
  const Tensors values = pulled(reading);
  if (frame().context != 0 && grad_enabled()) {
    const Tensors& leaves = leaves_of(trainer.name);
    for (size_t i = 0; i < values.size(); ++i) values[i].set_grad_fn(leaves[i].gradient_edge());
  }
  if (has_backup()) {
    const Task<void> everywhere = followed();
    co_await everywhere;
  }
  co_return Pulled{reading.stamp, pack(values, how), pushed.late};
}

Task<Pulled> Server::pull(TrainerId trainer, int64_t at_least, Compression how) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  const Task<Pulled> values = pulling(std::move(trainer), at_least, how, {});
  co_return co_await values;
}

Task<Pulled> Server::read(int64_t at_least) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  co_await reached(at_least);
  const Consistency::Reading reading{{consistency().open_step(), consistency().version()}};
  Pulled out{reading.stamp, {pulled(reading), {}}};
  if (has_backup()) {
    const Task<void> everywhere = followed();
    co_await everywhere;
  }
  co_return out;
}

// ---- pushes

}  // namespace troupe::parallel

namespace troupe::internal::parallel {

void check_gradients(const std::string& trainer, const Tensors& gradients,
                     const std::vector<troupe::parallel::Whole>& values, bool counts) {
  const auto refuse = [&](const std::string& why) {
    throw_invalid(fmt::format("[server] trainer \"{}\" pushes {}", trainer, why));
  };
  if (gradients.size() != values.size())
    refuse(fmt::format("{} gradients; expected {}", gradients.size(), values.size()));
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Tensor& g = gradients[i];
    if (!g.defined()) continue;
    const auto& [dtype, shape] = values[i];
    if (g.shape() != shape || (g.dtype() != dtype && g.dtype() != compute_dtype(dtype)))
      refuse(fmt::format("{} as gradient {}; expected {} {}", g.summary(), i, name(dtype), shape.str()));
  }
  if (!counts) return;
  const std::vector<double> finite = optim::sizes_of(gradients, optim::Size::finite);
  for (size_t i = 0; i < finite.size(); ++i)
    if (finite[i] == 0)
      refuse(
          fmt::format("a gradient {} with NaN or infinite elements; the step is open: push another one, or "
                      "none with weight 0",
                      i));
}

}  // namespace troupe::internal::parallel

namespace troupe::parallel {

void Server::check_tensors(const TrainerId& trainer, const Tensors& gradients, bool counts) const {
  std::vector<Whole> values;
  for (const Tensor& value : values_) values.push_back({value.dtype(), value.shape()});
  internal::parallel::check_gradients(trainer.name, gradients, values, counts);
}

Pushed Server::take_gradients(const TrainerId& trainer, const VersionStamp& stamp, Tensors gradients,
                              double weight) {
  check_tensors(trainer, gradients, weight != 0);
  if (weight == 0) gradients.assign(values_.size(), {});  // NaN times 0 must not stay
  for (Tensor& g : gradients)
    if (g.defined()) g = ops::to(g.detach(), compute_dtype(g.dtype()));
  return take(trainer, stamp, std::move(gradients), weight);
}

Pushed Server::take_packed(const TrainerId& trainer, const VersionStamp& stamp, Packed packed,
                           double weight) {
  if (const auto before = done_before(trainer)) return *before;
  if (packed.forms.empty()) return take_gradients(trainer, stamp, std::move(packed.parts), weight);
  std::vector<Whole> wholes;
  for (const Tensor& value : values_) wholes.push_back({compute_dtype(value.dtype()), value.shape()});
  return take_gradients(trainer, stamp, unpack(std::move(packed), wholes), weight);
}

Task<Pushed> Server::push(TrainerId trainer, VersionStamp stamp, Packed packed, double weight) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  const Pushed pushed = take_packed(trainer, stamp, std::move(packed), weight);
  if (has_backup()) {
    const Task<void> everywhere = followed();
    co_await everywhere;
  }
  co_return pushed;
}

Tensors Server::recorded_gradients(const TrainerId& trainer, double weight) const {
  const auto at = recorded_.find(trainer.name);
  const bool pulled = at != recorded_.end() && at->second.context == frame().context;
  if (!pulled && weight != 0) refuse_context(trainer, "[server]");
  Tensors gradients(values_.size());
  for (size_t i = 0; pulled && i < gradients.size(); ++i)
    gradients[i] = autograd::context_gradient(at->second.leaves[i]);
  return gradients;
}

Task<std::vector<double>> Server::check_push(TrainerId trainer, VersionStamp stamp, double weight,
                                             bool scaled) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  check_context_push(stamp, "[server]", "push_values()");
  const Tensors gradients = recorded_gradients(trainer, weight);
  check_tensors(trainer, gradients, weight != 0 && !scaled);
  check_take(trainer, stamp, weight);
  if (weight == 0 || !scaled) co_return std::vector<double>();
  co_return optim::gradient_sizes(gradients, true);
}

Task<Pushed> Server::push_context(TrainerId trainer, VersionStamp stamp, double weight, double factor) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  check_context_push(stamp, "[server]", "push_values()");
  std::optional<Pushed> pushed = done_before(trainer);
  if (!pushed) {
    Tensors gradients = recorded_gradients(trainer, weight);
    for (Tensor& g : gradients)
      if (factor != 1 && g.defined()) g = optim::scaled(g, factor);
    pushed = take_gradients(trainer, stamp, std::move(gradients), weight);
    recorded_.erase(trainer.name);
  }
  if (has_backup()) {
    const Task<void> everywhere = followed();
    co_await everywhere;
  }
  co_return *pushed;
}

std::vector<double> Server::gradient_sizes(bool largest) {
  Tensors gradients;
  for (const auto& [trainer, recorded] : recorded_)
    if (recorded.context == frame().context)
      for (const Tensor& leaf : recorded.leaves) gradients.push_back(autograd::context_gradient(leaf));
  return optim::gradient_sizes(gradients, largest);
}

void Server::scale_gradients(double factor, bool wide) {
  for (const auto& [trainer, recorded] : recorded_)
    if (recorded.context == frame().context) optim::scale_gradients(recorded.leaves, factor, wide);
}

Task<Pulled> Server::push_pull(TrainerId trainer, VersionStamp stamp, Packed gradients, double weight,
                               Compression how) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  const Pushed pushed = take_packed(trainer, stamp, std::move(gradients), weight);
  const Task<Pulled> values = pulling(std::move(trainer), 0, how, pushed);
  co_return co_await values;
}

void Server::update(optim::Optimizer& optimizer, const std::vector<Contribution>& contributions) {
  Tensors sums(values_.size());
  const double scale = contributions.size() == 1 ? contributions[0].factor : 1;  // in the step itself
  for (size_t i = 0; i < sums.size(); ++i) {
    Tensor& sum = sums[i];
    for (const Contribution& contribution : contributions) {
      const Tensor& part = contribution.what[i];
      if (!part.defined()) continue;
      if (sum.defined())
        ops::add_(sum, part, contribution.factor);
      else
        sum = contributions.size() == 1 ? part : ops::mul(part, contribution.factor);
    }
  }
  previous_.clear();
  if (consistency().policy().kind == ServerPolicy::Kind::delayed)
    for (const Tensor& value : values_) previous_.push_back(value.detach());
  for (size_t i = 0; i < sums.size(); ++i)
    if (sums[i].defined()) internal::replace_if_held(values_[i]);
  optimizer.step(sums, scale);
}

}  // namespace troupe::parallel
