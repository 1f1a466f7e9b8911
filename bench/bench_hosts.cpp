// Sums over members that share hosts, by each way: bench/hosts.py starts it on hosts that are network
// namespaces with links of a given rate.
#include <algorithm>
#include <chrono>

#include "bench/measure.h"
#include "core/async/future_combinators.h"
#include "troupe/groups.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

struct HostMember : Actor {
  /// Microseconds that the middle one of so many sums took.
  Task<double> sum(Group group, int64_t elements, int64_t steps, std::string way) {
    Tensor x = full({elements}, static_cast<double>(group.rank() + 1));
    std::vector<double> times;
    for (int64_t i = -2; i < steps; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const CollectiveOptions options{.way = way};
      const auto summing = group.all_reduce(std::move(x), options);
      x = co_await summing;
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
      if (i >= 0) times.push_back(took.count());
      if (i > -2) continue;
      const auto n = static_cast<double>(group.size());
      if (!x.equal(full({elements}, n * (n + 1) / 2))) throw_invalid("[bench] a sum is wrong");
      x = zeros({elements});
    }
    std::sort(times.begin(), times.end());
    co_return times[times.size() / 2];
  }
  Task<std::string> tune(Group group) {
    const std::string text = co_await group.tune();
    co_return text + "\n" + group.print(25 << 20);
  }
  static constexpr auto remote = methods<&HostMember::sum, &HostMember::tune>;
};

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_hosts", "Times sums over hosts, by each way; bench/hosts.py starts it.", argc,
                     argv);
  if (bench.exit_code) return *bench.exit_code;
  return launch(hosting<HostMember>(), [&](Cluster& cluster) {
    std::vector<RRef<HostMember>> members;
    for (const auto& name : cluster.workers()) members.push_back(cluster.spawn<HostMember>(name));
    const Group group(members);
    const auto hosts = static_cast<double>(group.hosts()), ranks = static_cast<double>(group.size());
    const auto sent = [&] {
      int64_t bytes = 0;
      for (const auto& name : cluster.workers())
        bytes += cluster.metrics(name).at("collective_bytes_between_hosts_sent");
      return static_cast<double>(bytes) / hosts;
    };
    const auto time = [&](const std::string& name, const std::string& way, int kib, int steps) {
      const double before = sent();
      std::vector<Future<double>> times;
      for (const auto& m : members)
        times.push_back(m.with_timeout(std::chrono::minutes(5))
                            .call<&HostMember::sum>(group, int64_t{kib} * 256, int64_t{steps}, way));
      const double us = all(times).get()[0];
      bench.emit("hosts_allreduce_" + name + "_us", us, "us",
                 {{"kib", kib},
                  {"hosts", hosts},
                  {"ranks", ranks},
                  {"mib_from_host", (sent() - before) / (steps + 2) / (1 << 20)}});
    };
    using Sizes = std::vector<std::pair<int, int>>;
    const Sizes sizes =
        bench.quick() ? Sizes{{64, 1}, {1024, 1}} : Sizes{{4, 100}, {64, 50}, {1024, 20}, {25600, 5}};
    for (const auto& [kib, steps] : sizes)
      for (const char* way : {"whole", "direct", "ring", "hierarchical"})
        if (kib < 25600 || way != std::string("whole")) time(way, way, kib, steps);
    for (const auto& [kib, steps] : sizes) time("chosen", "", kib, steps);
    std::vector<Future<std::string>> tuning;
    for (const auto& m : members) tuning.push_back(m.call<&HostMember::tune>(group));
    std::fprintf(stderr, "%s", all(tuning).get()[0].c_str());
    for (const auto& [kib, steps] : sizes) time("tuned", "", kib, steps);
  });
}
