// A run in one process follows PyTorch's losses step by step.
#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/trajectory.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

struct Mlp : nn::Layer {
  explicit Mlp(DType dtype)
      : fc0(784, 128, true, dtype), fc1(128, 64, true, dtype), fc2(64, 10, true, dtype) {}
  nn::Linear fc0, fc1, fc2;
  Tensor forward(const Tensor& x) override { return fc2(ops::relu(fc1(ops::relu(fc0(x))))); }
  void members(nn::Members& m) override { m("fc0", fc0), m("fc1", fc1), m("fc2", fc2); }
};

// The largest distance from the run's losses, and the step where it is.
std::pair<double, int> follow(const Run& run, DType dtype) {
  Mlp model(dtype);
  std::map<std::string, Tensor> start;
  for (size_t i = 0; i < run.parameters.size(); ++i)
    start[run.parameters[i].name] = initial(run.parameters[i], static_cast<int>(i));
  model.load_state_dict(start);
  const auto optimizer = optim::make(run.optimizer, run.options, model.parameters());
  std::pair<double, int> worst{-1, 0};
  for (int step = 0; step < static_cast<int>(run.losses.size()); ++step) {
    const auto [x, y] = batch(run, step);
    optimizer->zero_grad();
    const Tensor loss = ops::cross_entropy(model(x.to(dtype)), y);
    const double distance = std::abs(loss.item() - run.losses[static_cast<size_t>(step)]);
    if (!(distance <= worst.first)) worst = {distance, step};
    if (std::isnan(distance)) break;
    autograd::backward(loss);
    optimizer->step();
  }
  return worst;
}

// float64 has no roundings to speak of, so it shows whether the mathematics is the same. PyTorch's own
// float32 run on mnist at a rate of 0.1 leaves the float64 one by 9e-4, once a hidden unit changes its sign
// in one of them only.
double bound(const Run& run, DType dtype) {
  return dtype == float64 && tolerance(run) <= 1e-4 ? 1e-5 : tolerance(run);
}

void follow_all(const std::string& data, size_t expected, DType dtype) {
  size_t found = 0;
  for (const Run& run : mlp_runs()) {
    if (run.data != data) continue;
    ++found;
    REQUIRE(run.losses.size() == 120);
    if (!has_data(run)) continue;
    const auto [distance, step] = follow(run, dtype);
    INFO(run.str() << ": largest difference at step " << step);
    CHECK(distance <= bound(run, dtype));
  }
  CHECK(found == expected);
}

}  // namespace

TEST_CASE("the mlp in one process follows PyTorch's losses on generated data", "[trajectory][oracle]") {
  follow_all("generated", 2, float32);
}

TEST_CASE("the mlp in float64 follows PyTorch's losses on generated data", "[trajectory][oracle]") {
  follow_all("generated", 2, float64);
}

TEST_CASE("the mlp in one process follows PyTorch's losses on mnist", "[trajectory][oracle]") {
  follow_all("mnist", 3, float32);
}

TEST_CASE("the mlp in float64 follows PyTorch's losses on mnist", "[trajectory][oracle]") {
  follow_all("mnist", 3, float64);
}
