// Sums over groups of two and of four workers, in place: `troupe run -n 4 bench_collectives`.
#include <algorithm>
#include <chrono>

#include "bench/measure.h"
#include "core/async/future_combinators.h"
#include "troupe/groups.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

struct Member : Actor {
  /// Microseconds that the middle one of so many sums took, and the shortest, after a few that do not count.
  Task<std::vector<double>> sum(Group group, int64_t elements, int64_t steps) {
    Tensor x = full({elements}, static_cast<double>(group.rank() + 1));
    std::vector<double> times;
    for (int64_t i = -5; i < steps; ++i) {
      const auto start = std::chrono::steady_clock::now();
      {
        const auto summing = group.all_reduce(std::move(x));
        x = co_await summing;
      }
      if (i >= 0)
        times.push_back(
            std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
      if (i > -5) continue;
      const auto n = static_cast<double>(group.size());
      if (!x.equal(full({elements}, n * (n + 1) / 2))) throw_invalid("[bench] a sum is wrong");
      x = zeros({elements});
    }
    std::sort(times.begin(), times.end());
    co_return std::vector<double>{times[times.size() / 2], times[0]};
  }
  static constexpr auto remote = methods<&Member::sum>;
};

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_collectives",
                     "Times sums over two and four workers; start it with troupe run -n 4, or alone.", argc,
                     argv);
  if (bench.exit_code) return *bench.exit_code;
  return launch(hosting<Member>(), [&](Cluster& cluster) {
    const auto names = cluster.workers();
    if (names.size() < 4)
      throw_invalid("[bench] bench_collectives needs 4 workers, got " + std::to_string(names.size()));
    if (!LaunchEnvironment::read()) bench.set_placement("in-process");
    for (const size_t n : {2, 4}) {
      std::vector<RRef<Member>> members;
      for (size_t r = 0; r < n; ++r) members.push_back(cluster.spawn<Member>(names[r]));
      const Group group(members);
      for (const auto& [kib, steps] : {std::pair{4, 2000}, {1024, 300}, {25600, 40}}) {
        std::vector<Future<std::vector<double>>> all_times;
        for (const auto& m : members)
          all_times.push_back(
              m.with_timeout(std::chrono::minutes(5))
                  .call<&Member::sum>(group, int64_t{kib} * 256, static_cast<int64_t>(bench.count(steps))));
        const double us = all(all_times).get()[0][bench.least()];
        const auto ranks = static_cast<double>(n);
        bench.emit("allreduce_us", us, "us",
                   {{"kib", kib},
                    {"ranks", ranks},
                    {"bus_gb_per_s", 2 * (ranks - 1) / ranks * kib * 1024 / us * 1e-3}});
      }
    }
  });
}
