// Workers that die while their GPUs work together: at every event of NCCL, in operations of groups and in
// transfers of messages. The error names the dead, the GPUs of the others work on, and nothing is kept.
#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <optional>

#include "tests/cuda/gpus.h"
#include "tests/support/seeds.h"
#include "troupe/groups.h"
#include "troupe/troupe.h"
#ifdef TROUPE_CUDA_SIM
#include "collective/nccl/transfers.h"
#include "tests/cuda_groups/mortal_workers.h"
#include "tests/support/sim_cuda/sim.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

Device gpu(int64_t n) { return Device(kCuda, static_cast<int8_t>(n)); }

struct Member : Actor {
  explicit Member(int64_t number) : number(number) {}

  // Operations of all kinds, one after the other, until one fails: why. None if all are right.
  Task<std::optional<Error>> go_on(Group group, int64_t rounds) {
    const double n = static_cast<double>(group.size()), sum = n + n * (n - 1) / 2;
    for (int64_t i = 0; i < rounds; ++i) {
      const size_t root = static_cast<size_t>(i) % group.size();
      const Tensor x = full({60}, 1 + static_cast<double>(group.rank()), {float32, gpu(number)});
      const double of_root = 1 + static_cast<double>(root);
      std::pair<Future<Tensor>, double> result;
      if (i % 8 == 0) result = {group.all_reduce(x), sum};
      if (i % 8 == 1) result = {group.broadcast(x, root), of_root};
      if (i % 8 == 2) result = {group.reduce_scatter(x), sum};
      if (i % 8 == 3) result = {group.all_gather(x), 1};
      if (i % 8 == 4) result = {group.reduce(x, root), sum};
      if (i % 8 == 5) result = {group.scatter(x, root), of_root};
      if (i % 8 == 6) result = {group.gather(x, root), 1};
      try {
        Tensor y;
        if (i % 8 == 7) {  // of the last rank
          const auto exchange = group.all_to_all(Tensors(group.size(), x));
          y = (co_await exchange).back();
          result.second = n;
        } else {
          y = co_await result.first;
        }
        if (y.defined() && y.to(cpu).flatten()[0].item() != result.second)
          co_return Error(ErrorKind::invalid, "a wrong result of operation " + std::to_string(i));
      } catch (const Error& e) {
        co_return e;
      }
    }
    co_return std::nullopt;
  }
  int64_t number;
  static constexpr auto remote = methods<&Member::go_on>;
};

struct Peer : Actor {
  Tensor same(Tensor x) { return x; }
  // Sends tensors to another one, whose answers it adds up.
  Task<double> talk(RRef<Peer> other, int64_t number, int64_t rounds) {
    double sum = 0;
    std::vector<Future<Tensor>> answers;
    for (int64_t i = 0; i < rounds; ++i)
      answers.push_back(other.call<&Peer::same>(
          full({100 + 37 * (i % 5)}, static_cast<double>(i), {float32, gpu(number)})));
    for (auto& a : answers) {
      const Tensor y = co_await a;
      sum += (y * 1.0).to(cpu).flatten()[0].item();
    }
    co_return sum;
  }
  static constexpr auto remote = methods<&Peer::same, &Peer::talk>;
};

