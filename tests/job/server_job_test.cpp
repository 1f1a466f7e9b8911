// Jobs with parameters and tables in servers: under every policy they go on with the same bits.
#include <catch2/catch.hpp>

#include "data/checkpoint/checkpoint_files.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "troupe/server.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

struct JobTrainer : Actor {
  JobTrainer(parallel::Served served, parallel::ServedTable table, uint64_t seed)
      : client(served), rows(table), random(seed) {}
  Task<void> step(int64_t n) {
    const auto pulled = client.pull();
    const Tensors w = co_await pulled;
    const Tensor gradient = w[0].detach() * 0.1 + ops::randn(w[0].shape(), random);
    const Tensors moved{w[0].detach() - gradient * 0.05}, gradients{gradient};
    const double weight = 1 + static_cast<double>(n % 3);
    const auto pushed =
        client.local_steps() > 0 ? client.push_values(moved, weight) : client.push(gradients, weight);
    (void)co_await pushed;
    const Tensor ids = tensor({n % 11, (n + 4) % 11, (n + 7) % 11}, int64);
    const auto read = rows.pull(ids);
    const Tensor values = co_await read;
    const auto written = rows.push(ids, values.detach() + ops::randn(values.shape(), random), weight);
    (void)co_await written;
  }
  std::string name() { return client.name(); }
  parallel::Client client;
  parallel::TableClient rows;
  Generator random;
  Keep keep{"random", random};
  static constexpr auto remote = methods<&JobTrainer::step, &JobTrainer::name>;
};

struct ServedEnd {
  Tensor values, rows;
  std::vector<std::string> reports;
};

ServedEnd served_run(const std::string& policy, const std::string& optimizer, const Checkpoints& at,
                     int64_t stop, int workers) {
  auto cluster = Cluster::in_process(workers, {}, {.checkpoints = at});
  const auto names = cluster->workers();
  const auto place = [&](size_t i) { return Place(names[i % names.size()]); };
  Generator random(4);
  const parallel::ServerOptions options{.optimizer = optimizer,
                                        .options = {{"lr", 0.05}},
                                        .policy = parallel::ServerPolicy::parse(policy),
                                        .trainers = 2,
                                        .push = parallel::Compression::parse("topk(0.5)")};
  parallel::ServerOptions of_table = options;
  of_table.push = {};
  if (policy.starts_with("local")) of_table.policy = parallel::ServerPolicy::parse("bsp");
  const auto served = parallel::serve(cluster->here(), {place(0), place(1)}, {ops::randn({700}, random)},
                                      options, {.bytes = 1024});
  const auto table = parallel::serve_table(cluster->here(), {place(1), place(2)}, 11, 3, of_table);
  std::vector<RRef<JobTrainer>> trainers;
  for (size_t i = 0; i < 2; ++i)
    trainers.push_back(cluster->spawn<JobTrainer>(place(i + 1), served, table, i));
  Job job(*cluster);
  for (const int64_t step : job.steps(12)) {
    if (step == stop) break;
    for (const auto& trainer : trainers) trainer.call<&JobTrainer::step>(step).get();  // in that order
  }
  ServedEnd out{parallel::read(served).get()[0],
                parallel::read(table, tensor({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, int64)).get(),
                {}};
  for (const auto& report : parallel::report(served).get()) out.reports.push_back(report.str());
  for (const auto& report : parallel::report(table).get()) out.reports.push_back(report.str());
  return out;
}

}  // namespace

TEST_CASE("servers, tables and trainers go on from a checkpoint with the same bits, under every policy") {
  for (const std::string policy : {"bsp", "ssp(1)", "async", "quorum(1)", "delayed", "local(1)"})
    for (const std::string optimizer : {"adam", "sgd"}) {
      INFO(policy << " with " << optimizer);
      const testing::Folder folder;
      const Checkpoints at{(folder.path / "run").string(), true, 3, 2};
      const ServedEnd whole = served_run(policy, optimizer, {}, -1, 3);
      (void)served_run(policy, optimizer, at, 8, 3);
      CHECK(datasets::committed_steps(at.dir).back() <= 6);
      const ServedEnd resumed = served_run(policy, optimizer, at, -1, policy == "bsp" ? 2 : 3);
      CHECK(bit_equal(resumed.values, whole.values));
      CHECK(bit_equal(resumed.rows, whole.rows));
      CHECK(resumed.reports == whole.reports);
    }
}

TEST_CASE("trainers at servers have the paths of their actors, wherever they live") {
  for (const int workers : {1, 2, 4}) {
    auto cluster = Cluster::in_process(workers);
    const auto served = parallel::serve(cluster->here(), {"w0"}, {ones({2})}, {.trainers = 2});
    const auto table = parallel::serve_table(cluster->here(), {"w0"}, 4, 2, {.trainers = 2});
    const std::string last = cluster->workers().back();
    const auto a = cluster->spawn<JobTrainer>(last, served, table, 1);
    const auto b = cluster->spawn<JobTrainer>("w0", served, table, 2);
    const std::string type(internal::actors::type_name<JobTrainer>());
    CHECK(a.call<&JobTrainer::name>().get() == type + "#0/client#0");
    CHECK(b.call<&JobTrainer::name>().get() == type + "#1/client#0");
  }
}

TEST_CASE("a checkpoint with other trainers is refused by their names") {
  const testing::Folder folder;
  const auto run = [&](int64_t count) {
    auto cluster = Cluster::in_process(2, {}, {.checkpoints = {(folder.path / "run").string(), true, 1, 2}});
    const auto served = parallel::serve(cluster->here(), {"w0"}, {ones({2})}, {.trainers = count});
    std::vector<parallel::Client> clients;
    for (int64_t i = 0; i < count; ++i)
      clients.emplace_back(served, parallel::ClientOptions{.name = "t" + std::to_string(i)});
    Job job(*cluster);
    for (const int64_t step : job.steps(2))
      for (auto& client : clients) {
        (void)client.pull().get();
        (void)client.push({ones({2}) * static_cast<double>(step)}).get();
      }
  };
  run(2);
  run(2);
  CHECK_THAT(error_of([&] { run(1); }).what(),
             Contains("the trainers are t0; in the checkpoint they are t0, t1"));
}
