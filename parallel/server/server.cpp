#include "parallel/server/server.h"

#include <fmt/format.h>

#include "autograd/distributed/context.h"
#include "core/codec/keep.h"
#include "core/graph/copy_on_write.h"
#include "ops/arithmetic.h"
#include "ops/inplace.h"
#include "ops/view.h"
#include "optim/clip.h"
#include "optim/gradient_norm.h"
#include "parallel/server/served_module.h"
#include "parallel/server/table.h"

namespace troupe::parallel {

Server::Server(Tensors start, ServerOptions options) : ServerBase(options) {
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
}

// ---- reading

Tensors Server::pulled(const Consistency::Reading& reading) const {
  Tensors out;
  const bool recorded = frame().context != 0 && grad_enabled();
  for (size_t i = 0; i < values_.size(); ++i) {
    if (!reading.previous && recorded) {
      out.push_back(values_[i]);
      continue;
    }
    Tensor value = (reading.previous ? previous_ : values_)[i].detach();
    if (recorded)
      value.set_grad_fn(values_[i].gradient_edge());  // gradients are the parameter's all the same
    out.push_back(std::move(value));
  }
  return out;
}

Task<Pulled> Server::pulling(TrainerId trainer, int64_t at_least, Compression how, Pushed pushed) {
  check_pull(how, "[server]");
  const Consistency::Reading reading = co_await this->reading(std::move(trainer), at_least);
  co_return Pulled{reading.stamp, pack(pulled(reading), how), pushed.late};
}

Task<Pulled> Server::pull(TrainerId trainer, int64_t at_least, Compression how) {
  return pulling(std::move(trainer), at_least, how, {});
}

Task<Pulled> Server::read(int64_t at_least) {
  co_await reached(at_least);
  const Consistency::Reading reading{{consistency().open_step(), consistency().version()}};
  co_return Pulled{reading.stamp, {pulled(reading), {}}};
}

// ---- pushes

void check_gradients(const std::string& trainer, const Tensors& gradients, const std::vector<Whole>& values,
                     bool counts) {
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

Pushed Server::take_gradients(const TrainerId& trainer, const VersionStamp& stamp, Tensors gradients,
                              double weight) {
  std::vector<Whole> values;
  for (const Tensor& value : values_) values.push_back({value.dtype(), value.shape()});
  check_gradients(trainer.name, gradients, values, weight != 0);
  if (weight == 0) gradients.assign(values_.size(), {});  // NaN times 0 must not stay
  for (Tensor& g : gradients)
    if (g.defined()) g = ops::to(g.detach(), compute_dtype(g.dtype()));
  return take(trainer, stamp, std::move(gradients), weight);
}

Pushed Server::push(TrainerId trainer, VersionStamp stamp, Packed packed, double weight) {
  if (packed.forms.empty()) return take_gradients(trainer, stamp, std::move(packed.parts), weight);
  std::vector<Whole> wholes;
  for (const Tensor& value : values_) wholes.push_back({compute_dtype(value.dtype()), value.shape()});
  return take_gradients(trainer, stamp, unpack(std::move(packed), wholes), weight);
}

Pushed Server::push_context(TrainerId trainer, VersionStamp stamp, double weight) {
  check_context_push(stamp, "[server]", "push_values()");
  Tensors gradients;
  for (const Tensor& value : values_) gradients.push_back(autograd::context_gradient(value));
  return take_gradients(trainer, stamp, std::move(gradients), weight);
}

std::vector<double> Server::gradient_sizes(bool largest) {
  Tensors gradients;
  for (const Tensor& value : values_) gradients.push_back(autograd::context_gradient(value));
  return optim::gradient_sizes(gradients, largest);
}

void Server::scale_gradients(double factor) {
  for (const Tensor& value : values_) {
    Tensor grad = autograd::take_context_gradient(value);
    if (grad.defined()) autograd::exchange_context_gradient(value, optim::clipped(std::move(grad), factor));
  }
}

Task<Pulled> Server::push_pull(TrainerId trainer, VersionStamp stamp, Packed gradients, double weight,
                               Compression how) {
  const Pushed pushed = push(trainer, stamp, std::move(gradients), weight);
  return pulling(std::move(trainer), 0, how, pushed);
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
    if (sums[i].defined()) replace_if_held(values_[i]);
  optimizer.step(sums, scale);
}

internal::actors::TypeRegistry server_actors() { return hosting<Server, Table, ServedModule>(); }

}  // namespace troupe::parallel
