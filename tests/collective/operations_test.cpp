// Operations of groups, simulated: several ranks on each worker, messages in any order, work that takes time,
// and workers that die, links that break, calls that do not come, are cancelled, or bring something else.
#include <catch2/catch.hpp>

#include <numeric>

#include "tests/collective/random_plan.h"
#include "tests/support/seeds.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

TEST_CASE("operations of overlapping groups in any order on each rank, matched by tag") {
  for (uint64_t seed = 0; seed < seeds(500); ++seed) {
    CAPTURE(seed);
    RankWorld world(seed, 2 + seed % 5);
    plan(world, 1 + seed % 3, 2 + seed % 5, 1 + seed % 8);
    run(world, [] {});
    world.check_results();
    if (!no_errors(world)) FAIL("an operation failed without a reason");
    check_nothing_open(world, 2 + seed % 5);
    world.check_empty();
  }
}

TEST_CASE("a worker that dies, or a link that breaks, ends what needs it with an error that names it") {
  for (uint64_t seed = 0; seed < seeds(500); ++seed) {
    CAPTURE(seed);
    const size_t workers = 3 + seed % 4;
    RankWorld world(seed, workers);
    plan(world, 1 + seed % 2, workers, 1 + seed % 5);
    const RandomLoss loss(world, workers, seed % 3 == 0);
    loss.in(world, world.random().below(80));
    // A group of those that are left does everything.
    std::vector<size_t> rest;
    for (size_t w = 0; w < workers; ++w)
      if (w != loss.dead) rest.push_back(w);
    world.add_group(99, rest);
    for (size_t r = 0; r < rest.size(); ++r) {
      Generator same(seed);
      for (int j = 0; j < 4; ++j)
        world.rank(99, r).jobs.push_back(
            {99, std::to_string(j), random_signature(same, rest.size()), 1000 + static_cast<uint64_t>(j)});
    }
    run(world, [] {});
    for (const auto& [id, c] : world.called())
      if (id.group == 99 && (c.ended != 1 || c.error)) FAIL("the group of survivors fails");
    world.check_results();
    world.check_empty();
  }
}

TEST_CASE("a rank that does not call is named by all that wait for it, and the next use works") {
  for (uint64_t seed = 0; seed < seeds(500); ++seed) {
    CAPTURE(seed);
    const size_t n = 2 + seed % 7;
    RankWorld world(seed, n);
    std::vector<size_t> where(n);
    for (size_t i = 0; i < n; ++i) where[i] = i;
    world.add_group(1, where);
    const Signature first = random_signature(world.random(), n), second = random_signature(world.random(), n);
    const size_t absent = world.random().below(n);
    for (size_t r = 0; r < n; ++r) {
      world.rank(1, r).jobs = {{1, "", second, 2}, {1, "", first, 1}};
      if (r != absent) world.call(1, r);
    }
    world.settle();
    let_time_pass(world);
    world.call(1, absent);  // too late: it hears of it
    world.settle();
    let_time_pass(world);
    world.check_results();
    size_t failed = 0;
    for (const auto& [id, c] : world.called())
      if (c.error) {
        ++failed;
        if (c.error->kind() != ErrorKind::deadline) FAIL(c.error->what());
        if (!says(c.error->what(),
                  "rank " + std::to_string(absent) + " (w" + std::to_string(absent) + ") has not called it"))
          FAIL(c.error->what());
      }
    const Collective c = first.problem.collective;
    if (failed != n && (first.on_devices || !has_told_sizes(c)))
      FAIL(name(c) << " went well without a member");
    for (size_t r = 0; r < n; ++r) world.call(1, r);
    world.settle();
    world.check_results();
    for (const auto& [id, c] : world.called())
      if (id.use == 1 && c.error) FAIL(c.error->what());
    for (size_t w = 0; w < n; ++w)
      if (world.table(w).counts().running || world.table(w).counts().early) FAIL("something is left");
    world.check_empty();
  }
}

