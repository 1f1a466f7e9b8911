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
#include "parallel/pipeline/stage/stage_sums.h"

namespace troupe::internal::parallel {
namespace {

constexpr double kSeconds = 0.5;      // some turns of whoever limits a process's time
constexpr double kWithOptimizer = 4;  // a parameter, its gradient, and two numbers of Adam's state

using Layers = std::vector<std::shared_ptr<nn::Layer>>;

double bytes_of(const Tensors& tensors) {
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += static_cast<double>(t.nbytes());
  return bytes;
}

// The first ones, until they and what they save take so much.
Layers held_layers(const ValueList& specs, const Tensor& sample, double most, Tensors& parameters) {
  const auto in_use = [&] { return static_cast<double>(allocator_stats(sample.device()).in_use); };
  const double before = in_use();
  Layers layers;
  Tensor x = sample;
  for (const Value& spec : specs) {
    layers.push_back(nn::make(spec));
    layers.back()->to(sample.device());
    x = (*layers.back())(x);
    for (const Tensor& p : layers.back()->parameters()) parameters.push_back(p);
    if (in_use() - before + (kWithOptimizer - 1) * bytes_of(parameters) > most) break;
  }
  return layers;
}

void pass(const Layers& layers, const Tensor& sample, troupe::parallel::StageSums& sums) {
  Tensor y = sample;
  for (const auto& layer : layers) y = (*layer)(y);
  if (!y.requires_grad()) return;
  autograd::SplitPass back({y}, {});
  (void)back.inputs({ones_like(y)});
  back.rest(sums);
}

}  // namespace

WholePass time_whole_pass(const ValueList& specs, const Tensor& sample, double most_held) {
  Tensors parameters;
  const Layers layers = held_layers(specs, sample, most_held, parameters);
  std::optional<optim::Adam> adam;
  if (!parameters.empty()) adam.emplace(parameters, optim::AdamOptions());
  WholePass took{.layers = static_cast<int64_t>(layers.size())};
  const auto watch = backend_of(sample.device()).clock(sample.device());
  double passing = 0, stepping = 0;
  int64_t passes = -1;  // the first makes the state
  for (const TimePoint start = Clock::system().now();
       passes < 1 || std::chrono::duration<double>(Clock::system().now() - start).count() < kSeconds;
       ++passes) {
    troupe::parallel::StageSums sums;
    (void)watch->lap();
    pass(layers, sample, sums);
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
