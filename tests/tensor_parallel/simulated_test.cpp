// Conversions on the simulated network: any order of messages, and ranks that die at any event.
#include <catch2/catch.hpp>

#include "actors/worker/worker.h"
#include "parallel/mesh/weighted_mean.h"
#include "tests/support/near.h"
#include "tests/support/seeds.h"
#include "tests/tensor_parallel/rank_programs.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace std::chrono_literals;
using testing::Program;
using testing::ProgramRank;
using testing::seeds;

namespace {

constexpr size_t kRanks = 3;

struct Step {
  std::optional<Tensors> gradients;  // of the ranks; nothing if it failed
  std::optional<Error> error;
  int events = 0;
};

// `dies`: the event before which the victim dies; negative: never.
Step step_of(uint64_t seed, int dies, WorkerId victim) {
  SimulatedCluster cluster(seed, kRanks + 1, hosting<ProgramRank>());
  cluster.network().set_faults({.delay = 1ms, .jitter = seed % 2 ? 2ms : 0ms});
  const std::string name = "w" + std::to_string(victim);
  Step out;
  const auto wait = [&](const auto& future) {
    while (!future.is_ready()) {
      if (out.events++ == dies) cluster.network().crash(name);
      if (!cluster.step() && !future.is_ready()) throw std::logic_error("nothing is left to happen");
    }
    const auto& result = *future.peek();
    if (!result.ok()) throw result.error();
    if constexpr (requires { result.value(); }) return result.value();
  };
  {
    const Tensor start = testing::random(testing::kShape, 7);
    std::vector<RRef<ProgramRank>> ranks;
    for (size_t r = 0; r < kRanks; ++r) ranks.push_back(cluster.here(0).spawn<ProgramRank>(r + 1, start));
    const Group group(ranks, "ranks");
    autograd::Context context(cluster.worker(0));
    try {
      std::vector<Future<Tensor>> losses;
      for (int64_t program = 0; program < 2; ++program)
        for (const auto& r : ranks)
          losses.push_back(r.call<&ProgramRank::run>(group, static_cast<int64_t>(seed) + program));
      const Tensors all = wait(troupe::all(losses));
      const auto three = static_cast<ptrdiff_t>(kRanks);
      const Tensor a = parallel::same_on_all({all.begin(), all.begin() + three}),
                   b = parallel::same_on_all({all.begin() + three, all.end()});
      wait(troupe::all(std::vector<Future<void>>{context.backward_async(a, {}, {.retain_graph = true}),
                                                 context.backward_async(b)}));
      std::vector<Future<Tensor>> gradients;
      for (const auto& r : ranks) gradients.push_back(r.call<&ProgramRank::gradient>());
      out.gradients = wait(troupe::all(gradients));
    } catch (const Error& e) {
      out.error = e;
    }
  }
  cluster.settle();
  for (size_t w = 0; w <= kRanks; ++w) {
    if (dies >= 0 && w == victim) continue;
    auto m = cluster.worker(w).metrics();
    for (const char* counter :
         {"contexts", "send_nodes", "receive_nodes", "backward_passes", "collectives", "early_collectives"}) {
      INFO("worker " << w << ", " << counter);
      REQUIRE(m[counter] == 0);
    }
  }
  return out;
}

Tensor in_one_process(uint64_t seed) {
  const Tensor x = testing::random(testing::kShape, 7).requires_grad_();
  const Tensor sum = Program(seed, kRanks).in_one_process(x) + Program(seed + 1, kRanks).in_one_process(x);
  return autograd::grad({sum}, {x})[0];
}

void check(const Step& got, const Tensor& right) {
  REQUIRE(got.gradients->size() == kRanks);
  for (const Tensor& g : *got.gradients) CHECK(difference(g, right, 1e-9, 1e-9) == "");
}

}  // namespace

TEST_CASE("conversions give what one process gives in whatever order messages come") {
  for (uint64_t seed = 100; seed < 100 + seeds(60); ++seed) {
    CAPTURE(seed);
    const Step got = step_of(seed, -1, 0);
    if (got.error) FAIL(got.error->what());
    check(got, in_one_process(seed));
  }
}

TEST_CASE("a rank that dies at any event of a step is named, and leaves nothing") {
  int died = 0;
  for (uint64_t seed = 500; seed < 500 + seeds(2); ++seed) {
    const Tensor right = in_one_process(seed);
    const int events = step_of(seed, -1, 0).events;
    for (int at = 0; at < events; at += 3) {
      const auto victim = static_cast<WorkerId>(1 + at / 3 % 3);
      CAPTURE(seed, at, events, victim);
      const Step got = step_of(seed, at, victim);
      if (got.error) {
        ++died;
        CAPTURE(got.error->what());
        CHECK(got.error->kind() == ErrorKind::disconnected);
        CHECK(got.error->worker() == "w" + std::to_string(victim));
      } else {
        check(got, right);
      }
    }
  }
  CHECK(died > 50);
}
