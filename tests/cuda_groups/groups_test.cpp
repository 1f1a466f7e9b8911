// Operations of groups from GPU to GPU: by NCCL, in turns.
#include <algorithm>
#include <chrono>

#include "tests/cuda/gpus.h"
#include "tests/cuda_groups/schedules.h"
#include "tests/support/error_of.h"
#include "tests/support/eventually.h"
#include "troupe/groups.h"
#include "troupe/troupe.h"
#ifdef TROUPE_CUDA_SIM
#include "tests/support/sim_cuda/nccl_sim.h"
#include "tests/support/sim_cuda/sim.h"
#endif

using namespace troupe;
using namespace troupe::testing;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

constexpr int kRanks = 3;

Device gpu(int64_t n) { return Device(kCuda, static_cast<int8_t>(n)); }

struct Member : Actor {
  explicit Member(int64_t number) : number(number) {}

  // Its elements are `value` + rank.
  Tensor own(const Group& group, const Shape& shape, double value) const {
    return full(shape, value + static_cast<double>(group.rank()), {float32, gpu(number)});
  }
  Task<Tensor> run(Group group, std::string what, int64_t rows) {
    const Tensor x = own(group, {rows, 2}, 1);
    Future<Tensor> result;
    if (what == "all_reduce") result = group.all_reduce(x);
    if (what == "mean") result = group.all_reduce(x, {.op = ReduceOp::mean});
    if (what == "reduce") result = group.reduce(x, 1);
    if (what == "broadcast") result = group.broadcast(x, 1);
    if (what == "reduce_scatter") result = group.reduce_scatter(x);
    if (what == "all_gather") result = group.all_gather(x);
    const Tensor y = co_await result;
    co_return y.defined() ? (y * 2.0).to(cpu) : y;  // by a kernel of the actor's own stream
  }
  // Many sums in each group, each group in an order of its own; what is wrong.
  Task<int64_t> both(Group a, Group b, bool a_first, int64_t rounds) {
    std::vector<Future<Tensor>> sums;
    std::vector<double> expected;
    const auto begin = [&](const Group& g, double value) {
      const double n = static_cast<double>(g.size());
      sums.push_back(g.all_reduce(own(g, {1000}, value)));
      expected.push_back(n * value + n * (n - 1) / 2);
    };
    for (int64_t i = 0; i < rounds; ++i) {
      if (a_first && a.size()) begin(a, 10.0 * static_cast<double>(i));
      if (b.size()) begin(b, 1000.0 + static_cast<double>(i));
      if (!a_first && a.size()) begin(a, 10.0 * static_cast<double>(i));
    }
    int64_t wrong = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      const Tensor y = co_await sums[i];
      wrong += !y.to(cpu).equal(full({1000}, expected[i]));
    }
    co_return wrong;
  }
  Task<std::vector<double>> list(Group group, int64_t tensors) {
    Tensors xs;
    for (int64_t i = 0; i < tensors; ++i) xs.push_back(own(group, {1 + i % 5}, static_cast<double>(i)));
    const auto sums = group.all_reduce(std::move(xs));
    const Tensors all = co_await sums;
    std::vector<double> means;
    for (const Tensor& y : all) means.push_back(ops::mean(y).item());
    co_return means;
  }
  Task<std::string> fails(Group group, int64_t size, double seconds) {
    const auto sum = group.all_reduce(
        own(group, {size}, 1),
        {.timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds))});
    try {
      (void)co_await sum;
    } catch (const Error& e) {
      co_return std::string(name(e.kind())) + ": " + e.what();
    }
    co_return "a sum";
  }
  void drop(Group group) { (void)group.all_reduce(own(group, {1000}, 1)); }
  int64_t number;
  static constexpr auto remote =
      methods<&Member::run, &Member::both, &Member::list, &Member::fails, &Member::drop>;
};

