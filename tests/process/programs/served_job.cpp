// A job whose parameters and rows are in servers with a backup. KILL=6: the servers' worker dies in that
// step. Prints the final values, so that runs can be compared.
#include <signal.h>

#include <cstdlib>
#include <thread>

#include "data/checkpoint/checkpoint_files.h"
#include "troupe/server.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

int64_t number(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoll(value) : otherwise;
}

struct Bomb : Actor {
  void explode() { raise(SIGKILL); }
  static constexpr auto remote = methods<&Bomb::explode>;
};

struct Learner : Actor {
  Learner(parallel::Served served, parallel::ServedTable table) : client(served), rows(table) {}
  Task<void> step(int64_t n) {
    const auto pulled = client.pull();
    const Tensors w = co_await pulled;
    const auto pushed = client.push({w[0] * 0.1 + double(n % 5) * 0.01});
    (void)co_await pushed;
    const Tensor ids = tensor(std::vector<int64_t>{n % 7, (n + 3) % 7});
    const auto read = rows.pull(ids);
    const Tensor values = co_await read;
    const auto written = rows.push(ids, values * 0.5 + 0.1);
    (void)co_await written;
  }
  parallel::Client client;
  parallel::TableClient rows;
  static constexpr auto remote = methods<&Learner::step>;
};

void train(Cluster& cluster) {
  parallel::ServerOptions options{.optimizer = "adam", .options = {{"lr", 0.1}}};
  options.backup = "w2";
  const auto served = parallel::serve(cluster.here(), {"w1"}, {ones({40})}, options, {.bytes = 64});
  const auto table = parallel::serve_table(cluster.here(), {"w1"}, 7, 3, options);
  const auto learner = cluster.spawn<Learner>("w3", served, table);
  Job job(cluster);
  for (const int64_t step : job.steps(number("STEPS", 12))) {
    if (step == number("KILL", -1)) {
      // A checkpoint that a worker is lost in fails: none is under way between the first and the last.
      while (datasets::committed_steps(std::getenv("CHECKPOINTS")).empty()) std::this_thread::yield();
      cluster.spawn<Bomb>("w1").tell<&Bomb::explode>();
    }
    learner.call<&Learner::step>(step).get();
  }
  const Tensor all = parallel::read(served).get()[0];
  const Tensor rows = parallel::read(table, tensor(std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6})).get();
  std::printf("final");
  for (const Tensor& t : {all, rows})
    for (const double v : t.to(float64).reshape({-1}).to_vector<double>()) std::printf(" %.17g", v);
  std::printf("\nserver %s\n", parallel::report(table).get()[0].backup.c_str());
}

}  // namespace

int main() {
  return launch(train, {.leak_check = LeakCheck::error,
                        .checkpoints = {.dir = std::getenv("CHECKPOINTS") ? std::getenv("CHECKPOINTS") : "",
                                        .resume = std::getenv("CHECKPOINTS") != nullptr,
                                        .every = 1000}});
}
