#include "parallel/pipeline/driver_loss.h"

#include <fmt/format.h>

#include <cmath>

#include "autograd/distributed/context.h"
#include "core/tensor/creation.h"
#include "parallel/pipeline/runner.h"

namespace troupe::parallel {

void DriverLoss::begin(uint64_t step, Function function, std::vector<Value> targets,
                       std::vector<double> weights, double loss_scale, AnyRef last) {
  std::erase_if(steps_, [&](const auto& entry) { return entry.first + 1 < step; });  // that failed
  Step& entry = steps_[step];
  entry.losses.assign(weights.size(), 0);
  entry.function = std::move(function);
  entry.targets = std::move(targets);
  entry.weights = std::move(weights);
  entry.loss_scale = loss_scale;
  entry.last = std::move(last);
}

std::vector<double> DriverLoss::end(uint64_t step) {
  auto entry = steps_.extract(step);
  return entry.empty() ? std::vector<double>() : std::move(entry.mapped().losses);
}

Task<void> DriverLoss::receive(uint64_t step, SkipLink from, int64_t micro_batch, bool, Value output,
                               int64_t) {
  const auto found = steps_.find(step);
  if (found == steps_.end()) co_return;
  Step& of = found->second;
  const auto index = static_cast<size_t>(micro_batch);
  const std::string what = fmt::format("[pipeline] the loss of micro-batch {} at the caller", micro_batch);
  Tensors leaves;
  visit_tensors(output, [&](Tensor& t) {
    if (!t.defined() || !is_floating(t.dtype())) return;
    t = t.detach().requires_grad_();
    leaves.push_back(t);
  });
  const Tensor loss = of.function(output, of.targets.at(index));
  if (!loss.defined() || loss.numel() != 1)
    throw_invalid(what + " is " + (loss.defined() ? loss.summary() : "undefined") +
                  ": expected a tensor of one element");
  of.losses.at(index) = loss.item();
  const bool counts = of.weights.at(index) > 0;  // else it has no gradients, whatever it is
  if (counts && !std::isfinite(loss.item()) && of.loss_scale == 0)
    throw_error(ErrorKind::failed,
                fmt::format("{} is {}: no gradients were computed for it", what, loss.item()));
  const AnyRef last = of.last;  // the step may end meanwhile
  ValueList grads(leaves.size());
  if (counts && loss.requires_grad()) {
    const Tensor weight = full_like(loss, of.weights.at(index) * (of.loss_scale > 0 ? of.loss_scale : 1));
    co_await autograd::context_backward(loss, weight);
    for (size_t i = 0; i < leaves.size(); ++i)
      grads[i] = internal::to_value(autograd::exchange_context_gradient(leaves[i], {}));
  }
  const int64_t now = frame().worker->clock().now().time_since_epoch().count();
  co_await kReceive.ask(last, step, from, micro_batch, false, Value(std::move(grads)), now);
}

}  // namespace troupe::parallel
