// Small stages for tests of pipelines, and the same layers as one model.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "autograd/add_gradient.h"
#include "autograd/hooks.h"
#include "parallel/pipeline/pipeline.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

namespace troupe::testing {

inline constexpr int64_t kWidth = 6;

/// Values that differ from element to element, the same every time.
inline Tensor wave(const Shape& shape, double start) {
  const Tensor t = empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] = static_cast<float>(0.5 * std::sin(start + 0.7 * static_cast<double>(i)));
  return t;
}

/// tanh(x wT + b), whose initial values depend on `number`.
struct Dense : nn::Layer {
  nn::Linear linear{kWidth, kWidth};
  explicit Dense(int64_t number) {
    linear.load_state_dict({{"weight", wave({kWidth, kWidth}, static_cast<double>(number))},
                            {"bias", wave({kWidth}, 10.0 + static_cast<double>(number))}});
  }
  Tensor forward(const Tensor& x) override { return ops::tanh(linear(x.to(linear.weight.device()))); }
  void members(nn::Members& m) override { m("linear", linear); }
};

/// A stage around a Dense.
struct Block : nn::ModuleActor<Dense> {
  explicit Block(int64_t number) : ModuleActor(number) {}
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor y, Tensor target) { return mse_loss(y, target.to(y.device())); }
  /// Fails in the `fatal`-th call from now.
  Tensor fails(Tensor x) {
    if (--left == 0) throw std::runtime_error("out of paper");
    return net(x);
  }
  void fail_in(int64_t calls) { left = calls; }
  Tensor nan_loss(Tensor y, Tensor) { return mul(sum(y), std::nan("")); }
  Task<Tensor> waits(Tensor x) {
    co_await Future<void>::ready({});
    co_return net(x);
  }
  Task<Tensor> never(Tensor x) {
    co_await opened.future();
    co_return x;
  }
  /// Through another block first.
  Task<Tensor> asks(Tensor x) {
    Tensor y = co_await other.call<&Block::forward>(x);
    co_return net(add(x, y));
  }
  void ask(RRef<Block> block) { other = block; }
  /// Halves the gradient of what it receives, by a hook that it keeps.
  Tensor hooked(Tensor x) {
    autograd::register_hook(x, [this](const Tensor& g) { return ++ran, mul(g, 0.5); }).keep();
    return net(x);
  }
  /// The same with the gradient of its weight.
  void hook_weight() {
    autograd::register_hook(net.linear.weight, [this](const Tensor& g) {
      return ++weight_ran, mul(g, 0.5);
    }).keep();
  }
  /// How often these ran since the last time.
  std::vector<int64_t> times() { return {std::exchange(ran, 0), std::exchange(weight_ran, 0)}; }
  Tensor added(Tensor x, Tensor y) { return net(add(x, y)); }
  std::vector<Tensor> both(Tensor x) { return {net(x), x}; }
  int64_t left = 0, ran = 0, weight_ran = 0;
  Promise<void> opened;
  RRef<Block> other;
  static constexpr auto remote =
      methods<&Block::forward, &Block::loss, &Block::fails, &Block::fail_in, &Block::nan_loss, &Block::waits,
              &Block::never, &Block::asks, &Block::ask, &Block::added, &Block::both, &Block::hooked,
              &Block::hook_weight, &Block::times>;
};

/// Gradients of the whole model on the whole batch, and its loss.
struct WholeModel {
  std::vector<std::unique_ptr<Dense>> layers;
  explicit WholeModel(int count) {
    for (int i = 0; i < count; ++i) layers.push_back(std::make_unique<Dense>(i));
  }
  Tensor forward(Tensor x) {
    for (auto& layer : layers) x = (*layer)(x);
    return x;
  }
  double backward(const Tensor& x, const Tensor& target) {
    for (auto& layer : layers) layer->zero_grad();
    const Tensor loss = mse_loss(forward(x), target);
    autograd::backward(loss);
    return loss.item();
  }
};

/// `stages` actors over the workers, from the second on.
template <class A = Block>
struct Fixture {
  std::unique_ptr<Cluster> cluster;
  std::vector<RRef<A>> blocks;
  explicit Fixture(int stages, int workers = 3) : cluster(Cluster::in_process(workers, hosting<A>())) {
    for (int s = 0; s < stages; ++s)
      blocks.push_back(cluster->template spawn<A>((1 + s) % workers, int64_t{s}));
  }
  std::vector<parallel::Stage> stages(bool loss = true) const {
    std::vector<parallel::Stage> out;
    for (const auto& b : blocks) out.push_back(parallel::stage<&A::forward>(b));
    if (loss) out.back() = out.back().template with_loss<&A::loss>();
    return out;
  }
  /// One step, whose gradients move the parameters by 1; then they are put back. Gives what they moved by.
  double step(parallel::Pipeline& pipeline, const Tensor& x, const Tensor& y, std::vector<Tensors>* grads,
              const parallel::StepOptions& options = {}) {
    std::vector<AnyRef> actors(blocks.begin(), blocks.end());
    optim::Distributed<optim::SGD> sgd(actors, {.lr = 1.0});
    std::vector<std::map<std::string, Tensor>> before;
    for (const auto& b : blocks) before.push_back(nn::remote_state_dict(b).get());
    autograd::Context context(*cluster);
    const parallel::StepResult result = pipeline.step(Value(x), Value(y), options);
    sgd.step(context);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto after = nn::remote_state_dict(blocks[i]).get();
      Tensors moved;
      for (const auto& [name, value] : before[i]) moved.push_back(sub(value, after.at(name)));
      if (grads) grads->push_back(std::move(moved));
      nn::load_remote_state_dict(blocks[i], before[i]).get();
    }
    return result.loss;
  }
};

inline void compare(const std::vector<Tensors>& grads, WholeModel& whole) {
  REQUIRE(grads.size() == whole.layers.size());
  for (size_t i = 0; i < grads.size(); ++i) {
    INFO("stage " << i);
    CHECK(difference(grads[i][0], whole.layers[i]->linear.bias.grad(), 1e-4, 1e-5) == "");
    CHECK(difference(grads[i][1], whole.layers[i]->linear.weight.grad(), 1e-4, 1e-5) == "");
  }
}

}  // namespace troupe::testing