// All workers of a group work together, and w0 and w1 in one of their own: the others die.
struct InGroups {
  explicit InGroups(const std::vector<WorkerId>& order)
      : workers(static_cast<WorkerId>(order.size()), hosting<Member>()), order(order) {
    std::vector<size_t> living;
    for (size_t r = 0; r < order.size(); ++r) {
      members.push_back(workers.spawn<Member>(order[r], int64_t{order[r]}));
      if (order[r] < 2) living.push_back(r);
    }
    group = Group(members);
    rest = group.subset(living, "rest");
    after = group.subset(living, "after");
  }
  void begin() {
    for (const auto& m : members) together.push_back(m.call<&Member::go_on>(group, int64_t{24}));
    go_on_without(rest, 24);
  }
  void go_on_without(const Group& living, int64_t rounds) {
    for (size_t r = 0; r < order.size(); ++r)
      if (order[r] < 2) without.push_back(members[r].call<&Member::go_on>(living, rounds));
  }
  bool is_over() const {
    return std::ranges::all_of(together, [](const auto& f) { return f.is_ready(); });
  }
  void check_the_living() {
    go_on_without(after, 8);
    for (size_t r = 0; r < order.size(); ++r) {
      if (order[r] >= 2) continue;
      const std::optional<Error> why = together[r].get();
      INFO("rank " << r << ": " << (why ? why->what() : "all is well"));
      CHECK((!why || is_of_death(*why)));
    }
    for (const auto& f : without) {
      const std::optional<Error> why = f.get();
      INFO((why ? why->what() : "all is well"));
      CHECK_FALSE(why);
    }
  }
  MortalWorkers workers;
  std::vector<WorkerId> order;  // of ranks
  std::vector<RRef<Member>> members;
  Group group, rest, after;
  std::vector<Future<std::optional<Error>>> together, without;
};

struct AsProcesses {
  AsProcesses() { internal::collective::set_transfers_in_process(true); }
  ~AsProcesses() { internal::collective::set_transfers_in_process(false); }
};

// Each worker sends tensors to all others: those from w2 on die.
struct InTransfers {
  /// `met`: all have sent to all before. Else the first tensors go by memory of the host.
  InTransfers(WorkerId count, bool met) : workers(count, hosting<Peer>()) {
    for (WorkerId w = 0; w < count; ++w) peers.push_back(workers.spawn<Peer>(w));
    for (WorkerId from = 0; met && from < count; ++from)
      for (WorkerId to = 0; to < count; ++to)
        if (from != to) meet(from, to);
  }
  void meet(WorkerId from, WorkerId to) {
    const auto sent = [&] { return workers.worker(from).metrics().at("device_transfers_sent"); };
    const int64_t before = sent();
    REQUIRE(eventually([&] {
      (void)peers[from].call<&Peer::talk>(peers[to], int64_t{from}, int64_t{1}).get();
      return sent() > before;
    }));
  }
  void begin() {
    for (WorkerId from = 0; from < peers.size(); ++from)
      for (WorkerId to = 0; to < peers.size(); ++to)
        if (from != to) talk(from, to, 15);
  }
  void talk(WorkerId from, WorkerId to, int64_t rounds) {
    talks.push_back({from, to, static_cast<double>(rounds * (rounds - 1)) / 2,
                     peers[from].call<&Peer::talk>(peers[to], int64_t{from}, rounds)});
  }
  bool is_over() const {
    return std::ranges::all_of(talks, [](const Talk& t) { return t.came.is_ready(); });
  }
  void check_the_living() {
    talk(0, 1, 5);
    talk(1, 0, 5);
    for (const Talk& t : talks) {
      INFO("from w" << t.from << " to w" << t.to);
      const Result<double>& came = t.came.wait();
      INFO((came.ok() ? "all is well" : came.error().what()));
      if (came.ok())
        CHECK(came.value() == t.sum);
      else
        CHECK(((t.from >= 2 || t.to >= 2) && is_of_death(came.error())));
    }
  }
  struct Talk {
    WorkerId from, to;
    double sum;
    Future<double> came;
  };
  const AsProcesses as_processes;
  MortalWorkers workers;
  std::vector<RRef<Peer>> peers;
  std::vector<Talk> talks;
};

