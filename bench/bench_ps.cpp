// A parameter server and two workers that pull and push without waiting for each other; and rows of embedding
// tables of all sizes: `troupe run -n 3 bench_ps`.
#include <chrono>

#include "bench/measure.h"
#include "core/async/future_combinators.h"
#include "core/base/generator.h"
#include "parallel/server/served_table.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

struct Trainer : Actor {
  explicit Trainer(parallel::Served served) : client(std::move(served)) {}
  Task<void> run(int64_t steps) {
    const auto first = client.pull();
    Tensors w = co_await first;
    for (int64_t i = 0; i < steps; ++i) {
      const auto next = client.push_pull({ops::mul(w[0], 0.01)});
      w = co_await next;
    }
  }
  parallel::Client client;
  static constexpr auto remote = methods<&Trainer::run>;
};

// Looking up random rows, never the same ones, in tables over three servers.
void lookups(Cluster& cluster, bench::Bench& bench) {
  constexpr int64_t kWidth = 16, kIds = 256;
  Generator random(1);
  const int64_t most = bench.quick() ? 100'000 : 10'000'000;  // which take 640 MB
  for (int64_t rows = 10'000; rows <= most; rows *= 10) {
    const auto table = parallel::serve_table(cluster.here(), {"w0", "w1", "w2"}, rows, kWidth, {});
    std::vector<int64_t> ids(kIds);
    const auto lookup = [&] {
      for (int64_t& id : ids) id = static_cast<int64_t>(random.below(static_cast<uint64_t>(rows)));
      (void)parallel::read(table, tensor(ids)).get();
    };
    lookup();  // the tables are being made
    bench.emit("ps_embedding_lookup_us", bench.median_us(lookup, 300), "us",
               {{"rows", double(rows)}, {"width", kWidth}, {"ids", kIds}});
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_ps", "Times a parameter server with two workers; start it with troupe run -n 3.",
                     argc, argv);
  if (bench.exit_code) return *bench.exit_code;
  return launch(hosting<Trainer>(), [&](Cluster& cluster) {
    const auto names = cluster.workers();
    if (names.size() < 3)
      throw_invalid("[bench] bench_ps needs 3 workers, got " + std::to_string(names.size()));
    if (!LaunchEnvironment::read()) bench.set_placement("in-process");
    for (const auto& [n, steps] : {std::pair<int64_t, int>{1 << 10, 3000}, {1 << 20, 300}}) {
      const auto served = parallel::serve(
          cluster.here(), {names[0]}, {zeros({n})},
          {.options = {{"lr", 0.1}}, .policy = {.kind = parallel::ServerPolicy::Kind::async}, .trainers = 2});
      const std::vector trainers{cluster.spawn<Trainer>(names[1], served),
                                 cluster.spawn<Trainer>(names[2], served)};
      const auto run = [&](int64_t count) {
        std::vector<Future<void>> runs;
        for (const auto& t : trainers) runs.push_back(t.call<&Trainer::run>(count));
        all(runs).get();
      };
      run(3);
      const int64_t count = bench.count(steps);
      const auto start = std::chrono::steady_clock::now();
      run(count);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      bench.emit("ps_pull_push_per_s", 2 * static_cast<double>(count) / took.count(), "1/s",
                 {{"parameters", double(n)}, {"workers", 2}});
    }
    lookups(cluster, bench);
  });
}
