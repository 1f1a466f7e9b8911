// Policies, push by push: who may read, what closes a step, and what stays true in any order of events.
#include <catch2/catch.hpp>

#include <set>

#include "core/base/generator.h"
#include "parallel/server/consistency/consistency.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::parallel;
using testing::invalid_text;
using Taken = Consistency::Taken;

namespace {

// One parameter whose value is the list of updates, and its trainers.
struct Model {
  Model(const std::string& policy, int count) : state(ServerPolicy::parse(policy), count) {
    for (int i = 0; i < count; ++i) state.join(name(i));
  }
  static std::string name(int i) { return "t" + std::to_string(i); }
  bool may_read(int i) const { return state.may_read(name(i)); }
  VersionStamp read(int i) { return stamps[i] = state.read(name(i)).stamp; }
  Consistency::Verdict push(int i, double weight = 1) {
    const auto verdict = state.push(name(i), stamps[i], weight);
    while (const auto closing = state.close()) closings.push_back(*closing);
    return verdict;
  }
  Consistency state;
  std::map<int, VersionStamp> stamps;
  std::vector<Consistency::Closing> closings;
};

}  // namespace

TEST_CASE("policies read back what they print, and refuse anything else") {
  for (const char* text : {"bsp", "ssp(0)", "ssp(3)", "async", "quorum(2)", "delayed", "local(8)",
                           "local(8, 0.5, 0.7)", "bsp or abort", "quorum(2) or abort"})
    CHECK(ServerPolicy::parse(text).str() == text);
  for (const char* text : {"",
                           "BSP",
                           "bsp(1)",
                           "ssp",
                           "ssp()",
                           "ssp(-1)",
                           "ssp(1.5)",
                           "ssp(nan)",
                           "ssp(1e30)",
                           "ssp(3",
                           "ssp 3",
                           "ssp(3)x",
                           "quorum(0)",
                           "local(0)",
                           "local(8, 0.5)",
                           "local(8, 1, 1)",
                           "local(8, 0.5, 0)",
                           "local(8, -0.1, 1)",
                           "bsp or",
                           "async or abort or abort"}) {
    INFO(text);
    CHECK_THAT(invalid_text([&] { (void)ServerPolicy::parse(text); }),
               Catch::Contains("expected bsp, ssp(s)"));
  }
  CHECK_THAT(invalid_text([] { Consistency({.kind = ServerPolicy::Kind::ssp, .bound = -1}, 1); }),
             Catch::Contains("ssp(-1)"));
  CHECK_THAT(invalid_text([] { Consistency({}, 0); }), Catch::Contains("0 trainers"));
}

TEST_CASE("nobody reads before all that are expected have joined") {
  Consistency state(ServerPolicy::parse("async"), 2);
  state.join("a");
  CHECK_FALSE(state.may_read("a"));
  state.join("b");
  CHECK(state.may_read("a"));
}

TEST_CASE("a bsp step closes with the sum of all weights, and not before all have pushed") {
  Model m("bsp", 3);
  for (int step = 0; step < 3; ++step) {
    for (int i : {0, 1, 2}) {
      REQUIRE(m.may_read(i));
      CHECK(m.read(i).version == step);
    }
    CHECK(m.push(2, 5).taken == Taken::later);
    CHECK_FALSE(m.may_read(2));
    CHECK(m.push(0, 3).step == step);
    CHECK(m.state.missing() == std::vector<std::string>{"t1"});
    CHECK(m.closings.size() == size_t(step));
    m.push(1, 0);
    REQUIRE(m.closings.size() == size_t(step + 1));
    CHECK(m.closings.back().factor == 1. / 8);
  }
  CHECK(m.state.staleness().delays == std::map<int64_t, int64_t>{{0, 9}});
}

TEST_CASE("a step whose weights are all zero closes without an update") {
  Model m("bsp", 2);
  m.read(0), m.read(1);
  m.push(0, 0), m.push(1, 0);
  REQUIRE(m.closings.size() == 1);
  CHECK(m.closings[0].factor == 0);
  CHECK(m.state.version() == 0);
  CHECK(m.may_read(0));
}