struct Members {
  explicit Members(int ranks = kRanks, std::vector<int64_t> gpus = {}) {
#ifdef TROUPE_CUDA_SIM
    sim_cuda::reset_nccl();  // the threads of another cluster have used the devices
#endif
    cluster = Cluster::in_process(ranks, hosting<Member>());
    for (int64_t r = 0; r < ranks; ++r)
      all.push_back(
          cluster->spawn<Member>(static_cast<int>(r), gpus.empty() ? r : gpus[static_cast<size_t>(r)]));
    group = Group(all);
  }
  std::vector<Tensor> run(const std::string& what, const std::vector<int64_t>& rows) const {
    std::vector<Future<Tensor>> results;
    for (size_t r = 0; r < all.size(); ++r)
      results.push_back(all[r].call<&Member::run>(group, what, rows[r]));
    std::vector<Tensor> came;
    for (const auto& f : results) came.push_back(f.get());
    return came;
  }
  bool nothing_is_left() {
    return eventually([&] {
      int64_t left = 0;
      for (size_t w = 0; w < all.size(); ++w)
        for (const char* metric : {"collectives", "early_collectives", "device_collectives", "device_turns"})
          left += cluster->metrics("w" + std::to_string(w)).at(metric);
      return left == 0;
    });
  }
  std::unique_ptr<Cluster> cluster;
  std::vector<RRef<Member>> all;
  Group group;
};

}  // namespace

TEST_CASE("operations of groups go from GPU to GPU") {
  if (!needs_gpus(kRanks)) return;
  const NoGradGuard off;
  in_schedules(4, [] {
    Members m;
    for (int i = 0; i < 2; ++i) {
      const std::vector<int64_t> even(kRanks, 6), four(kRanks, 4), uneven{1, 2, 3};
      for (const Tensor& y : m.run("all_reduce", even)) CHECK(y.equal(full({6, 2}, 12.0)));
      for (const Tensor& y : m.run("mean", even)) CHECK(y.equal(full({6, 2}, 4.0)));
      const auto reduced = m.run("reduce", even);
      CHECK(reduced[1].equal(full({6, 2}, 12.0)));
      CHECK_FALSE(reduced[0].defined());
      for (const Tensor& y : m.run("broadcast", even)) CHECK(y.equal(full({6, 2}, 4.0)));
      for (const Tensor& y : m.run("reduce_scatter", even)) CHECK(y.equal(full({2, 2}, 12.0)));
      const auto parts = m.run("reduce_scatter", four);
      CHECK(parts[0].equal(full({2, 2}, 12.0)));
      CHECK(parts[2].equal(full({1, 2}, 12.0)));
      const Tensor gathered = ops::cat({full({6, 2}, 2.0), full({6, 2}, 4.0), full({6, 2}, 6.0)}, 0);
      for (const Tensor& y : m.run("all_gather", even)) CHECK(y.equal(gathered));
      const Tensor unlike = ops::cat({full({1, 2}, 2.0), full({2, 2}, 4.0), full({3, 2}, 6.0)}, 0);
      for (const Tensor& y : m.run("all_gather", uneven)) CHECK(y.equal(unlike));
    }
    for (const Tensor& y : m.run("all_reduce", {0, 0, 0})) CHECK(y.numel() == 0);
#ifdef TROUPE_CUDA_SIM
    CHECK(sim_cuda::nccl_counters().inits == kRanks);  // one communicator
#endif
    CHECK(m.nothing_is_left());
  });
#ifdef TROUPE_CUDA_SIM
  CHECK(sim_cuda::nccl_counters().collectives >= 14);
#endif
}

TEST_CASE("a list of more tensors than one call of NCCL takes is summed") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  in_schedules(2, [] {
    Members m(2);
    std::vector<Future<std::vector<double>>> results;
    for (const auto& a : m.all) results.push_back(a.call<&Member::list>(m.group, int64_t{150}));
    for (const auto& f : results) {
      const std::vector<double> means = f.get();
      REQUIRE(means.size() == 150);
      for (size_t i = 0; i < means.size(); ++i) CHECK(means[i] == 2.0 * static_cast<double>(i) + 1);
    }
  });
}

