// Operations of groups, simulated, where there are many: of operations, of ranks; and what one rank gives up.
#include <catch2/catch.hpp>

#include "tests/collective/random_plan.h"
#include "tests/support/seeds.h"

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("64 operations of each of several groups with members in common") {
  for (uint64_t seed = 0; seed < seeds(4); ++seed) {
    CAPTURE(seed);
    RankWorld world(seed, 6);
    plan(world, 4, 6, 64);
    run(world, [] {});
    world.check_results();
    if (!no_errors(world)) FAIL("an operation failed without a reason");
    world.check_empty();
  }
}

TEST_CASE("256 ranks sum, and hear of one that dies") {
  constexpr size_t n = 256;
  std::vector<size_t> where(n);
  for (size_t i = 0; i < n; ++i) where[i] = i;
  for (uint64_t seed = 0; seed < seeds(10); ++seed) {
    CAPTURE(seed);
    RankWorld world(seed, n);
    world.add_group(1, where);
    const Way way = seed % 10 == 0 ? Way::ring : seed % 2 ? Way::halving : Way::doubling;
    const Signature s{{Collective::all_reduce, n, 0, {300}}, "sum", float32, {300}, way};
    for (size_t r = 0; r < n; ++r) world.rank(1, r).jobs = {{1, "second", s, 2}, {1, "first", s, 1}};
    const auto call_all = [&] {
      for (const int64_t r : world.random().permutation(n)) {
        world.call(1, static_cast<size_t>(r));
        for (size_t i = world.random().below(4); i > 0; --i) world.step();
      }
    };
    call_all();
    world.settle();
    if (!no_errors(world) || !world.open().empty()) FAIL("an operation failed, or goes on");
    call_all();
    const size_t dies = world.random().below(n);
    for (size_t i = world.random().below(2000); i > 0; --i) world.step();
    world.kill(dies);
    world.settle();
    if (!world.open().empty()) FAIL("an operation goes on");
    world.check_results();
    for (const auto& [id, c] : world.called())
      if (c.error &&
          (c.error->kind() != ErrorKind::disconnected || c.error->worker() != "w" + std::to_string(dies)))
        FAIL(c.error->what());
    world.check_empty();
  }
}

TEST_CASE("an operation that one rank gives up fails on all, whether they have called it or not") {
  for (uint64_t seed = 0; seed < seeds(500); ++seed) {
    CAPTURE(seed);
    const size_t n = 2 + seed % 7;
    RankWorld world(seed, n);
    std::vector<size_t> where(n);
    for (size_t i = 0; i < n; ++i) where[i] = i;
    world.add_group(1, where);
    Signature s;
    do s = random_signature(world.random(), n);
    while (s.problem.collective != Collective::all_reduce);
    for (size_t r = 0; r < n; ++r) world.rank(1, r).jobs = {{1, {"pass", true}, s, 1}};
    const size_t who = world.random().below(n);
    const OperationId of_who{1, who, "pass", OperationId::kSingleUse};
    size_t left = world.random().below(6 * n);
    bool gave_up = false, was_over = false;
    const auto give_up = [&] {
      gave_up = true;
      world.rank(1, who).jobs.clear();
      const auto at = world.called().find(of_who);
      was_over = at != world.called().end() && at->second.ended;
      world.give_up(of_who, Error(ErrorKind::failed, "no paper on rank " + std::to_string(who)));
    };
    run(world, [&] {
      if (!gave_up && !left--) give_up();
    });
    if (!gave_up) give_up();
    world.settle();
    if (!world.open().empty()) FAIL("an operation goes on");
    world.check_results();
    for (const auto& [id, c] : world.called()) {
      if (was_over && c.error) FAIL("what was over has failed: " << c.error->what());
      if (!was_over && id.rank == who && !c.error) FAIL("it goes on where it was given up");
      if (c.error && !says(c.error->what(), "no paper on rank " + std::to_string(who))) FAIL(c.error->what());
      if (!c.error && !world.called().contains(of_who)) FAIL("a sum without a rank");
    }
    world.check_empty();
  }
}
