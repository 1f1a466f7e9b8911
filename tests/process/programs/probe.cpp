// A small training job that shows its insides, or kills a part of itself.
#include <signal.h>

#include <thread>

#include "actors/worker/worker.h"
#include "tests/process/programs/stage.h"
#include "tools/flags/flags.h"
using namespace troupe;
using testing::Stage;

namespace {

constexpr int64_t kBatch = 16, kWidth = 128;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Hidden layer on the second worker, output on the third, which the hidden layer calls by itself.
struct Training {
  explicit Training(Cluster& c) : cluster(c), names(c.workers()) {
    Generator random(1);
    auto uniform = [&](Shape shape) {
      std::vector<double> values(static_cast<size_t>(shape.numel()));
      for (double& v : values) v = random.uniform(-0.1, 0.1);
      return ops::to(tensor(values, float64).reshape(shape), float32);
    };
    x = uniform({kBatch, kWidth});
    y = tensor(std::vector<int64_t>(kBatch, 3)).reshape({kBatch});
    hidden =
        cluster.spawn<Stage>(names[1 % names.size()], uniform({kWidth, kWidth}), uniform({kWidth}), false);
    out = cluster.spawn<Stage>(names[2 % names.size()], uniform({10, kWidth}), uniform({10}), true);
    optimizer = std::make_unique<optim::Distributed<optim::SGD>>(
        std::vector<AnyRef>{hidden, out}, optim::SGD::Options{.lr = 0.01, .momentum = 0.9});
    pids = {{"w0", getpid()},
            {hidden.owner_name(), hidden.call<&Stage::pid>().get()},
            {out.owner_name(), out.call<&Stage::pid>().get()}};
    for (const auto& member : c.worker().members().all())
      for (const auto& address : member.addresses) say("address " + address);
    for (const auto& [name, pid] : pids) say("pid " + name + " " + std::to_string(pid));
  }
  Tensor forward() { return ops::cross_entropy(hidden.call<&Stage::forward_through>(out, x).get(), y); }
  void step() {
    autograd::Context context(cluster);
    const Tensor loss = forward();
    context.backward(loss);
    optimizer->step(context);
    context.end().get();
  }
  Cluster& cluster;
  std::vector<std::string> names;
  Tensor x, y;
  RRef<Stage> hidden, out;
  std::unique_ptr<optim::DistributedOptimizer> optimizer;
  std::map<std::string, int64_t> pids;
};

// "counters w1 backward_passes 0 contexts 0 ..." of every worker.
void say_counters(Cluster& cluster, int64_t step) {
  for (const auto& name : cluster.workers()) {
    std::string line = "counters " + std::to_string(step) + " " + name;
    for (const auto& [key, value] : cluster.metrics(name))
      if (!key.ends_with("_sent")) line += " " + key + " " + std::to_string(value);  // these only grow
    say(line);
  }
}

void run_steps(Training& job, int64_t steps) {
  for (int64_t i = 1; i <= steps; ++i) {
    job.step();
    if (i != 1 && i != steps / 5 && i != steps) continue;
    say_counters(job.cluster, i);
    say("resident " + std::to_string(i) + " " + std::to_string(testing::resident_bytes()) + " " +
        std::to_string(job.hidden.call<&Stage::resident>().get()) + " " +
        std::to_string(job.out.call<&Stage::resident>().get()));
  }
}

// Trains until the end of a worker shows; says how long after the signal that was.
void lose(Training& job, const std::string& victim, const std::string& during, int number) {
  const auto pid = static_cast<pid_t>(job.pids.at(victim));
  std::atomic<std::chrono::steady_clock::rep> sent{0};
  auto send = [&] {
    sent = std::chrono::steady_clock::now().time_since_epoch().count();
    kill(pid, number);
  };
  std::thread killer;
  try {
    if (during == "training") {
      for (int i = 0;; ++i) {
        if (i == 20) killer = std::thread(send);
        job.step();
      }
    }
    const auto answer = (victim == job.hidden.owner_name() ? job.hidden : job.out).call<&Stage::never>();
    send();
    answer.get();
  } catch (...) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    if (killer.joinable()) killer.join();
    char text[64];
    std::snprintf(text, sizeof text, "noticed after %.1f ms: ", double(now - sent) / 1e6);
    say(text + std::string(current_error().what()));
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string mode = "hello", victim = "w1", during = "training";
  int64_t steps = 1000;
  tools::Flags flags("probe", "Trains a little, and shows or breaks something.");
  flags.add("--mode", mode, "what to do", {"hello", "steps", "train", "kill", "stop"})
      .add("--steps", steps, "of mode steps", {1, 1e6})
      .add("--victim", victim, "worker that gets the signal")
      .add("--during", during, "when it gets it", {"training", "call"});
  if (auto code = flags.parse(argc, argv)) return *code;
  return launch(hosting<Stage>(), [&](Cluster& cluster) {
    Training job(cluster);
    job.step();
    std::string names;
    for (const auto& name : job.names) names += " " + name;
    say("together" + names);
    if (mode == "steps") run_steps(job, steps);
    if (mode == "kill") lose(job, victim, during, SIGKILL);
    if (mode == "stop") lose(job, victim, during, SIGSTOP);
    if (mode == "train")
      for (;;) job.step();
  });
}
