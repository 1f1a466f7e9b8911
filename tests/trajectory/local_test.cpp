// A run in one process follows PyTorch's losses step by step.
#include <catch2/catch.hpp>
#include <deque>

#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "nn/nn.h"
#include "ops/dispatch/threads.h"
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

// Width 64, 4 heads, 4 pre-norm blocks, context 64: ids [batch, 64] -> logits [batch, 64, vocabulary].
struct Transformer : nn::Layer {
  Transformer(int64_t vocabulary, DType dtype, bool recompute)
      : norm(64, {.dtype = dtype}), head(64, vocabulary, true, dtype), recompute(recompute) {
    tok = zeros({vocabulary, 64}, dtype).requires_grad_();
    pos = zeros({64, 64}, dtype).requires_grad_();
    const nn::TransformerEncoderLayerOptions gpt{.dim_feedforward = 256,
                                                 .dropout = 0,
                                                 .activation = "gelu",
                                                 .norm_first = true,
                                                 .causal = true,
                                                 .dtype = dtype};
    for (int i = 0; i < 4; ++i) blocks.emplace_back(64, 4, gpt);
  }
  Tensor forward(const Tensor& ids) override {
    Tensor x = ops::embedding(ids, tok) + pos;
    for (auto& block : blocks)
      x = recompute ? autograd::checkpoint([&block](const Tensor& in) { return block(in); }, x) : block(x);
    return head(norm(x));
  }
  void members(nn::Members& m) override {
    m("tok", tok), m("pos", pos);
    for (size_t i = 0; i < blocks.size(); ++i) m("block" + std::to_string(i), blocks[i]);
    m("norm", norm), m("head", head);
  }
  Tensor tok, pos;
  std::deque<nn::TransformerEncoderLayer> blocks;
  nn::LayerNorm norm;
  nn::Linear head;
  bool recompute;
};

std::unique_ptr<nn::Layer> make_model(const Run& run, DType dtype, bool recompute) {
  std::unique_ptr<nn::Layer> model;
  if (run.model == "mlp")
    model = std::make_unique<Mlp>(dtype);
  else
    model = std::make_unique<Transformer>(run.parameters[0].shape[0], dtype, recompute);
  std::map<std::string, Tensor> start;
  for (size_t i = 0; i < run.parameters.size(); ++i)
    start[run.parameters[i].name] = initial(run.parameters[i], static_cast<int>(i));
  model->load_state_dict(start);
  return model;
}

Tensor loss_of(const Run& run, nn::Layer& model, int step, DType dtype) {
  const auto [x, y] = batch(run, step);
  if (run.model == "mlp") return ops::cross_entropy(model(x.to(dtype)), y);
  const Tensor logits = model(x);
  return ops::cross_entropy(ops::reshape(logits, {-1, logits.size(2)}), ops::reshape(y, {-1}));
}

// What the run came to: every loss, and the final parameters.
struct Trained {
  std::vector<double> losses;
  std::map<std::string, Tensor> parameters;
};

Trained train(const Run& run, DType dtype, bool recompute, int steps) {
  const auto model = make_model(run, dtype, recompute);
  const auto optimizer = optim::make(run.optimizer, run.options, model->parameters());
  Trained result;
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    const Tensor loss = loss_of(run, *model, step, dtype);
    result.losses.push_back(loss.item());
    autograd::backward(loss);
    optimizer->step();
  }
  result.parameters = model->state_dict();
  return result;
}

void follow_all(const std::vector<Run>& runs, DType dtype) {
  for (const Run& run : runs) {
    REQUIRE(run.losses.size() >= 20);
    REQUIRE(run.losses64.size() == run.losses.size());
    const auto losses = train(run, dtype, false, static_cast<int>(run.losses.size())).losses;
    const auto [distance, step] = farthest(run, losses, dtype);
    INFO(run.str() << ": largest difference at step " << step);
    CHECK(distance <= tolerance(run, dtype));
  }
}

}  // namespace

