// A job that no replica can mend: layers that are actors of one copy each, and replicas that divide state.
// PLAN=7:w2;9:w4 says who dies in which step. Prints losses and the final state.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "actors/worker/worker.h"
#include "core/codec/keep.h"
#include "troupe/replicas.h"
#include "troupe/server.h"
#include "troupe/troupe.h"

using namespace troupe;
using parallel::split;

namespace {

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

void die_if_planned(int64_t step) {
  const std::string mine = ";" + std::to_string(step) + ":" + frame().worker->name() + ";";
  if ((";" + variable("PLAN", "") + ";").find(mine) != std::string::npos) raise(SIGKILL);
}

// One of the layers that the driver calls one after the other.
struct Layer : nn::ModuleActor<nn::Linear> {
  Layer(int64_t in, int64_t out) : ModuleActor(nn::Linear(in, out)) {
    std::printf("pid %s %d\n", frame().worker->name().c_str(), getpid());
  }
  Tensor forward(Tensor x, int64_t step) {
    die_if_planned(step);
    ++calls;
    return drop(tanh(net(x))) * (1.0 + 1e-3 * double(calls % 7));
  }
  int64_t calls = 0;
  Keep keep{"calls", calls};
  nn::Dropout drop{0.1};
  static constexpr auto remote = methods<&Layer::forward>;
};

struct Head : nn::ModuleActor<nn::Sequential> {
  Head() : ModuleActor(nn::Linear(8, 16), nn::ReLU(), nn::Linear(16, 4)) {}
  Tensor loss(Tensor x, Tensor y) { return cross_entropy(net(x), y); }
  static constexpr auto remote = methods<&Head::loss>;
};

Tensor rows(int64_t step, int64_t n) {
  std::vector<float> v;
  for (int64_t i = 0; i < n * 8; ++i) v.push_back(float((i * 37 + step * 11) % 23) / 23 - 0.5F);
  return tensor(v, float32).reshape({n, 8});
}

uint64_t bits_of(const StateDict& values) {
  uint64_t bits = 14695981039346656037ULL;
  for (const auto& [name, t] : values)
    for (const double v : t.to(float64).to_vector<double>()) {
      uint64_t b = 0;
      std::memcpy(&b, &v, sizeof b);
      bits = (bits ^ b) * 1099511628211ULL;
    }
  return bits;
}

void train(Cluster& cluster) {
  const auto all = cluster.workers();
  std::vector<RRef<Layer>> layers;
  for (size_t i = 0; i < 3; ++i) layers.push_back(cluster.spawn<Layer>(all[1 + i % (all.size() - 1)], 8, 8));
  static std::vector<RRef<Layer>> held;
  if (variable("HOLDS", "") == "1") held = layers;
  const std::vector<Place> places(all.begin() + 1, all.end());
  parallel::DataParallel<Head> heads(cluster.here(), Group(cluster, places),
                                     {.shard = parallel::Shard::state});
  optim::Distributed<optim::Adam> of_layers({layers.begin(), layers.end()}, {.lr = 3e-3});
  optim::Distributed<optim::Adam> of_heads(heads, {.lr = 3e-3});
  {
    const NoGradGuard before_the_loop;
    (void)layers.back()(rows(0, 2), -1).get();
  }
  Job job(cluster);
  double sum = 0;
  Keep keep{"sum", sum};
  for (const int64_t step : job.steps(std::stoll(variable("STEPS", "20")))) {
    const int64_t n = 24;
    std::vector<int64_t> targets;
    for (int64_t i = 0; i < n; ++i) targets.push_back((i + step) % 4);
    autograd::Context context(cluster);
    Tensor h = rows(step, n);
    for (const auto& layer : layers) h = layer(h, step).get();
    const Tensor loss = heads.mean<&Head::loss>(split(h), split(tensor(targets, int64))).get();
    context.backward(loss);
    of_layers.step(context);
    of_heads.step(context);
    sum += loss.item();
    job.check(sum);
    std::printf("step %lld sum %.17g\n", static_cast<long long>(step), sum);
    std::fflush(stdout);
  }
  StateDict state = heads.state_dict().get();
  for (const auto& layer : layers)
    for (const auto& [name, t] : nn::remote_state_dict(layer).get())
      state[std::to_string(state.size()) + name] = t;
  std::printf("final %016llx\n", static_cast<unsigned long long>(bits_of(state)));
}

}  // namespace

int main() {
  return launch(train, {.leak_check = LeakCheck::error,
                        .checkpoints = {.dir = variable("CHECKPOINTS", ""), .every = 4}});
}
