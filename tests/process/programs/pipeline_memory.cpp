// What the stages of a pipeline keep, counted by the allocator of each process: `troupe run -n 5
// pipeline_memory` prints, for each schedule and stage, bytes at their highest.
#include <algorithm>
#include <deque>

#include "core/memory/storage.h"
#include "parallel/pipeline/pipeline.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

// Many layers: what arrives early or has not left yet depends on the moment, up to a tensor for each
// micro-batch; it is little beside what they keep.
constexpr int64_t kStages = 4, kLayers = 128, kWidth = 16, kRows = 1024, kMicroBatches = 8;

// tanh(Linear), many times: each keeps its input and its result, which is the input of the next.
struct Layers : nn::Layer {
  Layers() {
    for (int64_t i = 0; i < kLayers; ++i) all.emplace_back(kWidth, kWidth);
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (auto& layer : all) y = ops::tanh(layer(y));
    return y;
  }
  void members(nn::Members& m) override {
    for (size_t i = 0; i < all.size(); ++i) m(std::to_string(i), all[i]);
  }
  std::deque<nn::Linear> all;
};

struct Stage : nn::ModuleActor<Layers> {
  explicit Stage(int64_t seed) {
    Generator random(static_cast<uint64_t>(seed));
    net.reset(random);
  }
  Tensor forward(Tensor x) {
    const Tensor y = net(x);
    highest = std::max(highest, in_use());
    return y;
  }
  Tensor loss(Tensor y, Tensor target) { return mse_loss(y, target); }
  static size_t in_use() {
    const auto stats = allocator_stats();
    return stats.in_use + stats.borrowed;
  }
  /// From now on, above what is in use now.
  void start() { lowest = highest = in_use(); }
  int64_t bytes() { return static_cast<int64_t>(highest - lowest); }
  size_t lowest = 0, highest = 0;
  static constexpr auto remote = methods<&Stage::forward, &Stage::loss, &Stage::start, &Stage::bytes>;
};

// Two steps; what each stage kept in the second.
void measure(Cluster& cluster, const std::vector<RRef<Stage>>& actors, const std::string& schedule,
             bool recompute) {
  std::vector<parallel::Stage> stages;
  for (const auto& actor : actors) stages.push_back(parallel::stage<&Stage::forward>(actor));
  stages.back() = stages.back().with_loss<&Stage::loss>();
  parallel::Pipeline pipeline(
      cluster.here(), stages,
      {.schedule = schedule,
       .micro_batches = static_cast<int>(kMicroBatches),
       .checkpoint = recompute ? parallel::Checkpoint::always : parallel::Checkpoint::never});
  Generator random(1);
  const Tensor x = randn({kMicroBatches * kRows, kWidth}, random);
  for (const bool counted : {false, true}) {
    if (counted)
      for (const auto& actor : actors) actor.call<&Stage::start>().get();
    autograd::Context context(cluster);
    pipeline.step(Value(x), Value(x));
    context.end().get();
  }
  for (size_t s = 0; s < actors.size(); ++s)
    std::printf("stage %zu of %s with %lld micro-batches%s: %lld\n", s, schedule.c_str(),
                static_cast<long long>(kMicroBatches), recompute ? ", recomputed" : "",
                static_cast<long long>(actors[s].call<&Stage::bytes>().get()));
}

}  // namespace

int main() {
  return launch(hosting<Stage>(), [](Cluster& cluster) {
    std::vector<RRef<Stage>> actors;
    for (int64_t s = 0; s < kStages; ++s) actors.push_back(cluster.spawn<Stage>(s + 1, s));
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
      for (const bool recompute : {false, true}) measure(cluster, actors, schedule, recompute);
  });
}
