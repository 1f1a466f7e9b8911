// Operations that are held while they may go by memory: simulated as in operations_test.cpp, with the words
// of a lane for each tag; and what the table does with each of them.
#include <catch2/catch.hpp>

#include "tests/collective/random_plan.h"
#include "tests/support/seeds.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

// Most of its operations are small sums, which most ranks call by memory.
void plan_by_memory(RankWorld& world, uint64_t groups, size_t workers, size_t jobs) {
  plan(world, groups, workers, jobs);
  world.use_lanes();
  std::map<uint64_t, Signature> sums;
  const uint64_t all_alike = world.random().below(2);
  for (auto& [at, rank] : world.ranks())
    for (RankCall& job : rank.jobs) {
      const size_t n = world.size(at.first);
      if (!sums.contains(job.number)) {
        sums[job.number] = job.signature;
        if (world.random().below(5))
          sums[job.number] = {{Collective::all_reduce, n, 0, {world.random().below(5)}},
                              "sum",
                              float32,
                              {4},
                              world.random().below(2) ? Way::whole : Way::direct};
      }
      job.signature = sums[job.number];
      job.by_memory = all_alike || world.random().below(4);
    }
}

const Signature kSmallSum{{Collective::all_reduce, 3, 0, {4}}, "sum", float32, {4}, Way::whole};
const std::vector<GroupMember> kThree{{0, "w0"}, {1, "w1"}, {2, "w2"}};
Operations::Missing nobody_is_missing() {
  return [] { return std::vector<size_t>(); };
}
Part part_of_sum(size_t from, uint64_t use, size_t to = 0) {
  return {.to = {7, to, "", use}, .from = from, .elements = 4, .signature = kSmallSum};
}
const float kOnes[4] = {1, 1, 1, 1};

}  // namespace

TEST_CASE("operations by memory and by messages in any order on each rank, matched by tag") {
  size_t by_memory = 0;
  for (uint64_t seed = 0; seed < seeds(500); ++seed) {
    CAPTURE(seed);
    RankWorld world(seed, 2 + seed % 5);
    plan_by_memory(world, 1 + seed % 3, 2 + seed % 5, 1 + seed % 12);
    run(world, [] {});
    world.check_results();
    if (!no_errors(world)) FAIL("an operation failed without a reason");
    check_nothing_open(world, 2 + seed % 5);
    by_memory += world.went_by_memory();
    world.check_empty();
  }
  CHECK(by_memory > 1000);
}

TEST_CASE("a worker that dies, or a link that breaks, ends what goes by memory with an error that names it") {
  for (uint64_t seed = 0; seed < seeds(500); ++seed) {
    CAPTURE(seed);
    const size_t workers = 3 + seed % 4;
    RankWorld world(seed, workers);
    plan_by_memory(world, 1 + seed % 2, workers, 1 + seed % 8);
    const RandomLoss loss(world, workers, seed % 3 == 0);
    loss.in(world, world.random().below(60));
    world.check_empty();
  }
}

TEST_CASE("cancelled, or late, while it may go by memory: all that are not done hear, and the others go on") {
  size_t failed = 0;
  for (uint64_t seed = 0; seed < seeds(1000); ++seed) {
    CAPTURE(seed);
    const size_t workers = 2 + seed % 5;
    RankWorld world(seed, workers);
    plan_by_memory(world, 1 + seed % 2, workers, 2 + seed % 8);
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
      ++failed;
      const bool same = chosen && id.group == chosen->group && id.tag == chosen->tag && id.use == chosen->use;
      if (!same) FAIL("another operation failed: " << c.error->what());
      if (c.error->kind() != (seed % 2 ? ErrorKind::cancelled : ErrorKind::deadline)) FAIL(c.error->what());
    }
    world.check_empty();
  }
  CHECK(failed > 100);
}

TEST_CASE("ranks that bring something else, or are refused, fail what goes by memory on all") {
  for (uint64_t seed = 0; seed < seeds(1000); ++seed) {
    CAPTURE(seed);
    const size_t n = 2 + seed % 5, odd = seed % n;
    RankWorld world(seed, n);
    std::vector<size_t> where(n);
    for (size_t i = 0; i < n; ++i) where[i] = i;
    world.add_group(1, where);
    world.use_lanes();
    const Signature sum{{Collective::all_reduce, n, 0, {4}}, "sum", float32, {4}, Way::whole};
    Signature other = sum;
    other.dtype = float64;
    const bool refuses = seed % 2;
    const uint64_t wrong = 1 + world.random().below(4);
    for (size_t r = 0; r < n; ++r)
      for (uint64_t use = 6; use-- > 0;) {
        if (refuses && r == odd && use >= wrong) continue;
        const Signature& s = r == odd && use == wrong ? other : sum;
        world.rank(1, r).jobs.push_back({1, "", s, use, world.random().below(8) > 0});
      }
    bool refused = false;
    run(world, [&] {
      if (!refuses || refused || !world.rank(1, odd).jobs.empty()) return;
      refused = true;
      world.refuse(1, odd, "", Collective::all_reduce, Error(ErrorKind::invalid, "no tensor"));
      for (uint64_t use = 6; --use > wrong;) world.rank(1, odd).jobs.push_back({1, "", sum, use, true});
    });
    if (!world.open().empty()) FAIL("an operation goes on");
    world.check_results();
    for (const auto& [id, c] : world.called()) {
      if (id.use != wrong && c.error) FAIL(c.error->what());
      if (id.use != wrong) continue;
      if (!c.error || !says(c.error->what(), refuses ? "was refused: no tensor" : "different dtypes"))
        FAIL("rank " << id.rank << " does not hear why: " << (c.error ? c.error->what() : "it is content"));
    }
    world.check_empty();
  }
}