TEST_CASE("the mlp in one process follows PyTorch's losses on generated data", "[trajectory][oracle]") {
  follow_all(mlp_runs("generated"), float32);
}

TEST_CASE("the mlp in float64 follows PyTorch's losses on generated data", "[trajectory][oracle]") {
  follow_all(mlp_runs("generated"), float64);
}

TEST_CASE("the mlp in one process follows PyTorch's losses on mnist", "[trajectory][oracle]") {
  if (!has_data("mnist")) return;
  follow_all(mlp_runs("mnist"), float32);
}

TEST_CASE("the mlp in float64 follows PyTorch's losses on mnist", "[trajectory][oracle]") {
  if (!has_data("mnist")) return;
  follow_all(mlp_runs("mnist"), float64);
}

TEST_CASE("the transformer in one process follows PyTorch's losses on generated data",
          "[trajectory][oracle]") {
  follow_all(transformer_runs("generated"), float32);
}

TEST_CASE("the transformer in float64 follows PyTorch's losses on generated data", "[trajectory][oracle]") {
  follow_all(transformer_runs("generated"), float64);
}

TEST_CASE("the transformer in one process follows PyTorch's losses on shakespeare", "[trajectory][oracle]") {
  if (!has_data("shakespeare")) return;
  follow_all(transformer_runs("shakespeare"), float32);
}

TEST_CASE("the transformer in float64 follows PyTorch's losses on shakespeare", "[trajectory][oracle]") {
  if (!has_data("shakespeare")) return;
  follow_all(transformer_runs("shakespeare"), float64);
}

TEST_CASE("a transformer that recomputes its activations has the same bits", "[trajectory]") {
  for (const Run& run : transformer_runs("generated")) {
    const Trained kept = train(run, float32, false, 8), again = train(run, float32, true, 8);
    CHECK(kept.losses == again.losses);
    REQUIRE(kept.parameters.size() == run.parameters.size());
    for (const auto& [name, value] : kept.parameters) {
      INFO(name);
      CHECK(bit_equal(value, again.parameters.at(name)));
    }
  }
}

TEST_CASE("a training run has the same bits again, and on two threads", "[trajectory]") {
  for (const std::vector<Run>& runs : {mlp_runs("generated"), transformer_runs("generated")}) {
    const Run& run = runs.at(0);
    const int threads = ops::num_threads();
    ops::set_num_threads(1);
    const Trained one = train(run, float32, false, 4), again = train(run, float32, false, 4);
    ops::set_num_threads(2);
    const Trained two = train(run, float32, false, 4);
    ops::set_num_threads(threads);
    CHECK(one.losses == again.losses);
    CHECK(one.losses == two.losses);
    for (const auto& [name, value] : one.parameters) {
      INFO(name);
      CHECK(bit_equal(value, again.parameters.at(name)));
      CHECK(bit_equal(value, two.parameters.at(name)));
    }
  }
}

TEST_CASE("after the first step, training asks the system for no memory", "[trajectory]") {
  const Run run = transformer_runs("generated").at(0);
  const auto model = make_model(run, float32, false);
  const auto optimizer = optim::make(run.optimizer, run.options, model->parameters());
  const int threads = ops::num_threads();
  release_cached_memory();
  ops::set_num_threads(1);  // with more, how many buffers are needed at once depends on who comes first
  std::vector<uint64_t> asked;
  for (int step = 0; step < 4; ++step) {
    const uint64_t before = allocator_stats().system_allocations;
    optimizer->zero_grad();
    const Tensor loss = loss_of(run, *model, 0, float32);
    autograd::backward(loss);
    optimizer->step();
    asked.push_back(allocator_stats().system_allocations - before);
  }
  ops::set_num_threads(threads);
  CHECK(asked[0] > 0);
  CHECK(std::vector<uint64_t>(asked.begin() + 1, asked.end()) == std::vector<uint64_t>(3, 0));
}