TEST_CASE("a delayed step reads the values of one step before: every delay but the first is 1") {
  Model m("delayed", 2);
  m.read(0), m.read(1);
  m.push(0);
  REQUIRE(m.may_read(0));  // does not wait for the other
  CHECK(m.read(0).version == 0);
  m.push(0);
  CHECK_FALSE(m.may_read(0));  // but not two steps ahead
  m.push(1);
  REQUIRE(m.closings.size() == 1);
  auto reading = m.state.read("t1");
  CHECK(reading.previous);  // not the first step's update, though it is there
  CHECK(reading.stamp.version == 0);
  m.stamps[1] = reading.stamp;
  m.push(1);
  CHECK(m.closings.back().delay == 1);
  CHECK(m.state.staleness().delays == std::map<int64_t, int64_t>{{0, 2}, {1, 2}});
}

TEST_CASE("a quorum step closes on the first pushes, and drops those that come later") {
  Model m("quorum(2)", 3);
  for (int i : {0, 1, 2}) m.read(i);
  m.push(0, 1), m.push(1, 3);
  REQUIRE(m.closings.size() == 1);
  CHECK(m.closings[0].factor == 0.25);
  m.read(0), m.read(1);
  CHECK(m.push(2, 100).taken == Taken::never);  // of step 0
  CHECK(m.state.staleness().late == 1);
  REQUIRE(m.may_read(2));
  CHECK(m.read(2).step == 1);
  CHECK(m.push(2).taken == Taken::later);
  m.push(0);
  CHECK(m.closings.size() == 2);
  m.state.leave("t0"), m.state.leave("t2");
  m.push(1);  // late as well
  m.read(1);
  m.push(1);  // two are no longer there: one is enough
  CHECK(m.closings.size() == 3);
}

TEST_CASE("a lost trainer's step closes on the rest, or is begun again by all, as chosen") {
  Model rest("bsp", 3), again("bsp or abort", 3);
  for (Model* m : {&rest, &again}) {
    for (int i : {0, 1, 2}) m->read(i);
    m->push(0, 1), m->push(1, 3);
  }
  CHECK_FALSE(rest.state.lose("t2"));
  REQUIRE(rest.state.close());
  CHECK(rest.state.version() == 1);

  CHECK(again.state.lose("t2"));
  CHECK_FALSE(again.state.close());
  CHECK(again.state.version() == 0);
  CHECK(again.state.staleness().aborted == 1);
  REQUIRE(again.may_read(0));
  CHECK(again.read(0).step == 0);
  again.read(1);
  again.push(0), again.push(1);
  CHECK(again.closings.size() == 1);
  CHECK_FALSE(again.state.lose("t2"));  // is known

  Model pushed("bsp or abort", 2);  // what it pushed before counts: nothing is missing
  pushed.read(0), pushed.read(1);
  pushed.push(1);
  CHECK_FALSE(pushed.state.lose("t1"));
  pushed.push(0);
  REQUIRE(pushed.closings.size() == 1);
  CHECK(pushed.closings[0].factor == 0.5);
}

TEST_CASE("pushes that fit no step are refused, with nothing changed") {
  Model m("bsp", 2);
  const auto text = [&](const std::string& who, VersionStamp stamp, double weight) {
    return invalid_text([&] { (void)m.state.push(who, stamp, weight); });
  };
  CHECK_THAT(text("t0", {0, 0}, 1), Catch::Contains("it has not pulled for that step"));
  const VersionStamp stamp = m.read(0);
  CHECK_THAT(text("t9", stamp, 1), Catch::Contains("no trainer \"t9\"; there are: t0, t1"));
  CHECK_THAT(text("t0", {1, 0}, 1), Catch::Contains("expected a gradient for step 0"));
  CHECK_THAT(text("t0", {0, 7}, 1), Catch::Contains("versions 0 to 0"));
  CHECK_THAT(text("t0", {0, -1}, 1), Catch::Contains("version -1"));
  for (double weight : {-1., std::nan(""), HUGE_VAL, 1e-320, 1e200})
    CHECK_THAT(text("t0", stamp, weight), Catch::Contains("expected 0, or 1e-100 to 1e+100"));
  m.push(0);
  CHECK_THAT(text("t0", stamp, 1), Catch::Contains("that step is closed for it"));
  CHECK_THAT(invalid_text([&] { m.state.join("t0"); }), Catch::Contains("has joined already"));
  CHECK_THAT(invalid_text([&] { m.state.leave("t7"); }), Catch::Contains("no trainer"));
  m.read(1);
  m.push(1);
  CHECK(m.closings.size() == 1);
}

