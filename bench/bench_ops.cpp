// Operators and training steps in one process on one thread.
#include "bench/measure.h"
#include "bench/transformer.h"
#include "ops/cpu/loops/simd.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

Tensor labels(int64_t n, Generator& generator, uint64_t count = 10) {
  std::vector<int64_t> classes(static_cast<size_t>(n));
  for (auto& c : classes) c = static_cast<int64_t>(generator.below(count));
  return tensor(classes);
}

// What the memory leaves to an addition: reading a and b, and writing as much as one of them, one after the
// other, in vectors of 32 bytes.
double add_limit(const bench::Bench& bench, const Tensor& a, const Tensor& b) {
  using Vector = float __attribute__((vector_size(32), aligned(4), may_alias));
  const auto* x = reinterpret_cast<const Vector*>(a.data<float>());
  const auto* y = reinterpret_cast<const Vector*>(b.data<float>());
  const int64_t n = a.numel() / 8;
  const Tensor out = zeros(a.shape());
  auto* to = reinterpret_cast<Vector*>(out.data<float>());
  const auto read = [=]() __attribute__((always_inline)) {
    Vector sums[8] = {};
    for (int64_t i = 0; i + 4 <= n; i += 4) {
      TROUPE_UNROLL(4)
      for (int64_t k = 0; k < 4; ++k) sums[k] += x[i + k], sums[4 + k] += y[i + k];
    }
    for (const Vector& sum : sums) *to += sum;
  };
  const auto write = [=]() __attribute__((always_inline)) {
    for (int64_t i = 0; i < n; ++i) to[i] = Vector{} + 1;
  };
  return bench.median_us([&] { ops::on_cpu::vectorized(read); }, 200) +
         bench.median_us([&] { ops::on_cpu::vectorized(write); }, 200);
}

void run(const bench::Bench& bench) {
  Generator generator(0);
  double gflops = 0;  // of the fastest product
  for (int64_t n : {64, 256, 1024}) {
    const Tensor a = randn({n, n}, generator), b = randn({n, n}, generator);
    const double us = bench.median_us([&] { matmul(a, b); }, n < 1024 ? 200 : 20);
    const double rate = 2e-3 * std::pow(static_cast<double>(n), 3) / us;
    gflops = std::max(gflops, rate);
    bench.emit("matmul_gflops", rate, "GFLOP/s", {{"n", n}});
  }
  constexpr int64_t kElements = 1 << 20;
  const Tensor a = randn({kElements}, generator), b = randn({kElements}, generator);
  bench.emit("add_us", bench.median_us([&] { add(a, b); }, 200), "us", {{"elements", kElements}});
  bench.emit("add_limit_us", add_limit(bench, a, b), "us", {{"elements", kElements}});

  Tensor tiny = randn({8, 8}, generator);
  tiny.requires_grad_();
  bench.emit("tiny_op_fwd_bwd_us",
             bench.median_us([&] { autograd::backward((tiny * tiny + tiny).sum()); }, 2000), "us",
             {{"ops", 3}});

  for (int64_t batch : {64, 256}) {
    nn::Sequential mlp(nn::Linear(784, 512), nn::ReLU(), nn::Linear(512, 512), nn::ReLU(),
                       nn::Linear(512, 10));
    mlp.reset(generator);
    optim::SGD sgd(mlp.parameters(), {.lr = 0.01});
    const Tensor x = randn({batch, 784}, generator), y = labels(batch, generator);
    auto step = [&] {
      sgd.zero_grad();
      autograd::backward(cross_entropy(mlp(x), y));
      sgd.step();
    };
    const double us = bench.median_us(step, 100);
    bench.emit("mlp_step_us", us, "us", {{"batch", batch}});
    // Three products per layer, less the gradient of x, at the rate of the fastest product above.
    const auto products = static_cast<double>(batch * (3 * (784 * 512 + 512 * 512 + 512 * 10) - 784 * 512));
    bench.emit("mlp_step_gemm_fraction", 2e-3 * products / gflops / us, "1", {{"batch", batch}});
  }

  {
    constexpr int64_t kBatch = 64;
    const nn::Conv2dOptions same{.padding = {1, 1}};
    nn::Sequential cnn(nn::Conv2d(1, 32, 3, same), nn::ReLU(), nn::MaxPool2d(2), nn::Conv2d(32, 64, 3, same),
                       nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(64 * 49, 128), nn::ReLU(),
                       nn::Linear(128, 10));
    cnn.reset(generator);
    optim::SGD sgd(cnn.parameters(), {.lr = 0.01});
    const Tensor x = randn({kBatch, 1, 28, 28}, generator), y = labels(kBatch, generator);
    auto step = [&] {
      sgd.zero_grad();
      autograd::backward(cross_entropy(cnn(x), y));
      sgd.step();
    };
    bench.emit("cnn_step_us", bench.median_us(step, 30), "us", {{"batch", kBatch}});
  }

  constexpr int64_t kVocabulary = 65, kBatch = 8, kContext = 128, kWidth = 256, kLayers = 4;
  bench::CharTransformer transformer(kVocabulary, kWidth, kLayers, 4, kContext);
  transformer.reset(generator);
  optim::AdamW adamw(transformer.parameters(), {.lr = 3e-4});
  const Tensor ids = labels(kBatch * kContext, generator, kVocabulary).reshape({kBatch, kContext}),
               next = labels(kBatch * kContext, generator, kVocabulary);
  auto step = [&] {
    adamw.zero_grad();
    autograd::backward(cross_entropy(transformer(ids), next));
    adamw.step();
  };
  const double us = bench.median_us(step, 10, 2);
  bench.emit("transformer_step_us", us, "us",
             {{"batch", kBatch}, {"context", kContext}, {"width", kWidth}, {"layers", kLayers}});
  // Three products for each weight of a linear layer; those of attention are not counted.
  constexpr int64_t kWeights = kLayers * 12 * kWidth * kWidth + kWidth * kVocabulary;
  bench.emit("transformer_step_gemm_fraction", 2e-3 * 3 * kWeights * kBatch * kContext / gflops / us, "1",
             {{"batch", kBatch}});
}

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_ops", "Times operators and training steps, in one process on one thread.", argc,
                     argv);
  if (bench.exit_code) return *bench.exit_code;
  try {
    run(bench);
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_ops: error: %s\n", e.what());
    return 1;
  }
}
