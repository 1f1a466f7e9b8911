// Five stages on five workers, forward and backward, as a user writes them: e(d(c(b(a(x))))). Beside it, in
// turns, the same with each result in a variable, so that it comes to the caller. `troupe run -n 6
// bench_chain`.
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

constexpr int kStages = 5;

struct Stage : Actor {
  explicit Stage(double scale) : w(full({1}, scale)) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return x * w; }
  Tensor w;
  static constexpr auto remote = methods<&Stage::forward>;
};

Tensor straight(const std::vector<RRef<Stage>>& s, const Tensor& x) {
  return s[4](s[3](s[2](s[1](s[0](x))))).get();
}
Tensor stored(const std::vector<RRef<Stage>>& s, const Tensor& x) {
  const auto a = s[0](x), b = s[1](a), c = s[2](b), d = s[3](c), e = s[4](d);
  return e.get();
}

struct ChainTimes {
  Cluster& cluster;
  const bench::Bench& bench;
  const std::vector<RRef<Stage>>& stages;

  template <class Forward>
  double step_us(const Tensor& base, Forward&& forward) const {
    const auto start = std::chrono::steady_clock::now();
    autograd::Context step(cluster);
    Tensor x = base.detach();
    x.requires_grad_();
    step.backward(forward(stages, x).sum());
    (void)step.grad(x);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }
  /// `elements` of float32.
  void run(int64_t elements, int steps) const {
    const Tensor x = full({elements}, 0.5);
    std::vector<double> times[2];
    for (int i = -3; i < bench.count(steps); ++i) {
      const double both[] = {step_us(x, straight), step_us(x, stored)};
      for (int way = 0; i >= 0 && way < 2; ++way) times[way].push_back(both[way]);
    }
    for (auto& t : times) std::sort(t.begin(), t.end());
    const auto middle = [&](int way) { return times[way][bench.least() ? 0 : times[way].size() / 2]; };
    bench.emit("chain_step_us", middle(0), "us",
               {{"stages", kStages}, {"bytes", double(elements * 4)}, {"through_caller_us", middle(1)}});
  }
};

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_chain",
                     "Times steps of a chain of five stages; start it with troupe run -n 6, or alone.", argc,
                     argv);
  if (bench.exit_code) return *bench.exit_code;
  return launch(hosting<Stage>(), [&](Cluster& cluster) {
    const auto names = cluster.workers();
    if (names.size() < kStages + 1)
      throw_invalid("[bench] bench_chain needs 6 workers, got " + std::to_string(names.size()));
    if (!LaunchEnvironment::read()) bench.set_placement("in-process");
    std::vector<RRef<Stage>> stages;
    for (int i = 0; i < kStages; ++i)
      stages.push_back(cluster.spawn<Stage>(names[static_cast<size_t>(1 + i)], 1 + 0.1 * i));
    const ChainTimes times{cluster, bench, stages};
    times.run(64, 400);               // 256 B
    times.run(16 << 10, 300);         // 64 KiB
    times.run(256 << 10, 100);        // 1 MiB
    times.run(int64_t{4} << 20, 20);  // 16 MiB
  });
}