TEST_CASE("what is held sends nothing until it is released, and keeps what comes") {
  Operations table;
  Operations::Out out, released;
  const OperationId id =
      table.enter(7, kThree, 0, "", kSmallSum, out, {}, [] { return std::vector<size_t>{2}; });
  table.part(1, part_of_sum(1, 0), to_payload(kOnes, 4), out);
  table.part(2, part_of_sum(2, 0), to_payload(kOnes, 4), out);
  CHECK((out.work.empty() && out.finished.empty() && out.notices.empty()));
  CHECK(table.waits() == std::vector<std::string>{"[all_reduce] use 0 without a tag, to which parts are "
                                                  "missing from rank 2 (w2)"});
  table.release(id, released);
  REQUIRE(released.work.size() == 1);
  CHECK(released.work[0].sends.size() == 2);
  Operations::Out then;
  table.done(id, 0, then);
  REQUIRE(then.work.size() == 1);
  CHECK(then.work[0].takes.size() == 2);
  Operations::Out again;
  table.release(id, again);  // once
  CHECK_FALSE(table.done_without(id, again));
  CHECK((again.work.empty() && again.finished.empty()));
}

TEST_CASE("a part for what was done without messages is not answered, and for another one it is") {
  Operations table;
  Operations::Out out;
  CHECK(table.done_at_once(7, 0, "") == 0);
  const OperationId held = table.enter(7, kThree, 0, "", kSmallSum, out, {}, nobody_is_missing());
  CHECK(held.use == 1);
  CHECK(table.done_without(held, out));
  REQUIRE(out.finished.size() == 1);
  CHECK_FALSE(out.finished[0].error);
  Operations::Out refused;
  table.refuse(7, kThree, 0, "", Collective::all_reduce, Error(ErrorKind::invalid, "no tensor"), refused);
  for (const uint64_t use : {0, 1, 2}) {
    CAPTURE(use);
    Operations::Out answer;
    table.part(1, part_of_sum(1, use), to_payload(kOnes, 4), answer);
    CHECK(answer.notices.size() == (use == 2));
  }
  for (int i = 0; i < 100; ++i) table.done_at_once(7, 0, "");
  Operations::Out answer;
  table.part(1, part_of_sum(1, 60), to_payload(kOnes, 4), answer);
  CHECK(answer.notices.empty());
  CHECK(table.counts() == Operations::Counts{.tags = 1});
}

TEST_CASE("all ranks hear that what was held has failed, those included that it would send nothing to") {
  const Signature doubling{{Collective::all_reduce, 8, 0, {4}}, "sum", float32, {4}, Way::doubling};
  std::vector<GroupMember> eight;
  for (WorkerId w = 0; w < 8; ++w) eight.push_back({w, "w" + std::to_string(w)});
  const bool is_held = GENERATE(false, true);
  Operations table;
  Operations::Out out, after;
  const OperationId id =
      table.enter(7, eight, 0, "", doubling, out, {}, is_held ? nobody_is_missing() : Operations::Missing());
  if (is_held && GENERATE(false, true)) table.release(id, after);
  Operations::Out failed;
  table.cancel(id, failed);
  CHECK(failed.notices.size() == (is_held ? 7 : 3));
}

TEST_CASE("what came for an operation before it was over at once is forgotten") {
  Operations table;
  Operations::Out out;
  table.part(1, part_of_sum(1, 0), to_payload(kOnes, 4), out);
  table.notice(2,
               {.kind = Notice::abort,
                .to = {7, 0, "", 0},
                .from = 2,
                .error = Error(ErrorKind::cancelled, "was cancelled")},
               out);
  CHECK(table.counts().given_up == 1);
  table.part(1, part_of_sum(1, 1), to_payload(kOnes, 4), out);
  table.done_at_once(7, 0, "");
  CHECK(table.counts() == Operations::Counts{.early = 1, .tags = 1});
  Operations::Out next;
  table.enter(7, kThree, 0, "", kSmallSum, next);
  CHECK(next.finished.empty());
  CHECK(table.counts() == Operations::Counts{.running = 1, .tags = 1});
}
