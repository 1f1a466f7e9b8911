#include "parallel/loss_here.h"

#include <fmt/format.h>

#include <cmath>

#include "autograd/dist/context.h"
#include "parallel/runner.h"

namespace troupe::parallel {

void LossHere::begin(uint64_t step, Function function, std::vector<Value> targets,
                     std::vector<double> weights, AnyRef last) {
  step_ = step;
  function_ = std::move(function);
  targets_ = std::move(targets);
  weights_ = std::move(weights);
  last_ = std::move(last);
  losses_.assign(weights_.size(), 0);
}

Task<void> LossHere::receive(uint64_t step, int64_t stage, int64_t micro_batch, bool, Value output, int64_t) {
  if (step != step_) co_return;
  const auto index = static_cast<size_t>(micro_batch);
  const std::string what = fmt::format("[pipeline] the loss of micro-batch {} at the caller", micro_batch);
  Tensors leaves;
  visit_tensors(output, [&](Tensor& t) {
    if (!t.defined() || !is_floating(t.dtype())) return;
    t = t.detach().set_requires_grad();
    leaves.push_back(t);
  });
  const Tensor loss = function_(output, targets_.at(index));
  if (!loss.defined() || loss.numel() != 1)
    throw_invalid(what + " is " + (loss.defined() ? loss.str() : "undefined") +
                  ": expected a tensor of one element");
  losses_.at(index) = loss.item();
  if (!std::isfinite(loss.item()))
    throw_error(ErrorKind::failed,
                fmt::format("{} is {}: no gradients were computed for it", what, loss.item()));
  const AnyRef last = last_;
  ValueList grads(leaves.size());
  if (loss.requires_grad()) {
    co_await autograd::context_backward(loss, Tensor::full(loss.shape(), weights_.at(index), loss.dtype()));
    for (size_t i = 0; i < leaves.size(); ++i)
      grads[i] = actors::to_value(autograd::exchange_context_gradient(leaves[i], {}));
  }
  const int64_t now = static_cast<actors::Worker*>(frame().worker)->clock().now().time_since_epoch().count();
  ValueList answer = Runner::message(step, stage, micro_batch, false, Value(std::move(grads)), now);
  co_await last.call("receive", std::move(answer));
}

}  // namespace troupe::parallel
