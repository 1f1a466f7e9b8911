// Logistic regression by three trainers, of which one stalls now and then, under several policies of one
// parameter server: the picture shows the loss over time.
#include <cstdio>
#include <thread>

#include <troupe/server.h>
#include <troupe/tools/program.h>
#include <troupe/troupe.h>
using namespace troupe;

constexpr int64_t kFeatures = 20;

// Points, and on which side of a hidden plane they lie, with some mistakes.
std::pair<Tensor, Tensor> points(int64_t count, Generator& random) {
  Generator hidden(42);
  const Tensor x = randn({count, kFeatures}, random), plane = randn({kFeatures}, hidden);
  return {x, gt(matmul(x, plane) + randn({count}, random), 0.0).to(float32)};
}

Tensor loss_of(const Tensors& w, const Tensor& x, const Tensor& y) {
  return binary_cross_entropy_with_logits(add(matmul(x, w[0]), w[1]), y);
}

struct Accelerator : Actor {  // stands for the time that a larger model takes
  void compute(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
  static constexpr auto remote = methods<&Accelerator::compute>;
};

struct Trainer : Actor {
  Trainer(parallel::Served served, uint64_t seed, int64_t step_ms, double stalls)
      : client(served), random(seed), step_ms(step_ms), stalls(stalls) {}
  Task<void> train(int64_t steps) {
    for (int64_t step = 0; step < steps; ++step) {
      const auto [x, y] = points(32, random);
      autograd::Context context;
      const auto values = client.pull();  // waits for other trainers as the policy says
      const Tensors w = co_await values;
      const auto back = context.backward_async(loss_of(w, x, y));
      co_await back;
      const int64_t ms = random.uniform() < stalls ? 8 * step_ms : step_ms;
      const auto computed = device.with_timeout(Duration::zero()).call<&Accelerator::compute>(ms);
      co_await computed;
      const auto pushed = client.push_context(32);
      (void)co_await pushed;
    }
    const auto left = client.leave();
    co_await left;
  }
  parallel::Client client;
  RRef<Accelerator> device = here().spawn<Accelerator>(here().name());
  Generator random;
  int64_t step_ms;
  double stalls;
  static constexpr auto remote = methods<&Trainer::train>;
};

int main(int argc, char** argv) {
  tools::Flags flags("stalls", "Trains under several policies of a server (troupe run -n 3 stalls).");
  auto& steps = flags.whole("--steps", 150, "of each trainer", {1, 1e6});
  auto& step_ms = flags.whole("--step-ms", 4, "time of a step; eight times that if it stalls", {0, 1e4});
  auto& stalls = flags.number("--stalls", 0.15, "part of the steps that stall, of all trainers", {0, 1});
  auto& trainers = flags.whole("--trainers", 3, "how many", {1, 64});
  auto& policy = flags.text("--policy", "", "bsp, ssp(s), async, quorum(k) or delayed; empty: several");
  auto& lr = flags.number("--lr", 0.3, "learning rate", {0, 100});
  auto& picture = flags.picture("--chart", "stalls.svg", "picture of the loss over time (SVG)");
  if (auto code = flags.reaches("loss <= 0.25", "with each policy").parse(argc, argv)) return *code;

  const auto driver = [&](Cluster& cluster) {
    flags.check_outputs();
    const auto workers = cluster.workers();
    Generator random(7);
    const auto [x, y] = points(2000, random);
    tools::Chart chart{.title = "Loss over time, with stalls", .x_label = "seconds", .left_label = "loss"};
    for (const std::string& name : policy.empty() ? std::vector<std::string>{"bsp", "ssp(3)", "async"}
                                                  : std::vector<std::string>{policy}) {
      const auto served = parallel::serve(
          cluster.here(), {workers[0]}, {zeros({kFeatures}), zeros({1})},
          {.options = {{"lr", lr}}, .policy = parallel::ServerPolicy::parse(name), .trainers = trainers});
      std::vector<RRef<Trainer>> actors;
      std::vector<Future<void>> runs;
      for (size_t i = 1; i <= static_cast<size_t>(trainers); ++i)
        actors.push_back(cluster.spawn<Trainer>(workers[i % workers.size()], served, i, step_ms, stalls));
      const auto start = std::chrono::steady_clock::now();
      for (const auto& t : actors)
        runs.push_back(t.with_timeout(Duration::zero()).call<&Trainer::train>(steps));
      const auto over = all(runs);
      tools::Series line{name};
      for (bool last = false; !last;) {
        last = over.wait_for(std::chrono::milliseconds(20));
        const Tensors now = parallel::read(served).get();
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        line.add(seconds.count(), loss_of(now, x, y).item());
      }
      over.get();
      const auto report = parallel::report(served).get().at(0);
      double used = 0, delay = 0;
      for (const auto& [d, count] : report.delays) used += double(count), delay += double(d * count);
      std::printf("%-8s %5.2f s  loss %.4f  %ld updates, mean delay %.2f, %ld late\n", name.c_str(),
                  line.x.back(), line.y.back(), report.version, delay / std::max(used, 1.0), report.late);
      chart.series.push_back(std::move(line));
    }
    std::printf("picture: %s\n", picture.c_str());
    tools::write_chart(picture, chart);
  };
  // A thread for each that computes at the same time, and some for the server and the trainers.
  return launch(driver, {.threads = static_cast<int>(trainers) + 2});
}
