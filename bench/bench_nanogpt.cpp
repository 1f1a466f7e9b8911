// nanoGPT's configuration for CPUs: characters of a text, 4 layers, 4 heads, width 128, 64 characters, 12
// rows, without dropout. Prints JSON lines: microseconds of an iteration, and, behind --iterations 2000, the
// validation loss.
#include <chrono>
#include <cmath>
#include <cstdio>

#include "bench/measure.h"
#include "data/datasets/text.h"
#include "llm/decoder.h"
#include "nn/init.h"
#include "ops/dispatch/threads.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tools/flags/flags.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

constexpr int64_t kContext = 64, kRows = 12;

double validation_loss(llm::Decoder& model, const Tensor& ids) {
  const NoGradGuard no_grad;
  Generator random(2);
  double sum = 0;
  const int batches = 200;
  for (int i = 0; i < batches; ++i) {
    const auto [x, y] = datasets::random_windows(ids, kContext, kRows, random);
    sum += ops::cross_entropy(model(x).flatten(0, 1), y.flatten()).item<double>() / batches;
  }
  return sum;
}

// Linear to 1e-3 in 100 iterations, half a cosine to 1e-4 behind them.
double rate_of(int64_t iteration, int64_t iterations) {
  if (iteration < 100) return 1e-3 * static_cast<double>(iteration + 1) / 101;
  const double at =
      static_cast<double>(iteration - 100) / static_cast<double>(std::max<int64_t>(iterations - 100, 1));
  return 1e-4 + 0.5 * (1 + std::cos(3.14159265358979 * at)) * 9e-4;
}

}  // namespace

int main(int argc, char** argv) {
  tools::Flags flags("bench_nanogpt", "Trains nanoGPT's configuration for CPUs on a text, on one thread.");
  auto& iterations = flags.whole("--iterations", 100, "how many; 2000 is the published run", {1, 1e6});
  auto& seed = flags.seed("of weights and windows");
  auto& file = flags.file("TEXT", "tinyshakespeare");
  if (auto code = flags.parse(argc, argv)) return *code;
  return tools::run_main(flags, [&] {
    ops::set_num_threads(1);
    const auto [vocabulary, ids] = datasets::read_text(file);
    const int64_t split = ids.numel() * 9 / 10;
    const Tensor train = ids.slice(0, 0, split), rest = ids.slice(0, split, ids.numel());
    manual_seed(seed);
    llm::Decoder model({.model_type = "gpt2",
                        .vocab_size = vocabulary.size(),
                        .hidden_size = 128,
                        .intermediate_size = 512,
                        .num_hidden_layers = 4,
                        .num_attention_heads = 4,
                        .max_position_embeddings = kContext,
                        .norm = "layer",
                        .norm_eps = 1e-5,
                        .hidden_act = "gelu",
                        .gated = false,
                        .tie_word_embeddings = true,
                        .rotary = false});
    for (auto& [name, p] : model.named_parameters())  // GPT-2's: what goes into the residual starts smaller
      if (name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight"))
        nn::init::normal_(p, 0, 0.02 / std::sqrt(2.0 * 4));
    Tensors decayed, others;
    for (const Tensor& p : model.parameters()) (p.dim() >= 2 ? decayed : others).push_back(p);
    optim::AdamW with(decayed, {.lr = 1e-3, .beta2 = 0.99, .weight_decay = 0.1}),
        without(others, {.lr = 1e-3, .beta2 = 0.99, .weight_decay = 0});
    Generator random(seed);
    std::vector<double> times;
    for (int64_t i = 0; i < iterations; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      with.set_lr(rate_of(i, iterations)), without.set_lr(rate_of(i, iterations));
      const auto [x, y] = datasets::random_windows(train, kContext, kRows, random);
      const Tensor loss = ops::cross_entropy(model(x).flatten(0, 1), y.flatten());
      with.zero_grad(), without.zero_grad();
      autograd::backward(loss);
      optim::clip_grad_norm_(model.parameters(), 1.0);
      with.step(), without.step();
      (void)loss.item<double>();
      times.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    }
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                     times.end());
    std::printf("{\"system\": \"troupe\", \"bench\": \"nanogpt\", \"iteration_us\": %.1f",
                times[times.size() / 2]);
    if (iterations >= 1000) std::printf(", \"validation_loss\": %.4f", validation_loss(model, rest));
    std::printf("}\n");
  });
}
