// The contract of operations of groups from GPU to GPU, of those above all that are made of sends and
// receives: gather, scatter, all_to_all. And what is said when NCCL reports an error.
#include <algorithm>

#include "tests/contract/groups.h"
#include "tests/cuda/gpus.h"
#include "tests/cuda_groups/schedules.h"
#include "tests/support/eventually.h"
#ifdef TROUPE_CUDA_SIM
#include "tests/support/sim_cuda/nccl_sim.h"
#include "tests/support/sim_cuda/sim.h"
#endif

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

std::vector<Device> gpus(size_t count) {
  std::vector<Device> all;
  for (size_t i = 0; i < count; ++i) all.emplace_back(kCuda, static_cast<int8_t>(i));
  return all;
}

// The threads of another cluster have used the devices.
void begin_anew() {
#ifdef TROUPE_CUDA_SIM
  sim_cuda::reset_nccl();
#endif
}

bool nothing_is_left_on(const Ranks& ranks, size_t workers) {
  return eventually([&] {
    int64_t left = 0;
    for (size_t w = 0; w < workers; ++w)
      for (const char* metric : {"collectives", "early_collectives", "device_collectives", "device_turns"})
        left += ranks.cluster->metrics("w" + std::to_string(w)).at(metric);
    return left == 0;
  });
}

// Gathers, scatters and exchanges in groups that have members in common, each in an order of its own.
struct Crossing : Actor {
  explicit Crossing(int64_t number) : device(kCuda, static_cast<int8_t>(number)) {}

  Tensor mine(double value, int64_t rows = 300) const { return full({rows, 2}, value, {float32, device}); }
  // What is wrong.
  Task<int64_t> run(std::vector<Group> groups, int64_t first, int64_t rounds) {
    std::vector<Future<Tensor>> gathers, scatters;
    std::vector<Future<Tensors>> exchanges;
    std::vector<std::pair<size_t, int64_t>> called;  // group, round
    for (int64_t i = 0; i < rounds; ++i)
      for (size_t g = 0; g < groups.size(); ++g) {
        const size_t at = (g + static_cast<size_t>(first)) % groups.size();
        const Group& group = groups[at];
        const size_t n = group.size(), root = static_cast<size_t>(i) % n;
        const double value = 100.0 * static_cast<double>(i) + 10.0 * static_cast<double>(group.rank());
        gathers.push_back(group.gather(mine(value), root));
        scatters.push_back(group.scatter(mine(value, static_cast<int64_t>(2 * n)), root));
        Tensors blocks;
        for (size_t k = 0; k < n; ++k) blocks.push_back(mine(value + static_cast<double>(k), 40));
        exchanges.push_back(group.all_to_all(std::move(blocks)));
        called.emplace_back(at, i);
      }
    int64_t wrong = 0;
    for (size_t c = 0; c < called.size(); ++c) {
      const auto [at, i] = called[c];
      const size_t n = groups[at].size(), root = static_cast<size_t>(i) % n, rank = groups[at].rank();
      const double round = 100.0 * static_cast<double>(i);
      const Tensor gathered = co_await gathers[c];
      const Tensor scattered = co_await scatters[c];
      const Tensors exchanged = co_await exchanges[c];
      Tensors all;
      for (size_t k = 0; k < n; ++k) all.push_back(full({300, 2}, round + 10.0 * static_cast<double>(k)));
      wrong += rank == root ? !gathered.to(cpu).equal(ops::cat(all, 0)) : gathered.defined();
      wrong += !scattered.to(cpu).equal(full({2, 2}, round + 10.0 * static_cast<double>(root)));
      for (size_t k = 0; k < n; ++k)
        wrong += !exchanged[k].to(cpu).equal(
            full({40, 2}, round + 10.0 * static_cast<double>(k) + static_cast<double>(rank)));
    }
    co_return wrong;
  }
  const Device device;
  static constexpr auto remote = methods<&Crossing::run>;
};

}  // namespace

