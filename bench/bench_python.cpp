// The step that python_step.py times, in C++: a digit classifier in two actors of a cluster in this process.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "tools/flags/flags.h"
#include "tools/program.h"
#include "troupe/data.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

struct First : nn::ModuleActor<nn::Sequential> {
  First() : ModuleActor(nn::Linear(784, 128), nn::ReLU()) {}
  Tensor forward(Tensor x) { return net(x); }
  static constexpr auto remote = methods<&First::forward>;
};
struct Last : nn::ModuleActor<nn::Sequential> {
  Last() : ModuleActor(nn::Linear(128, 10)) {}
  Tensor forward(Tensor x) { return net(x); }
  static constexpr auto remote = methods<&Last::forward>;
};

}  // namespace

int main(int argc, char** argv) {
  tools::Flags flags("bench_python", "Times steps of a digit classifier in two actors, 64 rows each.");
  auto& epochs = flags.whole("--epochs", 40, "passes of 32 steps", {1, 1e6});
  if (auto code = flags.parse(argc, argv)) return *code;
  return tools::run_main(flags, [&] {
    const auto cluster = Cluster::in_process(3, hosting<First, Last>());
    const auto a = cluster->spawn<First>("w1");
    const auto b = cluster->spawn<Last>("w2");
    optim::Distributed<optim::SGD> optimizer({a, b}, {.lr = 0.1});
    datasets::Loader loader(datasets::generated_digits(2048, 1), {.batch_size = 64});
    std::vector<double> times;
    for (int64_t e = 0; e < epochs; ++e) {
      const auto begin = std::chrono::steady_clock::now();
      for (auto [x, y, index] : loader.epoch(static_cast<uint64_t>(e))) {
        autograd::Context step(*cluster);
        const Tensor loss = ops::cross_entropy(b(a(x)).get(), y);
        step.backward(loss);
        optimizer.step(step);
      }
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
      times.push_back(took.count() / static_cast<double>(loader.batches()));
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    std::printf("{\"step_us\": %.1f}\n", *middle);
  });
}