TEST_CASE("a rank that brings something else fails the operation everywhere, and what two brought is said") {
  for (uint64_t seed = 0; seed < seeds(500); ++seed) {
    CAPTURE(seed);
    const size_t n = 2 + seed % 7, other = seed % n;
    RankWorld world(seed, n);
    std::vector<size_t> where(n);
    for (size_t i = 0; i < n; ++i) where[i] = i;
    world.add_group(1, where);
    Signature same;
    do same = random_signature(world.random(), n);
    while (same.problem.collective != Collective::all_reduce);
    const uint64_t maker = uint64_t{3} << 40;
    same.context = maker | 1;
    Signature differs = same;
    std::string what;
    switch (seed / n % 6) {
      case 0:
        differs.dtype = float64, what = "dtypes";
        break;
      case 1:
        differs.reduction = "max", what = "reductions";
        break;
      case 2:
        differs.problem.counts = {26}, differs.shapes = {Shape{26}}, what = "shapes";
        break;
      case 3:
        differs.problem = {Collective::barrier, n}, differs.way = Way::doubling, what = "operations";
        break;
      case 4:
        differs.context = maker | 2, what = "contexts";
        break;
      default:
        differs.problem.collective = Collective::broadcast;
        differs.problem.root = other;
        if (!same.on_devices) differs.way = Way::tree;
        what = "operations";
    }
    for (size_t r = 0; r < n; ++r) world.rank(1, r).jobs = {{1, "grads", r == other ? differs : same, 1}};
    run(world, [] {});
    const bool hangs = !world.open().empty();
    if (hangs) FAIL("an operation goes on");
    for (const auto& [id, c] : world.called()) {
      if (!c.error || c.error->kind() != ErrorKind::invalid)
        FAIL("rank " << id.rank << " has no error of that kind");
      const std::string text = c.error->what();
      const bool right =
          says(text, "ranks brought different " + what) && says(text, "use 0 of tag \"grads\"") &&
          says(text, "rank " + std::to_string(other) + " (w" + std::to_string(other) + ") " + differs.str());
      if (!right && !says(text, "they brought something different")) FAIL(text);
    }
    world.check_empty();
  }
}

TEST_CASE(
    "two parts of the ranks that bring different things all hear of it, and nobody waits for a deadline") {
  for (uint64_t seed = 0; seed < seeds(2000); ++seed) {
    CAPTURE(seed);
    const size_t n = 2 + seed % 7 + (seed % 50 ? 0 : 15);
    RankWorld world(seed, n);
    std::vector<size_t> where(n);
    std::iota(where.begin(), where.end(), size_t{0});
    world.add_group(1, where);
    const auto signature = [&] {
      Signature s;
      do s = random_signature(world.random(), n);
      while (!s.on_devices && has_told_sizes(s.problem.collective));
      return s;
    };
    const Signature one = signature();
    Signature other = one;
    if (other.problem.has_root() && seed % 2)
      other.problem.root = (one.problem.root + 1 + world.random().below(n - 1)) % n;
    else
      do other = signature();
      while (other == one);
    const size_t in_one = world.random().below(n), in_other = (in_one + 1 + world.random().below(n - 1)) % n;
    for (size_t r = 0; r < n; ++r) {
      const bool is_other = r == in_other || (r != in_one && world.random().below(2));
      world.rank(1, r).jobs = {{1, "", is_other ? other : one, 1}};
    }
    run(world, [] {});
    if (!world.open().empty()) FAIL("an operation waits: " << one.str() << "; " << other.str());
    for (const auto& [id, c] : world.called())
      if (!c.error || c.error->kind() != ErrorKind::invalid)
        FAIL("rank " << id.rank << " is content: " << one.str() << "; " << other.str());
    world.check_empty();
  }
}

TEST_CASE("a call that is refused on one rank counts there, and fails on all") {
  for (uint64_t seed = 0; seed < seeds(500); ++seed) {
    CAPTURE(seed);
    const size_t n = 2 + seed % 7;
    RankWorld world(seed, n);
    std::vector<size_t> where(n);
    std::iota(where.begin(), where.end(), size_t{0});
    world.add_group(1, where);
    const size_t refused = world.random().below(n);
    const Signature first = random_signature(world.random(), n), second = random_signature(world.random(), n);
    for (size_t r = 0; r < n; ++r) {
      if (r != refused) world.rank(1, r).jobs = {{1, "", second, 2}, {1, "", first, 1}};
    }
    bool pending = true;
    run(world, [&] {
      if (!pending || world.random().below(4)) return;
      pending = false;
      world.refuse(1, refused, "", first.problem.collective, Error(ErrorKind::invalid, "no tensor"));
      world.rank(1, refused).jobs = {{1, "", second, 2}};
    });
    if (pending) continue;
    if (!world.open().empty()) FAIL("an operation goes on");
    for (const auto& [id, c] : world.called()) {
      if (id.use == 1 && c.error) FAIL(c.error->what());
      if (id.use == 1 || has_told_sizes(first.problem.collective)) continue;
      if (!c.error || !says(c.error->what(), "rank " + std::to_string(refused) + " (w" +
                                                 std::to_string(refused) + ") was refused: no tensor"))
        FAIL("rank " << id.rank << " does not hear why");
    }
    world.check_results();
    world.check_empty();
  }
}

