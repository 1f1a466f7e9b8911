// A training step of a perceptron split over two workers, driven by a third: `troupe run -n 3 bench_model`.
#include "bench/measure.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

struct Stage : Actor {
  Stage(int64_t in, int64_t out, bool relu, uint64_t seed) : random(seed), fc(in, out, random), relu(relu) {}
  Tensor forward(Tensor x) { return relu ? ops::relu(fc(x)) : fc(x); }
  Tensors parameters() override { return fc.parameters(); }
  Generator random;
  nn::Linear fc;
  bool relu;
  static constexpr auto remote = methods<&Stage::forward>;
};

constexpr int64_t kBatch = 64;

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_model", "Times a model-parallel training step; start it with troupe run -n 3.",
                     argc, argv);
  if (bench.exit_code) return *bench.exit_code;
  return launch(hosting<Stage>(), [&](Cluster& cluster) {
    const auto names = cluster.workers();
    if (names.size() < 3)
      throw_invalid("[bench] bench_model needs 3 workers, got " + std::to_string(names.size()));
    if (!LaunchEnvironment::read()) bench.set_placement("in-process");
    const auto bottom = cluster.spawn<Stage>(names[1], 784, 512, true, 1);
    const auto top = cluster.spawn<Stage>(names[2], 512, 10, false, 2);
    optim::Distributed<optim::SGD> sgd({bottom, top}, {.lr = 0.01});
    Generator generator(0);
    const Tensor x = randn({kBatch, 784}, generator);
    std::vector<int64_t> classes(kBatch);
    for (auto& c : classes) c = static_cast<int64_t>(generator.below(10));
    const Tensor y = tensor(classes);
    auto step = [&] {
      autograd::Context context(cluster);
      const Tensor h = bottom.call<&Stage::forward>(x).get();
      const Tensor out = top.call<&Stage::forward>(h).get();
      context.backward(cross_entropy(out, y));
      sgd.step(context);
    };
    bench.emit("model_parallel_mlp_step_us", bench.median_us(step, 200), "us", {{"batch", kBatch}});
  });
}
