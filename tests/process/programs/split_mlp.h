// A run of trajectories.json with its layers on three workers, told as lines of text: equal lines, equal
// bits.
#pragma once
#include <functional>
#include <string>

#include "tests/process/programs/stage.h"
#include "tests/support/trajectory.h"

namespace troupe::testing {

using Say = std::function<void(const std::string&)>;

/// FNV-1a of the elements' bits (float32).
inline std::string bits_of(const Tensor& t) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const float x : t.to_vector<float>())
    for (size_t i = 0; i < sizeof x; ++i)
      hash = (hash ^ reinterpret_cast<const unsigned char*>(&x)[i]) * 0x100000001b3;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

/// "loss 7 0x1.23p+1"
inline std::string loss_line(int step, double loss) {
  char text[64];
  std::snprintf(text, sizeof text, "loss %d %a", step, loss);
  return text;
}

inline void say_tensors(const Say& say, const char* what, const Run& run, const std::vector<Tensor>& all) {
  for (size_t i = 0; i < all.size(); ++i)
    say(std::string(what) + " " + run.parameters[i].name + " " + bits_of(all[i]));
}

/// Layer i on worker i+1 (of n: modulo n, so that of three the last one is beside the driver), the loss at
/// the driver. Says the loss of every step, the gradients of the first, and the parameters at the end.
inline void train_split(Cluster& cluster, const Run& run, int steps, const Say& say) {
  const auto names = cluster.workers();
  std::vector<RRef<Stage>> stages;
  for (int i = 0; i < 3; ++i)
    stages.push_back(cluster.spawn<Stage>(names[static_cast<size_t>(i + 1) % names.size()],
                                          initial(run.parameters[static_cast<size_t>(2 * i)], 2 * i),
                                          initial(run.parameters[static_cast<size_t>(2 * i + 1)], 2 * i + 1),
                                          i == 2));
  optim::DistributedOptimizer optimizer({stages[0], stages[1], stages[2]}, run.optimizer, run.options);
  auto collect = [&]<auto M>() {
    Tensors all;
    for (const auto& s : stages)
      for (const Tensor& t : s.call<M>().get()) all.push_back(t);
    return all;
  };
  for (int step = 0; step < steps; ++step) {
    const auto [x, y] = batch(run, step);
    autograd::Context context(cluster);
    const auto hidden = stages[1].call<&Stage::forward>(stages[0].call<&Stage::forward>(x));
    const Tensor loss = ops::cross_entropy(stages[2].call<&Stage::forward>(hidden).get(), y);
    say(loss_line(step, loss.item()));
    context.backward(loss);
    if (step == 0) say_tensors(say, "gradient", run, collect.operator()<&Stage::gradients>());
    optimizer.step(context);
  }
  say_tensors(say, "parameter", run, collect.operator()<&Stage::values>());
}

}  // namespace troupe::testing