TEST_CASE("contexts fit together that are equal, none, or of different makers") {
  const Signature none{{Collective::all_reduce, 2, 0, {4}}, "sum", float32, {4}, Way::whole};
  Signature one = none, two = none, other = none;
  one.context = uint64_t{3} << 40 | 1, two.context = uint64_t{3} << 40 | 2,
  other.context = uint64_t{4} << 40 | 1;
  CHECK(one == none);
  CHECK(one == other);
  CHECK_FALSE(one == two);
  CHECK(difference(one, two) == "contexts");
  CHECK(one.str() == none.str() + " in context 1 of worker 3");
}

TEST_CASE("cancelled, or late, in the midst of others: all ranks hear, and the others go on") {
  for (uint64_t seed = 0; seed < seeds(500); ++seed) {
    CAPTURE(seed);
    const size_t workers = 2 + seed % 5;
    RankWorld world(seed, workers);
    plan(world, 1 + seed % 2, workers, 2 + seed % 5);
    size_t at = world.random().below(60);
    std::optional<OperationId> chosen;
    run(world, [&] {
      if (chosen || (at && at--)) return;
      const auto open = world.open();
      if (open.empty()) return;
      chosen = open[world.random().below(open.size())];
      seed % 2 ? world.cancel(*chosen) : world.overdue(*chosen);
    });
    world.settle();
    if (!world.open().empty()) FAIL("an operation goes on");
    world.check_results();
    for (const auto& [id, c] : world.called()) {
      if (!c.error) continue;
      const bool same = chosen && id.group == chosen->group && id.tag == chosen->tag && id.use == chosen->use;
      if (!same) FAIL("another operation failed: " << c.error->what());
      if (c.error->kind() != (seed % 2 ? ErrorKind::cancelled : ErrorKind::deadline)) FAIL(c.error->what());
    }
    world.check_empty();
  }
}

