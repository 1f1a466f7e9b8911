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

// Numbers of which sums and means are exact, whatever their order and dtype.
Tensor number_of_rank(size_t rank, const Shape& shape, DType dtype) {
  Generator random(rank + 1);
  const Tensor small = (rand(shape, random) * 6.0).to(int64);
  return dtype == boolean ? small > 2.0 : (small * 12.0).to(dtype);
}

Tensor reduced(const std::vector<Tensors>& xs, size_t i, ReduceOp op) {
  Tensor all = xs[0][i].to(float64);
  for (size_t r = 1; r < xs.size(); ++r) {
    const Tensor x = xs[r][i].to(float64);
    if (op == ReduceOp::min)
      all = ops::minimum(all, x);
    else
      all = op == ReduceOp::max ? ops::maximum(all, x) : all + x;
  }
  if (op == ReduceOp::mean) all = all / static_cast<double>(xs.size());
  return all;
}

// NCCL may multiply by 1 / n.
bool is_reduced(const Tensor& got, const Tensor& right, DType dtype, ReduceOp op) {
  if (got.dtype() != dtype || got.shape() != right.shape()) return false;
  const double most = op != ReduceOp::mean ? 0 : is_half(dtype) ? 1e-2 : 1e-6;
  return allclose(got.to(float64), right, most, 0);
}

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

TEST_CASE("groups on GPUs keep the contract: sums, means, minima and maxima of every dtype") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  const auto there = static_cast<size_t>(std::min(backend_of(Device(kCuda)).devices(), 3));
  in_schedules(2, [&] {
    for (size_t n = 2; n <= there; ++n) {
      begin_anew();
      const Ranks ranks(n, static_cast<int>(n), gpus(n));
      for (const DType dtype : {float32, float64, int64, int32, uint8, boolean, float16, bfloat16})
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max}) {
          if (op == ReduceOp::mean ? !is_floating(dtype) : op == ReduceOp::sum && dtype == boolean) continue;
          CAPTURE(n, name(dtype), static_cast<int>(op));
          std::vector<Tensors> lists, xs;
          for (size_t r = 0; r < n; ++r) {
            lists.push_back({number_of_rank(r, {7, 3}, dtype), number_of_rank(r, {}, dtype)});
            xs.push_back({lists[r][0]});
          }
          const Tensor right = reduced(lists, 0, op);
          for (const Tensors& all : ranks.run("all_reduce", lists, 0, {.op = op}))
            for (size_t i = 0; i < 2; ++i) CHECK(is_reduced(all[i], reduced(lists, i, op), dtype, op));
          const size_t root = n - 1;
          CHECK(is_reduced(ranks.run("reduce", xs, root, {.op = op})[root][0], right, dtype, op));
          Tensors rows;
          for (const Tensors& mine : ranks.run("reduce_scatter", xs, 0, {.op = op})) rows.push_back(mine[0]);
          CHECK(is_reduced(ops::cat(rows, 0), right, dtype, op));
        }
      CHECK(nothing_is_left_on(ranks, n));
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
namespace {

// Does every operation, and works with the results, which stay on its GPU.
struct Keeping : Actor {
  explicit Keeping(int64_t number) : device(kCuda, static_cast<int8_t>(number)) {}

  Task<int64_t> work(Group group) {
    const Tensor x = full({60, 2}, 1 + static_cast<double>(group.rank()), {float32, device});
    const std::vector<Future<Tensor>> all{group.all_reduce(x),     group.reduce(x, 0),  group.broadcast(x, 1),
                                          group.reduce_scatter(x), group.scatter(x, 1), group.gather(x, 0),
                                          group.all_gather(x)};
    const auto exchange = group.all_to_all(Tensors(group.size(), x));
    kept.clear();
    for (const auto& f : all)
      if (const Tensor y = co_await f; y.defined()) kept.push_back(y * 2.0);
    for (const Tensor& y : co_await exchange) kept.push_back(y * 2.0);
    co_return static_cast<int64_t>(kept.size());
  }
  std::vector<double> means() {
    std::vector<double> all;
    for (const Tensor& y : kept) all.push_back(ops::mean(y).item());
    return all;
  }
  const Device device;
  Tensors kept;
  static constexpr auto remote = methods<&Keeping::work, &Keeping::means>;
};

}  // namespace

TEST_CASE("operations from GPU to GPU begin and end without a wait of the host") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  begin_anew();
  sim_cuda::schedule_eagerly();
  const auto cluster = Cluster::in_process(2, hosting<Keeping>());
  const std::vector<RRef<Keeping>> members{cluster->spawn<Keeping>(0, int64_t{0}),
                                           cluster->spawn<Keeping>(1, int64_t{1})};
  const Group group(members);
  const auto work = [&] {
    const auto first = members[0].call<&Keeping::work>(group),
               second = members[1].call<&Keeping::work>(group);
    CHECK(first.get() == 9);
    CHECK(second.get() == 7);
  };
  work();  // the first one makes a communicator
  sim_cuda::reset_counters();
  const uint64_t before = sim_cuda::nccl_counters().launches;
  work();
  CHECK(sim_cuda::counters().synchronizations == 0);
  CHECK(sim_cuda::nccl_counters().launches >= before + 16);
  CHECK(members[0].call<&Keeping::means>().get() == std::vector<double>{6, 6, 4, 6, 4, 3, 3, 2, 4});
  CHECK(members[1].call<&Keeping::means>().get() == std::vector<double>{6, 4, 6, 4, 3, 2, 4});
  CHECK(sim_cuda::take_fault() == "");
}

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
  CHECK_THAT(e.what(), Contains("[nccl] gather float32 [2] to rank 0 between devices: on cuda:") &&
                           Contains(" NCCL says: remote error") && Contains(" answered") &&
                           !Contains("did not answer") && !Contains("lost"));
  for (const size_t r : {1, 2}) CHECK(error_of([&] { failing[r].get(); }).kind() == ErrorKind::failed);
  CHECK(sim_cuda::take_fault() == "");
}
#endif
