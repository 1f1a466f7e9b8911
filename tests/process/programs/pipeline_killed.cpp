// A pipeline over processes, one of which kills itself at an exact point of a step; then one of those left.
#include <signal.h>

#include <algorithm>
#include <thread>

#include "parallel/pipeline/pipeline.h"
#include "tools/flags/flags.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

constexpr int64_t kWidth = 8, kMicroBatches = 6;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// A layer that dies in the forward or the backward of a micro-batch.
struct Layer : nn::ModuleActor<nn::Linear> {
  Layer(std::string where, int64_t micro_batch)
      : ModuleActor(kWidth, kWidth), dies(where), left(micro_batch) {
    Generator random(1);
    net.reset(random);
  }
  Tensor forward(Tensor x) {
    if (dies == "forward" && left-- == 0) raise(SIGKILL);
    const Tensor w = mul(net.weight, 1.0), y = ops::tanh(add(matmul(x, transpose(w, 0, 1)), net.bias));
    if (dies == "backward") die_with(y);  // its first part
    if (dies == "weights") die_with(w);   // its second
    return y;
  }
  void die_with(const Tensor& gradient_of) {
    hooks.push_back(autograd::register_hook(gradient_of, [this](const Tensor&) -> Tensor {
      if (left-- == 0) raise(SIGKILL);
      return {};
    }));
  }
  Tensor loss(Tensor y, Tensor target) { return mse_loss(y, target); }
  std::string dies;
  int64_t left;
  std::vector<autograd::HookHandle> hooks;
  static constexpr auto remote = methods<&Layer::forward, &Layer::loss>;
};

// Two steps of a pipeline over `places`; the losses.
std::vector<double> train(Cluster& cluster, const std::vector<std::string>& places,
                          const std::string& schedule, const std::string& victim = "",
                          const std::string& point = "", int64_t micro_batch = 0) {
  std::vector<parallel::Stage> stages;
  std::vector<AnyRef> actors;
  for (const auto& place : places) {
    const auto layer = cluster.spawn<Layer>(place, place == victim ? point : "nowhere", micro_batch);
    actors.push_back(layer);
    stages.push_back(parallel::stage<&Layer::forward>(layer));
    if (&place == &places.back()) stages.back() = stages.back().with_loss<&Layer::loss>();
  }
  parallel::Pipeline pipeline(cluster.here(), stages,
                              {.schedule = schedule, .micro_batches = static_cast<int>(kMicroBatches)});
  optim::Distributed<optim::SGD> optimizer(actors, {.lr = 0.1});
  Generator random(2);
  const Tensor x = randn({24, kWidth}, random), y = randn({24, kWidth}, random);
  std::vector<double> losses;
  for (int step = 0; step < 2; ++step) {
    autograd::Context context(cluster);
    losses.push_back(pipeline.step(Value(x), Value(y)).loss);
    optimizer.step(context);
    context.end().get();
  }
  return losses;
}

// Waits until nothing is left on the workers that live; a leak hangs.
void all_zero(Cluster& cluster) {
  for (const auto& name : cluster.workers())
    for (const char* what : {"contexts", "send_nodes", "receive_nodes", "backward_passes", "owned_objects",
                             "owned_references", "borrowed_references", "pending_references", "actors"})
      while (cluster.metrics(name)[what] != 0) std::this_thread::yield();
}

void run(Cluster& cluster, const std::string& schedule, const std::string& victim, const std::string& point,
         int64_t micro_batch) {
  try {
    train(cluster, {"w1", "w2", "w3"}, schedule, victim, point, micro_batch);
  } catch (const Error& e) {
    say("error " + std::string(name(e.kind())) + " of " + e.worker());
  }
  // Another worker may have noticed first, and its answer have come before our own link broke.
  for (bool lost = false; !lost; std::this_thread::yield()) {
    const auto living = cluster.workers();
    lost = std::find(living.begin(), living.end(), victim) == living.end();
  }
  all_zero(cluster);
  std::vector<std::string> places;
  for (const auto& name : cluster.workers())
    if (name != "w0") places.push_back(name);
  const auto losses = train(cluster, places, schedule);
  say("goes on with " + std::to_string(places.size()) +
      (losses.at(1) < losses.at(0) ? ": learns" : ": does not"));
  all_zero(cluster);
  say("nothing left");
}

}  // namespace

int main(int argc, char** argv) {
  std::string victim = "w1", point = "forward", schedule = "1f1b";
  int64_t micro_batch = 0;
  tools::Flags flags("pipeline_killed", "One worker of a pipeline kills itself, the others go on.");
  flags.add("--victim", victim, "who", {"w1", "w2", "w3"})
      .add("--point", point, "when", {"forward", "backward", "weights"})
      .add("--micro-batch", micro_batch, "in which, from 0", {0, kMicroBatches - 1})
      .add("--schedule", schedule, "as parallel::make_policy takes it");
  if (auto code = flags.parse(argc, argv)) return *code;
  return launch(hosting<Layer>(),
                [&](Cluster& cluster) { run(cluster, schedule, victim, point, micro_batch); });
}