TEST_CASE("groups that have members in common do not lock up, whatever the order of their calls") {
  if (!needs_gpus(kRanks)) return;
  const NoGradGuard off;
  in_schedules(6, [] {
    Members m;
    const Group a = m.group.subset({0, 1}, "a"), b = m.group.subset({1, 2}, "b"), none;
    const auto first = m.all[0].call<&Member::both>(a, none, true, int64_t{12}),
               second = m.all[1].call<&Member::both>(a, b, true, int64_t{12}),
               third = m.all[2].call<&Member::both>(none, b, false, int64_t{12});
    CHECK(first.get() == 0);
    CHECK(second.get() == 0);
    CHECK(third.get() == 0);
    const Group c = m.group.subset({0, 1, 2}, "c"), d = m.group.subset({2, 1, 0}, "d");
    const auto one = m.all[0].call<&Member::both>(c, d, true, int64_t{8}),
               two = m.all[1].call<&Member::both>(c, d, false, int64_t{8}),
               three = m.all[2].call<&Member::both>(c, d, true, int64_t{8});
    CHECK(one.get() + two.get() + three.get() == 0);
    CHECK(m.nothing_is_left());
  });
}

TEST_CASE(
    "an operation on GPUs that one member does not call, or brings differently, fails, and the next one "
    "goes") {
  if (!needs_gpus(kRanks)) return;
  const NoGradGuard off;
  Members m;
  const auto first = m.all[0].call<&Member::fails>(m.group, int64_t{10}, 0.5),
             second = m.all[1].call<&Member::fails>(m.group, int64_t{10}, 0.5);
  CHECK_THAT(first.get(), Contains("deadline") && Contains("w2) has not called it"));
  CHECK_THAT(second.get(), Contains("deadline"));
  (void)m.all[2].call<&Member::fails>(m.group, int64_t{10}, 0.5).get();
  const auto ten = m.all[0].call<&Member::fails>(m.group, int64_t{10}, 5.0),
             eleven = m.all[1].call<&Member::fails>(m.group, int64_t{11}, 5.0),
             twelve = m.all[2].call<&Member::fails>(m.group, int64_t{12}, 5.0);
  CHECK_THAT(ten.get(), Contains("ranks brought different shapes"));
  CHECK_THAT(eleven.get(), Contains("between devices"));
  CHECK_THAT(twelve.get(), Contains("invalid"));
  for (const Tensor& y : m.run("all_reduce", std::vector<int64_t>(kRanks, 2)))
    CHECK(y.equal(full({2, 2}, 12.0)));
  CHECK(m.nothing_is_left());
}

TEST_CASE("ranks on one GPU, and workers that share one, go by memory of the host") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  Members m(kRanks, {0, 0, 1});
  for (const Tensor& y : m.run("all_reduce", std::vector<int64_t>(kRanks, 2)))
    CHECK(y.equal(full({2, 2}, 12.0)));
  for (const Tensor& y : m.run("all_gather", std::vector<int64_t>(kRanks, 1)))
    CHECK(y.equal(ops::cat({full({1, 2}, 2.0), full({1, 2}, 4.0), full({1, 2}, 6.0)}, 0)));
  CHECK(m.nothing_is_left());
#ifdef TROUPE_CUDA_SIM
  CHECK(sim_cuda::nccl_counters().collectives == 0);
  CHECK(sim_cuda::take_fault() == "");
#endif
}

TEST_CASE("a worker that stops while GPUs work for a group leaves nothing behind") {
  if (!needs_gpus(kRanks)) return;
  const NoGradGuard off;
  in_schedules(4, [] {
    Members m;
    for (int i = 0; i < 5; ++i)
      for (const auto& a : m.all) (void)a.call<&Member::drop>(m.group);
    m.all.clear();
    m.cluster.reset();
  });
}
