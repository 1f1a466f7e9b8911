// Jobs go on with exactly the rows that were not used, with other readers, and other ranks.
#include <catch2/catch.hpp>

#include "core/tensor/creation.h"
#include "tests/support/folder.h"
#include "tests/support/stopped_run.h"
#include "troupe/data.h"
#include "troupe/replicas.h"

using namespace troupe;

namespace {

constexpr int64_t kRows = 97;
using Workers = std::vector<std::string>;

datasets::Pipeline job_numbers(int64_t rows) {
  return datasets::Pipeline(datasets::in_memory({arange(kRows), arange(kRows)}))
      .shuffle({.seed = 4, .block = 8})
      .batch(rows)
      .repeat(3);
}

std::vector<int64_t> numbers_of(const datasets::FedBatch& batch) {
  return batch.rows ? batch.tensor("x").to_vector<int64_t>() : std::vector<int64_t>();
}

std::vector<int64_t> undisturbed() {
  std::vector<int64_t> out;
  datasets::Feed feed(job_numbers(10));
  while (const auto batch = feed.next())
    for (const int64_t n : numbers_of(*batch)) out.push_back(n);
  return out;
}

// By step: the numbers that it used.
using Used = std::map<int64_t, std::vector<int64_t>>;

Used driver_run(const Checkpoints& checkpoints, const Workers& readers, int64_t rows, int64_t stop) {
  auto cluster = Cluster::in_process(4, {}, {.checkpoints = checkpoints});
  datasets::FeedOptions options;
  if (!readers.empty()) options.readers = datasets::readers(*cluster, readers);
  datasets::Feed feed(datasets::recipe<job_numbers>(rows), options);
  Used used;
  Job job(*cluster);
  for (const int64_t step : job.steps()) {
    if (stop && testing::has_stopped(checkpoints.dir, step, stop)) break;
    const auto batch = feed.next();
    if (!batch) break;
    used[step] = numbers_of(*batch);
  }
  return used;
}

// A replica that has its rank's rows from its own feed.
struct FedReplica : nn::ModuleActor<nn::Linear> {
  FedReplica(int64_t rank, int64_t ranks, int64_t rows, const Workers& readers)
      : ModuleActor(1, 1),
        feed(datasets::recipe<job_numbers>(rows),
             {.rank = rank,
              .ranks = ranks,
              .readers =
                  readers.empty() ? datasets::detail::MakeReading() : datasets::readers(here(), readers)}) {}
  Task<std::pair<Tensor, double>> loss(Tensor) {
    const auto batch = co_await datasets::later(feed);
    seen = batch ? numbers_of(*batch) : std::vector<int64_t>{-1};
    if (!batch || !batch->rows) co_return std::pair(ops::sum(net.weight) * 0, batch ? 0.0 : 1.0);
    co_return std::pair(ops::mean(net(batch->tensor("x").to(float32).reshape({batch->rows, 1}))),
                        double(batch->rows));
  }
  std::vector<int64_t> used() { return seen; }
  std::vector<int64_t> seen;
  Keep keep{Keep::anew, seen};
  datasets::Feed feed;
  static constexpr auto remote = methods<&FedReplica::loss, &FedReplica::used>;
};

Used replicas_run(const Checkpoints& checkpoints, size_t ranks, const Workers& readers, int64_t rows,
                  int64_t stop) {
  auto cluster = Cluster::in_process(5, {}, {.checkpoints = checkpoints});
  std::vector<RRef<FedReplica>> replicas;
  for (size_t r = 0; r < ranks; ++r)
    replicas.push_back(cluster->spawn<FedReplica>(r, int64_t(r), int64_t(ranks), rows, readers));
  parallel::DataParallel<FedReplica> net(replicas);
  optim::Distributed<optim::SGD> optimizer(net, {.lr = 1e-6});
  Used used;
  Job job(*cluster);
  for (const int64_t step : job.steps()) {
    if (stop && testing::has_stopped(checkpoints.dir, step, stop)) break;
    {
      autograd::Context context(*cluster);
      context.backward(net.mean<&FedReplica::loss>(parallel::split(zeros({int64_t(ranks)}))).get());
      optimizer.step(context);
    }
    std::vector<int64_t> all;
    for (auto& replica : replicas)
      for (const int64_t n : replica.call<&FedReplica::used>().get()) all.push_back(n);
    if (all.front() == -1) break;
    used[step] = all;
  }
  return used;
}

// What the first run used up to the step that the second begins with, and what that used.
std::vector<int64_t> together(const Used& first, const Used& second) {
  std::vector<int64_t> out;
  for (const auto& [step, numbers] : first)
    if (step < second.begin()->first) out.insert(out.end(), numbers.begin(), numbers.end());
  for (const auto& [step, numbers] : second) out.insert(out.end(), numbers.begin(), numbers.end());
  return out;
}

}  // namespace

TEST_CASE("a job goes on with other readers and rows with those that were not used") {
  const auto whole = undisturbed();
  REQUIRE(whole.size() == 3 * kRows);
  for (const auto& [before, after] :
       {std::pair(Workers{}, Workers{"w1", "w2"}), std::pair(Workers{"w1"}, Workers{"w3", "w2", "w1"}),
        std::pair(Workers{"w1", "w3"}, Workers{})}) {
    const testing::Folder folder;
    const std::string dir = (folder.path / "run").string();
    const auto first = driver_run({dir, false, 1, 2}, before, 5, 8);
    const auto second = driver_run({dir, true, 1, 2}, after, 7, 0);
    CHECK(second.begin()->first > 0);
    CHECK(together(first, second) == whole);
  }
}

TEST_CASE("a job of replicas with feeds of their own goes on with other numbers of them and of readers") {
  const auto whole = undisturbed();
  for (const auto& [before, after] : {std::pair(2, 3), std::pair(3, 1), std::pair(1, 4)}) {
    const testing::Folder folder;
    const std::string dir = (folder.path / "run").string();
    const auto first =
        replicas_run({dir, false, 1, 2}, size_t(before), before == 1 ? Workers{} : Workers{"w4", "w3"}, 9, 5);
    const auto second = replicas_run({dir, true, 1, 2}, size_t(after), {"w4"}, 10, 0);
    INFO(before << " and " << after);
    CHECK(second.begin()->first > 0);
    CHECK(together(first, second) == whole);
  }
}