TEST_CASE("10,000 operations in a row leave nothing but the tag") {
  RankWorld world(1, 2);
  world.add_group(1, {0, 1});
  const Signature s{{Collective::all_reduce, 2, 0, {4}}, "sum", float32, {4}, Way::whole};
  for (uint64_t i = 0; i < 10'000; ++i)
    for (size_t r = 0; r < 2; ++r) {
      world.rank(1, r).jobs = {{1, "", s, i}};
      world.call(1, r);
      if (i % 16 == 0) world.settle();
    }
  world.settle();
  world.check_results();
  CHECK(world.table(0).counts() == Operations::Counts{.tags = 1});
  CHECK(world.table(1).counts() == Operations::Counts{.tags = 1});
}

TEST_CASE("uses of a tag that a rank leaves out meet nothing, and are forgotten") {
  RankWorld world(1, 2);
  world.add_group(1, {0, 1});
  const Signature s{{Collective::all_reduce, 2, 0, {4}}, "sum", float32, {4}, Way::whole};
  const auto call = [&](size_t rank, uint64_t use) {
    world.rank(1, rank).jobs = {{1, {"t", false, use}, s, use}};
    world.call(1, rank);
  };
  for (uint64_t use = 0; use < 50; ++use) {
    call(0, use);
    if (use % 5 == 4)
      call(1, use);
    else
      world.cancel({1, 0, "t", use});
    world.settle();
    CHECK(world.table(1).counts().given_up == (use % 5 + 1) % 5);
  }
  world.check_results();
  CHECK(world.table(0).counts() == Operations::Counts{.tags = 1});
  CHECK(world.table(1).counts() == Operations::Counts{.tags = 1});
}

TEST_CASE("parts that do not belong are refused or end the operation, and are never taken") {
  Operations table;
  Operations::Out out;
  const Signature s{{Collective::all_reduce, 3, 0, {4}}, "sum", float32, {4}, Way::whole};
  const std::vector<GroupMember> members{{0, "w0"}, {1, "w1"}, {2, "w2"}};
  const OperationId id = table.enter(7, members, 0, "", s, out);
  REQUIRE(out.work.size() == 1);
  CHECK(out.work[0].sends.size() == 2);
  const auto part = [&](WorkerId sender, Part p) {
    Operations::Out o;
    table.part(sender, p, {}, o);
    return o;
  };
  const Part good{id, 1, 0, 0, 4, s};
  SECTION("a sender that is not that rank") {
    for (const WorkerId sender : {0u, 2u, 9u})
      CHECK_THAT(part(sender, good).refused.value().what(), Contains("which it is not"));
    Part p = good;
    p.from = 3;
    CHECK(part(1, p).refused);
    Operations::Out o;
    table.notice(9, {.kind = Notice::abort, .to = id, .from = 1}, o);
    CHECK(o.refused);
    CHECK(table.counts().running == 1);
  }
  Part p = good;
  std::string text;
  SECTION("an unknown chunk") { p.chunk = 1, text = "chunk 1 of 1"; }
  SECTION("an unknown slot") { p.slot = 1, text = "part 1 of chunk 0, which is not expected"; }
  SECTION("other elements") { p.elements = 5, text = "5 elements where 4 belong"; }
  SECTION("twice") {
    CHECK_FALSE(part(1, good).refused);
    text = "has come";
  }
  if (!text.empty()) {
    CHECK(part(1, p).finished.empty());  // what is being sent is touched until it is done
    Operations::Out o;
    table.done(id, 0, o);
    REQUIRE(o.finished.size() == 1);
    CHECK_THAT(o.finished[0].error.value().what(), Contains("rank 1 (w1) sent ") && Contains(text));
    CHECK(table.counts().running == 0);
  }
}

TEST_CASE("early parts are bounded, and their senders are told") {
  Operations table(Operations::Limits{.early_parts = 2});
  const Signature s{{Collective::all_reduce, 2, 0, {1}}, "sum", float32, {1}, Way::whole};
  Operations::Out out;
  for (const char* tag : {"a", "b", "c"}) table.part(1, Part{{7, 0, tag, 0}, 1, 0, 0, 1, s}, {}, out);
  REQUIRE(out.notices.size() == 1);
  CHECK(out.notices[0].to.tag == "c");
  CHECK(out.notices[0].error.value().kind() == ErrorKind::overloaded);
  CHECK(table.counts() == Operations::Counts{.early = 2, .given_up = 1});
  Operations::Out late;
  table.enter(7, {{0, "w0"}, {1, "w1"}}, 0, "c", s, late);
  REQUIRE(late.finished.size() == 1);
  CHECK(late.finished[0].error.value().kind() == ErrorKind::overloaded);
}

TEST_CASE("of operations of a single use nothing is kept, in whatever order they are called or given up") {
  Operations a(Operations::Limits{.single_uses = 4}), b(Operations::Limits{.single_uses = 4});
  const Signature s{{Collective::all_reduce, 2, 0, {1}}, "sum", float32, {1}, Way::whole};
  const std::vector<GroupMember> members{{0, "w0"}, {1, "w1"}};
  const auto enter = [&](Operations& table, size_t rank, const std::string& tag) {
    Operations::Out out;
    const OperationId id = table.enter(7, members, rank, {tag, true}, s, out);
    for (const auto& w : std::exchange(out.work, {})) table.done(w.id, w.chunk, out);
    return std::pair(id, std::move(out));
  };
  for (int i = 0; i < 100; ++i) {
    const std::string tag = "pass " + std::to_string(i);
    const OperationId id = enter(a, 0, tag).first;
    Operations::Out out;
    a.part(1, {id, 1, 0, 0, 1, s}, Value(), out);
    for (const auto& w : std::exchange(out.work, {})) a.done(w.id, w.chunk, out);
    REQUIRE(out.finished.size() == 1);
    CHECK_THROWS_WITH(a.enter(7, members, 0, {tag, true}, s, out), Contains("was used before"));
    // Given up by the other, before it is called here, or never called.
    const OperationId other{7, 1, tag, OperationId::kSingleUse};
    b.notice(0, {.kind = Notice::abort, .to = other, .error = Error(ErrorKind::failed, "no paper")}, out);
    if (i % 2) {
      out = enter(b, 1, tag).second;
      REQUIRE(out.finished.size() == 1);
      CHECK_THAT(out.finished[0].error.value().what(), Contains("no paper"));
    }
  }
  CHECK(a.counts() == Operations::Counts{});
  CHECK(b.counts() == Operations::Counts{.given_up = 2});
}

TEST_CASE("what cannot be is refused before anybody hears of it") {
  Operations table;
  Operations::Out out;
  const Signature s{{Collective::all_reduce, 3, 0, {4}}, "sum", float32, {4}, Way::whole};
  CHECK_THROWS_WITH(table.enter(7, {{0, "w0"}, {1, "w1"}}, 0, "", s, out),
                    Contains("made for 3 ranks, and the group has 2"));
  CHECK_THROWS_WITH(table.enter(7, {{0, "w0"}, {1, "w1"}, {2, "w2"}}, 3, "", s, out),
                    Contains("rank 3 of a group of 3"));
  CHECK(table.counts() == Operations::Counts{});
  const OperationId alone = table.enter(7, {{0, "w0"}}, 0, "", {{Collective::all_reduce, 1, 0, {4}}}, out);
  REQUIRE(out.finished.size() == 1);
  CHECK(out.finished[0].id == alone);
  CHECK_FALSE(out.finished[0].error);
}
