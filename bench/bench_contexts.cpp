// Many live contexts: what one costs in bytes, and whether the next step costs more when thousands are alive.
// And a step with a gradient penalty, whose second pass goes through both graphs, beside the same on one
// thread.
#include <malloc.h>

#include <chrono>
#include <memory>
#include <vector>

#include "bench/measure.h"
#include "core/memory/storage.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

struct Layer : Actor {
  Tensor forward(Tensor x) { return ops::mul(x, w); }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor w = full({8}, 2.0).requires_grad_();
  static constexpr auto remote = methods<&Layer::forward, &Layer::gradient>;
};

/// A square layer of a model that has a gradient penalty.
struct Dense : Actor {
  static constexpr int64_t kWidth = 256;
  explicit Dense(uint64_t seed) {
    Generator random(seed);
    w = ops::mul(ops::randn({kWidth, kWidth}, random), 0.0625).detach().requires_grad_();
  }
  Tensor forward(Tensor x) { return ops::tanh(ops::matmul(x, w)); }
  Tensor w;
  static constexpr auto remote = methods<&Dense::forward>;
};

Tensor penalty_of(const Tensor& y, const Tensor& g) {
  return ops::add(ops::mul(y, y).sum(), ops::mul(g, g).sum());
}

/// Forward, a recorded pass to the input, and a pass through both into the parameters.
void time_penalties(const bench::Bench& bench) {
  constexpr int kLayers = 8;
  const auto cluster = Cluster::in_process(2, hosting<Dense>());
  std::vector<RRef<Dense>> layers;
  std::vector<std::unique_ptr<Dense>> local;
  for (int i = 0; i < kLayers; ++i) {
    layers.push_back(cluster->spawn<Dense>(i % 2 ? "w1" : "w0", uint64_t(i)));
    local.push_back(std::make_unique<Dense>(uint64_t(i)));
  }
  const Tensor x = full({256, Dense::kWidth}, 0.5).requires_grad_();
  const double here = bench.median_us(
      [&] {
        Tensor y = x;
        for (const auto& layer : local) y = layer->forward(y);
        const Tensor g = autograd::grad({y.sum()}, {x}, {}, {.create_graph = true})[0];
        autograd::backward(penalty_of(y, g));
        x.set_grad({});
        for (const auto& layer : local) layer->w.set_grad({});
      },
      40, 5);
  const double there = bench.median_us(
      [&] {
        autograd::Context context(*cluster);
        Tensor y = x;
        for (const auto& layer : layers) y = layer.call<&Dense::forward>(y).get();
        const Tensor g = context.grad({y.sum()}, {x}, {}, {.create_graph = true})[0];
        context.backward(penalty_of(y, g));
        context.end().get();
      },
      40, 5);
  bench.emit("penalty_us", here, "us", {{"layers", double(kLayers)}, {"workers", 0}});
  bench.emit("penalty_us", there, "us", {{"layers", double(kLayers)}, {"workers", 2}});
}

/// Of the whole process; the caching allocator's blocks that are free do not count.
double bytes_in_use() {
  const auto stats = allocator_stats();
  return static_cast<double>(mallinfo2().uordblks) + static_cast<double>(mallinfo2().hblkhd) -
         static_cast<double>(stats.cached);
}

/// A step whose context stays: a call, a pass, and a look at the gradient on the other worker.
std::unique_ptr<autograd::Context> step(Cluster& cluster, const RRef<Layer>& layer, const Tensor& x) {
  auto context = std::make_unique<autograd::Context>(cluster);
  context->backward(layer.call<&Layer::forward>(x).get().sum());
  if (!layer.call<&Layer::gradient>().get().defined())
    throw_error(ErrorKind::failed, "[bench] a gradient did not arrive");
  return context;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_contexts",
                     "Times steps between two workers of this process while many contexts live.", argc, argv);
  if (bench.exit_code) return *bench.exit_code;
  time_penalties(bench);
  const auto cluster = Cluster::in_process(2, hosting<Layer>());
  const auto layer = cluster->spawn<Layer>("w1");
  const Tensor x = full({8}, 3.0).requires_grad_();
  std::vector<std::unique_ptr<autograd::Context>> live;
  for (int i = 0; i < bench.count(200); ++i) (void)step(*cluster, layer, x);  // warm
  for (int target : {0, 100, 1000, 10000}) {
    const double before = bytes_in_use();
    const size_t had = live.size();
    while (live.size() < size_t(target)) live.push_back(step(*cluster, layer, x));
    const double us = bench.median_us([&] { step(*cluster, layer, x)->end().get(); }, 2000, 20);
    bench.emit("context_step_us", us, "us", {{"live", double(target)}});
    if (target)
      bench.emit("context_bytes", (bytes_in_use() - before) / double(live.size() - had), "bytes",
                 {{"live", double(target)}});
  }
  const auto start = std::chrono::steady_clock::now();
  const auto count = static_cast<double>(live.size());
  while (!live.empty()) live.pop_back();  // innermost first
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  bench.emit("context_end_us", took.count() / count, "us", {{"live", count}});
}
