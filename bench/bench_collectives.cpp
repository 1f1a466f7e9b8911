// Sums over groups of two and of four workers, in place, and small operations by memory and by messages:
// `troupe run -n 4 bench_collectives`.
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
  /// The same of a small operation: by memory that the members share, or by messages, which a way is.
  Task<std::vector<double>> small(Group group, std::string what, int64_t steps, std::string way) {
    Tensor x = ones({1024});
    Tensors list{ones({512}), ones({512})};
    std::vector<double> times;
    for (int64_t i = -50; i < steps; ++i) {
      CollectiveOptions options{.tag = what + way, .way = way};
      const auto start = std::chrono::steady_clock::now();
      if (what == "barrier") {
        const auto met = group.barrier(options);
        co_await met;
      } else if (what == "allreduce_list") {
        const auto summing = group.all_reduce(std::move(list), options);
        list = co_await summing;
      } else {
        const auto doing = what == "broadcast" ? group.broadcast(x, 0, options)
                           : what == "reduce"  ? group.reduce(x, 0, options)
                                               : group.all_gather(x, options);
        (void)co_await doing;
      }
      if (i < 0) continue;
      times.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    std::sort(times.begin(), times.end());
    co_return std::vector<double>{times[times.size() / 2], times[0]};
  }
  static constexpr auto remote = methods<&Member::sum, &Member::small>;
};

void measure_small(const bench::Bench& bench, const std::vector<RRef<Member>>& members, const Group& group) {
  const bool two = group.size() == 2;
  const std::vector<std::pair<std::string, std::string>> ways{{"barrier", "doubling"},
                                                              {"broadcast", two ? "whole" : "tree"},
                                                              {"reduce", "whole"},
                                                              {"all_gather", "direct"},
                                                              {"allreduce_list", "whole"}};
  for (const auto& [what, by_messages] : ways) {
    std::vector<double> us;
    for (const std::string& way : {std::string(), by_messages}) {
      std::vector<Future<std::vector<double>>> times;
      for (const auto& m : members)
        times.push_back(m.call<&Member::small>(group, what, int64_t{bench.count(2000)}, way));
      us.push_back(all(times).get()[0][bench.least()]);
    }
    bench.emit(what + "_us", us[0], "us",
               {{"kib", what == "barrier" ? 0 : 4},
                {"ranks", static_cast<double>(group.size())},
                {"by_messages_us", us[1]}});
  }
}

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
      measure_small(bench, members, group);
    }
  });
}