// A trainer sees all updates of the clocks up to c - s - 1 and its own; it waits if and only if it is more
// than s ahead.
TEST_CASE("ssp: nobody waits within the bound, everybody beyond it, and reads hold what they must") {
  for (int64_t s : {0, 1, 3})
    for (uint64_t seed = 0; seed < 50; ++seed) {
      INFO("ssp(" << s << "), seed " << seed);
      const int count = 3;
      Model m("ssp(" + std::to_string(s) + ")", count);
      Generator random(seed);
      std::vector<int64_t> clock(count, 0);
      std::vector<bool> busy(count, false);
      std::vector<std::pair<int, int64_t>> applied, held;  // who, clock: in the order of the updates
      for (int event = 0; event < 400; ++event) {
        const int i = static_cast<int>(random.below(count));
        const int64_t ahead = clock[i] - *std::min_element(clock.begin(), clock.end());
        REQUIRE(ahead <= s + 1);
        if (busy[i]) {
          const auto verdict = m.push(i);
          (s > 0 ? applied : held).emplace_back(i, clock[i]);
          REQUIRE(verdict.taken == (s > 0 ? Taken::now : Taken::later));
          if (s > 0) REQUIRE(verdict.factor == Approx(1. / count));
          if (m.closings.size() > 0 && s == 0) {
            m.closings.clear();
            applied.insert(applied.end(), held.begin(), held.end());
            held.clear();
          }
          busy[i] = false;
          ++clock[i];
          continue;
        }
        REQUIRE(m.may_read(i) == (ahead <= s));
        if (ahead > s) continue;
        CHECK(m.read(i).step == clock[i]);
        busy[i] = true;
        const std::set<std::pair<int, int64_t>> seen(applied.begin(), applied.end());
        for (int j = 0; j < count; ++j)
          for (int64_t c = 0; c < clock[i]; ++c)
            if (j == i || c <= clock[i] - s - 1) REQUIRE(seen.contains({j, c}));
        if (s == 0) REQUIRE(seen.size() == size_t(count * clock[i]));  // and nothing else, as under bsp
      }
      REQUIRE(*std::min_element(clock.begin(), clock.end()) > 10);
    }
}

TEST_CASE("async never waits, and its staleness counts the updates in between") {
  Model m("async", 2);
  const VersionStamp old = m.read(1);
  for (int i = 0; i < 5; ++i) {
    REQUIRE(m.may_read(0));
    m.read(0);
    CHECK(m.push(0, 3).delay == 0);
  }
  m.stamps[1] = old;
  const auto verdict = m.push(1, 1);
  CHECK(verdict.delay == 5);
  CHECK(verdict.factor == 0.25);  // of the weights 3 and 1
  CHECK(m.state.staleness().delays == std::map<int64_t, int64_t>{{0, 5}, {5, 1}});
}

TEST_CASE("a newcomer begins with the oldest open step, and who leaves is not waited for") {
  Model m("ssp(2)", 2);
  for (int i = 0; i < 2; ++i) m.read(0), m.push(0);
  m.read(1), m.push(1);
  m.state.join("t5");
  CHECK(m.read(5).step == 1);
  m.read(0), m.push(0);
  REQUIRE(m.may_read(0));
  m.read(0), m.push(0);
  CHECK_FALSE(m.may_read(0));  // step 4; the last is at 1
  m.state.leave("t5"), m.state.leave("t1");
  CHECK(m.may_read(0));
}

