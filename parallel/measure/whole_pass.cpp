#include "parallel/measure/whole_pass.h"

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/split_pass.h"
#include "core/base/clock.h"
#include "core/memory/backend.h"
#include "core/tensor/creation.h"
#include "nn/make.h"
#include "optim/adam.h"
#include "parallel/measure/model_layers.h"
#include "parallel/pipeline/stage/stage_sums.h"

namespace troupe::internal::parallel {
namespace {

constexpr double kSeconds = 0.5;                        // some turns of whoever limits a process's time
constexpr double kMostHeld = 2.0 * (int64_t{1} << 30);  // bytes
constexpr double kWithOptimizer = 4;  // a parameter, its gradient, and two numbers of Adam's state

using troupe::parallel::LayerCost;
using Layers = std::vector<std::shared_ptr<nn::Layer>>;

void pass(const Layers& layers, const Tensor& sample, bool loss, troupe::parallel::StageSums& sums) {
  Tensor y = sample;
  for (const auto& layer : layers) y = (*layer)(y);
  if (loss && SomeLoss::has(y)) y = SomeLoss()(y);
  if (!y.requires_grad()) return;
  autograd::SplitPass back({y}, {});
  (void)back.inputs({ones_like(y)});
  back.rest(sums);
}

}  // namespace

int64_t held_layers(const std::vector<LayerCost>& layers, double rows) {
  double bytes = 0;
  int64_t count = 0;
  for (const LayerCost& l : layers) {
    bytes += kWithOptimizer * l.parameters + l.saved * rows;
    if (count && bytes > kMostHeld) break;
    ++count;
  }
  return count;
}

WholePass time_whole_pass(const ValueList& specs, const Tensor& sample, bool loss) {
  Layers layers;
  Tensors parameters;
  for (const Value& spec : specs) {
    layers.push_back(nn::make(spec));
    layers.back()->to(sample.device());
    for (const Tensor& p : layers.back()->parameters()) parameters.push_back(p);
  }
  std::optional<optim::Adam> adam;
  if (!parameters.empty()) adam.emplace(parameters, optim::AdamOptions());
  WholePass took;
  const auto watch = backend_of(sample.device()).clock(sample.device());
  double passing = 0, stepping = 0;
  int64_t passes = -1;  // the first makes the state
  for (const TimePoint start = Clock::system().now();
       passes < 1 || std::chrono::duration<double>(Clock::system().now() - start).count() < kSeconds;
       ++passes) {
    troupe::parallel::StageSums sums;
    (void)watch->lap();
    pass(layers, sample, loss, sums);
    const double passed = watch->lap();
    Tensors grads;
    for (const Tensor& p : parameters)
      grads.push_back(sums.of(p).defined() ? sums.take(p) : zeros(p.shape(), p.options()));
    (void)watch->lap();
    if (adam) adam->step(grads);
    const double stepped = watch->lap();
    if (passes >= 0) passing += passed, stepping += stepped;
  }
  took.seconds = passing / static_cast<double>(passes);
  const double bytes = bytes_of(parameters);
  if (!adam) return took;
  for (const auto& [name, t] : adam->state())
    if (t.dim() > 0) took.state += static_cast<double>(t.nbytes()) / bytes;
  took.optimizer = stepping / static_cast<double>(passes) / bytes;
  return took;
}

}  // namespace troupe::internal::parallel