// Runs of a program in which w2 dies; if there is a w3, that one before it, so that w2 dies while it and the
// others part with w3. `make` makes one of `variants`.
template <class F>
void let_die(uint64_t runs, size_t variants, const F& make) {
  const NoGradGuard off;
  const auto check_end = [](auto& program) {
    const bool nothing_is_left = program.workers.nothing_is_left(2);
    INFO(program.workers.left(2));
    CHECK(nothing_is_left);
  };
  std::vector<uint64_t> events;  // of each variant, if nobody dies
  for (size_t variant = 0; variant < variants; ++variant) {
    sim_cuda::schedule_by_seed(1);
    const auto program = make(variant);
    const uint64_t before = sim_cuda::nccl_counters().events;
    program->begin();
    REQUIRE(eventually([&] { return program->is_over(); }));
    events.push_back(sim_cuda::nccl_counters().events - before);
    program->check_the_living();
    check_end(*program);
  }
  uint64_t died = 0;
  for (uint64_t seed = 1; seed <= runs; ++seed) {
    const size_t variant = seed / 3 % variants;
    const Fate fate(seed, events[variant]);
    INFO("seed " << seed << ", event " << fate.event << " of " << events[variant]);
    sim_cuda::schedule_by_seed(seed);
    {
      const auto program = make(variant);
      const bool two = program->workers.count() > 3;
      if (two) program->workers.will_die(3, fate.event, fate.how);
      program->workers.will_die(2, fate.event + (two ? fate.later : 0), fate.how);
      program->begin();
      died += program->workers.let_die([&] { return program->is_over(); });
      program->check_the_living();
      check_end(*program);
    }
    REQUIRE(sim_cuda::take_fault() == "");
  }
  sim_cuda::schedule_eagerly();
  CHECK(3 * died > runs);
}

}  // namespace

TEST_CASE("a worker that dies in an operation of GPUs is named, and groups without it work on", "[deaths]") {
  if (!needs_gpus(3)) return;
  const std::vector<std::vector<WorkerId>> orders{{0, 1, 2}, {0, 2, 1}, {2, 0, 1}};
  let_die(seeds(50), 3, [&](size_t variant) { return std::make_unique<InGroups>(orders[variant]); });
}

TEST_CASE("a worker that dies while GPUs part with another member of their group is named", "[deaths]") {
  if (!needs_gpus(4)) return;
  const std::vector<std::vector<WorkerId>> orders{{0, 2, 1, 3}, {3, 2, 0, 1}, {2, 0, 3, 1}};
  let_die(seeds(30), 3, [&](size_t variant) { return std::make_unique<InGroups>(orders[variant]); });
}

TEST_CASE("a worker that dies while tensors go from GPU to GPU is named, and the others work on",
          "[deaths]") {
  if (!needs_gpus(3)) return;
  let_die(seeds(50), 2, [](size_t variant) { return std::make_unique<InTransfers>(3, variant == 1); });
}

TEST_CASE("a worker that dies while GPUs part with another one is named, and the others work on",
          "[deaths]") {
  if (!needs_gpus(4)) return;
  let_die(seeds(20), 2, [](size_t variant) { return std::make_unique<InTransfers>(4, variant == 1); });
}

TEST_CASE("an error of NCCL is told once its workers have been asked: one that has ended is named",
          "[deaths]") {
  if (!needs_gpus(3)) return;
  const NoGradGuard off;
  sim_cuda::schedule_eagerly();
  InGroups program({0, 1, 2});
  program.begin();
  for (const auto& all : {program.together, program.without})
    for (const auto& f : all) REQUIRE_FALSE(f.get());
  program.together.clear();
  program.workers.will_die(2, 1, Death::noticed_first);
  for (const auto& m : program.members)
    program.together.push_back(m.call<&Member::go_on>(program.group, int64_t{1}));
  // NCCL tells w1, which asks w0 and w2. Its other call is its own, until the operation is over.
  auto& first = program.workers.worker(1);
  REQUIRE(eventually(
      [&] { return program.workers.have_fallen_silent() && first.metrics().at("pending_calls") == 2; }));
  for (const WorkerId w : {0, 1}) CHECK_FALSE(program.together[w].is_ready());
  program.workers.let_die([] { return false; });
  for (const WorkerId w : {0, 1}) {
    const std::optional<Error> why = program.together[w].get();
    REQUIRE(why);
    CHECK(is_of_death(*why));
  }
  program.check_the_living();
  CHECK(program.workers.nothing_is_left(2));
  CHECK(sim_cuda::take_fault() == "");
}
#endif