TEST_CASE("a change of policy loses no gradient on its way, and all go on from one step") {
  Model m("bsp", 3);
  for (int i : {0, 1, 2}) m.read(i);
  m.push(0);
  auto closings =
      m.state.set_policy(ServerPolicy::parse("async"));  // the held one is used: a third of a step
  REQUIRE(closings.size() == 1);
  CHECK(closings[0].factor == Approx(1. / 3));
  CHECK(m.push(1).factor == Approx(1. / 3));
  for (int i = 0; i < 4; ++i) m.read(0), m.push(0);
  CHECK(m.state.set_policy(ServerPolicy::parse("bsp")).empty());
  CHECK_FALSE(m.state.close());
  CHECK(m.push(2).taken == Taken::later);  // pulled long ago, for step 0
  CHECK_FALSE(m.may_read(2));
  for (int i : {0, 1}) {
    REQUIRE(m.may_read(i));
    CHECK(m.read(i).step == 5);
    m.push(i);
  }
  REQUIRE(m.closings.size() == 1);
  CHECK(m.closings[0].factor == Approx(1. / 3));
  CHECK(m.closings[0].delay == Approx((6 + 0 + 0) / 3.));
}

TEST_CASE("gradients are not taken for the differences of local steps, nor these for gradients") {
  Model m("local(8)", 2);
  CHECK(m.read(0).local_steps == 8);
  m.read(1);
  m.push(0);
  const auto closings = m.state.set_policy(ServerPolicy::parse("bsp"));
  REQUIRE(closings.size() == 1);  // what has come is averaged
  CHECK(closings[0].factor == 1);
  CHECK(m.push(1).taken == Taken::never);
  CHECK(m.read(1).local_steps == 0);
  CHECK(m.push(1).taken == Taken::later);
}

// Any policies, joins, leaves and losses in any order: somebody can always go on, and each weight counts
// once.
TEST_CASE("in random histories of all policies somebody can always go on, and steps only grow") {
  const std::vector<std::string> policies{"bsp",      "ssp(0)",       "ssp(2)",
                                          "async",    "quorum(2)",    "delayed",
                                          "local(4)", "bsp or abort", "quorum(3) or abort"};
  int64_t used = 0, late = 0, aborted = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    Generator random(seed);
    Model m(policies[random.below(policies.size())], 3);
    std::set<int> there{0, 1, 2}, busy;
    int next = 3;
    int64_t pushes = 0;
    for (int event = 0; event < 300; ++event) {
      const int64_t open = m.state.open_step(), version = m.state.version();
      const auto pick = [&] {
        return *std::next(there.begin(), static_cast<long>(random.below(there.size())));
      };
      switch (random.below(24)) {
        case 0:
          m.state.join(Model::name(next));
          there.insert(next++);
          break;
        case 1:
        case 2:
          if (there.size() > 1) {
            const int who = pick();
            random.below(2) ? m.state.leave(Model::name(who)) : (void)m.state.lose(Model::name(who));
            there.erase(who), busy.erase(who);
            while (m.state.close()) continue;
          }
          break;
        case 3:
          m.state.set_policy(ServerPolicy::parse(policies[random.below(policies.size())]));
          while (m.state.close()) continue;
          break;
        default: {
          const int who = pick();
          if (!busy.contains(who)) {
            if (m.may_read(who)) m.read(who), busy.insert(who);
            break;
          }
          try {
            m.push(who, 1 + static_cast<double>(random.below(3)));
            ++pushes;
          } catch (const Error& e) {  // its step was begun again
            CHECK_THAT(e.what(), Catch::Contains("has not pulled"));
          }
          busy.erase(who);
        }
      }
      const bool somebody =
          std::any_of(there.begin(), there.end(), [&](int i) { return busy.contains(i) || m.may_read(i); });
      REQUIRE(somebody);
      REQUIRE(m.state.open_step() >= open);
      REQUIRE(m.state.version() >= version);
    }
    const StalenessLedger& staleness = m.state.staleness();
    for (const auto& [delay, count] : staleness.delays) {
      REQUIRE(delay >= 0);
      used += count;
    }
    late += staleness.late, aborted += staleness.aborted;
    REQUIRE(staleness.late <= pushes);
  }
  CHECK(used > 20000);
  CHECK(late > 100);
  CHECK(aborted > 50);
}
