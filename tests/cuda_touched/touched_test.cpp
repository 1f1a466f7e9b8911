// How often kernels read and write their elements.
#include <catch2/catch.hpp>
#include <functional>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "optim/optimizer_catalog.h"
#include "tests/cuda/gpus.h"
#include "tests/cuda_touched/touched.h"

using namespace troupe;

namespace {

using testing::gpu0, testing::needs_gpus, testing::Touched;

Tensor drawn(const Shape& shape, uint64_t seed, DType t = bfloat16) {
  Generator g(seed);
  return ops::to(ops::randn(shape, g, float32), t).data_on(gpu0);
}

Touched touched_by(const std::function<void()>& f) {
  const auto wait = [] { zeros({1}, {float32, gpu0}).data_on(cpu); };
  wait();
  testing::reset_touched();
  f();
  wait();
  return testing::touched();
}

// Times that f reads and writes so many bytes: to one part in a hundred, for what there is one of for a row.
void expect(const char* name, double bytes, double reads, double writes, const std::function<void()>& f) {
  INFO(name);
  const Touched t = touched_by(f);
  CHECK(static_cast<double>(t.read) / bytes == Approx(reads).margin(0.01));
  CHECK(static_cast<double>(t.written) / bytes == Approx(writes).margin(0.01));
}

TEST_CASE("norms, softmax and activations read each element once and write each result once") {
  if (!needs_gpus(1)) return;
  const NoGradGuard off;
  const Tensor x = drawn({96, 768}, 1), w = drawn({768}, 2);
  const double all = 2 * 96 * 768;
  // The weight and the bias come again with each row, from the cache.
  expect("layer_norm", all, 3, 1, [&] { ops::layer_norm(x, 768, w, w); });
  expect("rms_norm", all, 2, 1, [&] { ops::rms_norm(x, 768, w); });
  expect("softmax", all, 1, 1, [&] { ops::softmax(x, 1); });
  expect("log_softmax", all, 1, 1, [&] { ops::log_softmax(x, 1); });
  expect("gelu", all, 1, 1, [&] { ops::gelu(x); });
  expect("silu", all, 1, 1, [&] { ops::silu(x); });
}

TEST_CASE("gradients of norms and softmax, cross-entropy and optimizers read what they have to") {
  if (!needs_gpus(1)) return;
  const int64_t rows = 96, width = 768;
  const double all = 2.0 * static_cast<double>(rows * width);
  Tensor x = drawn({rows, width}, 1).requires_grad_(), w = drawn({width}, 2).requires_grad_();
  const Tensor g = drawn({rows, width}, 3);
  const auto backward = [&](const char* name, double reads, double writes, const std::function<Tensor()>& f) {
    const Tensor y = f();
    expect(name, all, reads, writes, [&] { autograd::grad({y}, {x}, {g}); });
  };
  // The weight comes with each row; four rows together write terms of its and the bias's gradients, in
  // float32, which are read once more.
  backward("layer_norm_grad", 3 + 1, 1 + 1 + 2 / 96.0, [&] { return ops::layer_norm(x, width, w, w); });
  backward("softmax_grad", 2, 1, [&] { return ops::softmax(x, 1); });
  backward("log_softmax_grad", 2, 1, [&] { return ops::log_softmax(x, 1); });
  backward("gelu_grad", 2, 1, [&] { return ops::gelu(x); });
  const Tensor scores = drawn({24, 8192}, 4).requires_grad_(), target = zeros({24}, {int64, gpu0});
  const double all_scores = 2 * 24 * 8192, each_thread = 256 / (2 * 8192.0);  // reads what a row has one of
  Tensor loss;
  expect("cross_entropy", all_scores, 1 + 8 * each_thread, 0,
         [&] { loss = ops::cross_entropy(scores, target); });
  // The gradient reads scores for their largest and its sum, then once more (decisions.md, Devices).
  expect("cross_entropy_grad", all_scores, 2 + 12 * each_thread, 1,
         [&] { autograd::grad({loss}, {scores}); });
  const Tensor p = drawn({1 << 16}, 4, float32).requires_grad_();
  p.set_grad(drawn({1 << 16}, 5, float32));
  const auto adam = optim::make("adamw", {}, {p});
  adam->step();
  expect("adamw", 4 << 16, 4, 3, [&] { adam->step(); });
}

TEST_CASE("attention reads keys and values once for each tile of queries, and queries for each of keys") {
  if (!needs_gpus(1)) return;
  const int64_t n = 512, width = 64;
  const double all = 2.0 * static_cast<double>(n * width), numbers = 4.0 * static_cast<double>(n) / all;
  for (const bool causal : {false, true}) {
    INFO("causal " << causal);
    const auto leaf = [&](uint64_t seed) { return drawn({n, width}, seed).requires_grad_(); };
    const Tensor q = leaf(1), k = leaf(2), v = leaf(3), g = drawn({n, width}, 4);
    const auto tiles = [&](double size) {  // of the others that each tile sees, summed
      const double count = static_cast<double>(n) / size;
      return causal ? count * (count + 1) / 2 / count : count;
    };
    Tensor y;
    expect("attention", all, 1 + 2 * tiles(128), 1 + numbers,
           [&] { y = ops::scaled_dot_product_attention(q, k, v, {}, 0, causal); });
    // A tile of queries reads q, y, g twice, two numbers of a row in four lanes, and all keys and values; one
    // of keys k, v, and all of q, g and two numbers.
    expect("attention_grad", all, 6 + 4 * tiles(64) + (8 + 2 * tiles(64)) * numbers, 3 + numbers, [&] {
      autograd::grad({y}, {q, k, v}, {g});
    });
  }
}

TEST_CASE("convolution reads the image once for each tap, and writes the result once") {
  if (!needs_gpus(1)) return;
  const Tensor x = drawn({2, 64, 16, 16}, 1).requires_grad_(), w = drawn({64, 64, 3, 3}, 2).requires_grad_();
  const Tensor g = drawn({2, 64, 16, 16}, 3);
  const double all = static_cast<double>(2 * x.numel());
  const double taps = 46 * 46 / 256.0;                              // those within the image
  const double weights = static_cast<double>(2 * w.numel()) / all;  // of halves
  const double places = 2 * 16 * 16 / 128.0, tiles = 5, parts = 2;  // of 128 weights; of sums
  Tensor y;
  expect("conv2d", all, taps + places * weights, 1, [&] { y = ops::conv2d(x, w, {}, 1, 1); });
  expect("conv2d_input_grad", all, taps + (places + 1) * weights, 1 + weights,
         [&] { autograd::grad({y}, {x}, {g}, {.retain_graph = true}); });
  expect("conv2d_weight_grad", all, taps + tiles + parts * 2 * weights, (1 + parts * 2) * weights,
         [&] { autograd::grad({y}, {w}, {g}); });
}

}  // namespace
