// Stages that do not keep what their forward pass saves: they run it again during the backward pass.
#include <catch2/catch.hpp>

#include "autograd/checkpoint.h"
#include "core/base/generator.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::nothing_left;

namespace {

// A stage of a pipeline, with dropout from a generator of its own.
struct Stage : Actor {
  Stage(int64_t seed, bool recompute) : recompute(recompute), fc(make(seed)), random(uint64_t(seed)) {}
  static nn::Linear make(int64_t seed) {
    Generator g(static_cast<uint64_t>(seed));
    return nn::Linear(16, 16, g);
  }
  Tensor body(const Tensor& x) {
    ++runs;
    contexts.push_back(int64_t(frame().context));
    return ops::dropout(ops::tanh(fc(x)), 0.25, random);
  }
  Tensor forward(Tensor x) {
    if (!recompute) return body(x);
    return autograd::checkpoint([this](const Tensor& t) { return body(t); }, x);
  }
  Tensors gradients() {
    Tensors out;
    for (const Tensor& p : fc.parameters()) out.push_back(autograd::context_gradient(p));
    return out;
  }
  int64_t count() { return runs; }
  std::vector<int64_t> seen() { return contexts; }
  bool recompute;
  nn::Linear fc;
  Generator random;
  int64_t runs = 0;
  std::vector<int64_t> contexts;
  static constexpr auto remote = methods<&Stage::forward, &Stage::gradients, &Stage::count, &Stage::seen>;
};

}  // namespace

TEST_CASE("a chain of stages that compute their forward again has the same bits, each in its context") {
  auto cluster = Cluster::in_process(4, hosting<Stage>());
  std::vector<RRef<Stage>> kept, again;
  for (int64_t i = 0; i < 3; ++i) {
    kept.push_back(cluster->spawn<Stage>("w" + std::to_string(i + 1), 40 + i, false));
    again.push_back(cluster->spawn<Stage>("w" + std::to_string(i + 1), 40 + i, true));
  }
  constexpr int kSteps = 3;
  std::vector<int64_t> ids;
  for (int step = 0; step < kSteps; ++step) {
    Tensors grads[2];
    for (const bool recompute : {false, true}) {
      Generator random(uint64_t(step) + 1);
      Tensor x = ops::randn({8, 16}, random);
      x.requires_grad_();
      autograd::Context context(*cluster);
      if (recompute) ids.insert(ids.end(), 2, int64_t(context.id()));
      Tensor y = x;
      for (auto& stage : recompute ? again : kept) y = stage.call<&Stage::forward>(y).get();
      Tensor loss = ops::mul(y, y).sum();
      {  // the backward pass runs the functions in the context of the pass, not in the caller's
        autograd::Context other(*cluster);
        context.backward(loss);
      }
      Tensors& out = grads[recompute];
      out = {loss.detach(), context.grad(x)};
      for (auto& stage : recompute ? again : kept)
        for (const Tensor& g : stage.call<&Stage::gradients>().get()) out.push_back(g);
      context.end().get();
    }
    REQUIRE(grads[0].size() == 2 + 3 * 2);
    for (size_t i = 0; i < grads[0].size(); ++i) {
      INFO("step " << step << ", gradient " << i);
      REQUIRE(grads[1][i].defined());
      CHECK(grads[0][i].to_vector<float>() == grads[1][i].to_vector<float>());
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    CHECK(kept[i].call<&Stage::count>().get() == kSteps);
    CHECK(again[i].call<&Stage::count>().get() == 2 * kSteps);
    CHECK(again[i].call<&Stage::seen>().get() == ids);
  }
  nothing_left(*cluster);
}