TEST_CASE("groups on GPUs keep the contract: each element comes to where it belongs") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  const auto there = static_cast<size_t>(std::min(backend_of(Device(kCuda)).devices(), 4));
  in_schedules(3, [&] {
    for (size_t n = 2; n <= there; ++n) {
      begin_anew();
      const Ranks ranks(n, static_cast<int>(n), gpus(n), n % 2 == 0);
      check_each_element_comes(ranks, {float32, boolean, bfloat16, float16});
      CHECK(nothing_is_left_on(ranks, n));
#ifdef TROUPE_CUDA_SIM
      CHECK(sim_cuda::nccl_counters().inits == n);  // one communicator
      CHECK(sim_cuda::nccl_counters().transfers > 0);
#endif
    }
  });
}

TEST_CASE("groups on GPUs keep the contract: the order of calls, and what is refused before it is sent") {
  if (!needs_gpus(3)) return;
  const NoGradGuard off;
  in_schedules(3, [] {
    begin_anew();
    const Ranks ranks(3, 3, gpus(3));
    check_order_of_calls(ranks);
    const auto sent = [&] {
#ifdef TROUPE_CUDA_SIM
      return sim_cuda::nccl_counters().launches;
#else
      return 0;
#endif
    };
    const auto before = sent();
    const auto failed =
        ranks.call("all_to_all",
                   {Tensors(3, zeros({2, 3})), Tensors(3, zeros({2, 4})), Tensors(3, zeros({2, 3}))}, 0, {});
    for (const auto& f : failed)
      CHECK_THAT(error_of([&] { f.get(); }).what(),
                 Contains("rank 0 (troupe::testing::RankActor#0:1 on w0)") &&
                     Contains("rank 1 (troupe::testing::RankActor#0:2 on w1)"));
    CHECK(sent() == before);
    check_what_is_refused(ranks);
    CHECK(nothing_is_left_on(ranks, 3));
  });
}

TEST_CASE("groups whose ranks share a GPU keep the contract, by memory of the host") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  begin_anew();
  const Ranks ranks(3, 3, {gpu0, gpu0, gpu1});
  check_each_element_comes(ranks, {float32, bfloat16});
  check_what_is_refused(ranks);
  CHECK(nothing_is_left_on(ranks, 3));
#ifdef TROUPE_CUDA_SIM
  CHECK(sim_cuda::nccl_counters().launches == 0);
  CHECK(sim_cuda::take_fault() == "");
#endif
}

TEST_CASE("gathers, scatters and exchanges of groups with common members do not lock up, in any order") {
  if (!needs_gpus(3)) return;
  const NoGradGuard off;
  in_schedules(6, [] {
    begin_anew();
    const auto cluster = Cluster::in_process(3, hosting<Crossing>());
    std::vector<RRef<Crossing>> members;
    for (int r = 0; r < 3; ++r) members.push_back(cluster->spawn<Crossing>(r, int64_t{r}));
    const Group all(members), turned = all.subset({2, 0, 1}, "turned"), pair = all.subset({1, 0}, "pair"),
                              other = all.subset({1, 2}, "other");
    const std::vector<std::vector<Group>> groups{
        {all, turned, pair}, {all, turned, pair, other}, {all, turned, other}};
    std::vector<Future<int64_t>> wrong;
    for (size_t r = 0; r < 3; ++r)
      wrong.push_back(members[r].call<&Crossing::run>(groups[r], static_cast<int64_t>(r + 1), int64_t{4}));
    for (const auto& w : wrong) CHECK(w.get() == 0);
  });
}

#ifdef TROUPE_CUDA_SIM
TEST_CASE("an error of NCCL names no worker that is there") {
  if (!needs_gpus(3)) return;
  const NoGradGuard off;
  begin_anew();
  sim_cuda::schedule_eagerly();
  const Ranks ranks(3, 3, gpus(3));
  const std::vector<Tensors> xs(3, {ones({4, 2})});
  ranks.run("gather", xs);
  sim_cuda::kill_gpu(2, true);  // its worker answers
  const auto failing = ranks.call("gather", xs, 0, {});
  const Error e = error_of([&] { failing[0].get(); });
  CHECK(e.kind() == ErrorKind::failed);
  CHECK(e.worker() == "");
  CHECK_THAT(e.what(), Contains("[nccl] gather float32 to rank 0 between devices: on cuda:") &&
                           Contains(" NCCL says: remote error") && Contains(" answered") &&
                           !Contains("did not answer") && !Contains("lost"));
  for (const size_t r : {1, 2}) CHECK(error_of([&] { failing[r].get(); }).kind() == ErrorKind::failed);
  CHECK(sim_cuda::take_fault() == "");
}
#endif
