// Schedules as tables: their text, their checks, and what is known of them on a virtual clock.
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "parallel/pipeline/schedule/choose_policy.h"
#include "parallel/pipeline/schedule/schedule_check.h"
#include "parallel/pipeline/schedule/simulate.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::parallel;
using namespace troupe::testing;

namespace {

// Every (p, m) that formulae are checked for.
template <class F>
void for_each_size(F f) {
  for (const int p : {2, 4, 8})
    for (const int m : {2 * p, 4 * p, 8 * p}) {
      INFO("p = " << p << ", m = " << m);
      f(p, m);
    }
}

std::vector<Schedule> all_schedules(int p, int m) {
  std::vector<Schedule> all{gpipe(p, m), one_f_one_b(p, m), zb_h1(p, m),        zb_h2(p, m),
                            zb_v(p, m),  dualpipe_v(p, m),  looped_bfs(p, m, 3)};
  if (m % p == 0)
    for (const int v : {2, 3}) all.push_back(interleaved(p, m, v));
  return all;
}

std::vector<int> of_each(int p, const std::function<int(int)>& f) {
  std::vector<int> out;
  for (int i = 0; i < p; ++i) out.push_back(f(i));
  return out;
}

}  // namespace

TEST_CASE("the table of 1F1B", "[schedule]") {
  CHECK(one_f_one_b(2, 4).str() ==
        "# 1f1b, 2 workers, 4 micro-batches\n"
        "w0: F0 F1 B0 F2 B1 F3 B2 B3\n"
        "w1: F0 B0 F1 B1 F2 B2 F3 B3\n");
}

TEST_CASE("the table of GPipe", "[schedule]") {
  CHECK(gpipe(2, 3).str() ==
        "# gpipe, 2 workers, 3 micro-batches\n"
        "w0: F0 F1 F2 B0 B1 B2\n"
        "w1: F0 F1 F2 B0 B1 B2\n");
}

TEST_CASE("the table of interleaved 1F1B, two chunks", "[schedule]") {
  CHECK(interleaved(2, 2, 2).str() ==
        "# interleaved, 2 workers, 2 micro-batches\n"
        "w0: F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1\n"
        "w1: F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1\n");
}

TEST_CASE("the tables of the zero-bubble schedules", "[schedule]") {
  CHECK(zb_h1(2, 4).str() ==
        "# zb-h1, 2 workers, 4 micro-batches\n"
        "w0: F0 F1 I0 W0 F2 I1 W1 F3 I2 W2 I3 W3\n"
        "w1: F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3\n");
  CHECK(zb_h2(2, 4).str() ==
        "# zb-h2, 2 workers, 4 micro-batches\n"
        "w0: F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3\n"
        "w1: F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3\n");
}

TEST_CASE("a schedule's text reads back as it was", "[schedule]") {
  for (const int p : {1, 2, 3, 5})
    for (const int m : {1, 2, 5, 6, 10})
      for (const Schedule& s : all_schedules(p, m)) {
        const Schedule again = parse_schedule(s.str());
        CHECK(again.rows == s.rows);
        CHECK(again.micro_batches == s.micro_batches);
        CHECK(again.chunks == s.chunks);
        CHECK(again.map() == s.map());
      }
}

TEST_CASE("a schedule may be written by hand, with comments and empty lines", "[schedule]") {
  const Schedule s = parse_schedule("# mine\n\nw0:  F0 F1   B0 B1 # two\n  w1: F0 B0 F1 I1 W1\n");
  CHECK_FALSE(problem_of(s).has_value());
  CHECK(simulate(s).makespan == 8);  // 2 (m + p - 1) and more: F0 | F0 B0 F1 I1 | B1
}

TEST_CASE("rows may name the stages of their chunks", "[schedule]") {
  CHECK(zb_v(1, 2).str() ==
        "# zb-v, 1 workers, 2 micro-batches\n"
        "w0=0,1: F0 F0.1 I0.1 W0.1 F1 I0 W0 F1.1 I1.1 W1.1 I1 W1\n");
  CHECK(dualpipe_v(2, 4).str() ==
        "# dualpipe-v, 2 workers, 4 micro-batches\n"
        "w0=0,3: F0 F1 F2 F0.1 I0.1 W0.1 F1.1 F3 B1.1 F2.1 B0 B2.1 F3.1 B1 B3.1 I2 W2 I3 W3\n"
        "w1=1,2: F0 F0.1 F1 F1.1 F2 B0.1 F2.1 B0 F3 B1.1 F3.1 B1 B2.1 B2 I3.1 I3 W3.1 W3\n");
  const auto problem = [](const char* text) { return problem_of(parse_schedule(text)).value_or(""); };
  const std::string rows = " F0 F0.1 B0.1 B0\n";
  CHECK(problem("w0=1,0: F0.1 F0 B0 B0.1\n").empty());
  CHECK(problem("w0=1,0: F0 F0.1 B0 B0.1\n") ==
        "its workers wait for each other: w0 is at F0, which needs F0 of stage 0");
  CHECK(problem(("w0=0,1:" + rows + "w1=1,2:" + rows).c_str()) ==
        "[schedule] stage 1 is there twice, at w0 and w1");
  CHECK(problem(("w0=0,1:" + rows + "w1=2,4:" + rows).c_str()) ==
        "[schedule] w1 has stage 4, and there are 4, from 0");
  CHECK(problem(("w0=0,1:" + rows + "w1=2:" + rows).c_str()) ==
        "[schedule] w1 has 1 stages, and w0 has 2: expected as many for each");
  CHECK(problem("w0=0: F0 F0.1 B0.1 B0\n") ==
        "it has 1 rows of 2 chunks, and names the stages of 1 workers with 1");
  const auto text = [](const std::string& t) { return invalid_text([&] { (void)parse_schedule(t); }); };
  CHECK(text("w0=0,3" + rows) ==
        "[schedule] line 1: a row begins with its worker, as in \"w0: F0 B0\", or with the stages of its "
        "chunks, too, as in \"w0=0,3: F0 F0.1\"; got \"w0=0,3\"");
  CHECK(text("w0=0,3:" + rows + "w1:" + rows) ==
        "[schedule] line 2: the stages of its chunks are named for some workers, and for others not: name "
        "those of w1, too");
}

TEST_CASE("what is no schedule is refused with its line and word", "[schedule]") {
  const auto text = [](const std::string& t) { return invalid_text([&] { (void)parse_schedule(t); }); };
  CHECK(text("") == "[schedule] no rows: expected lines such as \"w0: F0 B0\"");
  CHECK(text("# x\nF0 B0\n") ==
        "[schedule] line 2: a row begins with its worker, as in \"w0: F0 B0\"; got \"F0\"");
  CHECK(text("w0: F0 B0\nw0: F0 B0\n") == "[schedule] line 2: w0 has a row already");
  CHECK(text("w1: F0 B0\n") == "[schedule] line 1: row of w1, but there is none of w0 before it");
  for (const char* word : {"X0", "F", "F-1", "F1.", "F1.x", "F0B", "F99999999999", "F2000000", "f0"}) {
    INFO(word);
    CHECK(text(std::string("w0: F0 ") + word).find('"' + std::string(word) + "\" is no action") !=
          std::string::npos);
  }
}

TEST_CASE("the check says which action is missing, doubled or impossible", "[schedule]") {
  const auto text = [](const std::string& t) {
    Schedule s = parse_schedule(t);
    return problem_of(s).value_or("");
  };
  CHECK(text("w0: F0 F1 B0 B1\nw1: F0 F1 B0 B1") == "");
  CHECK(text("w0: F0 F1 B0 B1\nw1: F0 F1 B0") == "B1 is missing in the row of w1");
  CHECK(text("w0: F0 F1 B0 B1\nw1: F0 B0 B1") == "F1 is missing in the row of w1");
  CHECK(text("w0: F0 I0\nw1: F0 B0") == "W0 is missing in the row of w0");
  CHECK(text("w0: F0 W0\nw1: F0 B0") == "I0 is missing in the row of w0");
  CHECK(text("w0: F0 F0.1 B0.1\nw1: F0 F0.1 B0.1 B0") == "B0 is missing in the row of w0");
  CHECK(text("w0: F0 B0 F0\nw1: F0 B0") == "F0 in the row of w0 is there twice, at places 1 and 3");
  CHECK(text("w0: F0 B0 W0\nw1: F0 B0") ==
        "W0 in the row of w0 is there besides B0, which has done that part already");
  CHECK(text("w0: B0 F0\nw1: F0 B0") == "B0 in the row of w0 comes before F0, which it needs");
  CHECK(text("w0: F0 W0 I0\nw1: F0 B0") == "W0 in the row of w0 comes before I0, which it needs");
  CHECK(text("w0: F0 B0 F1 B1\nw1: F0 F1 B0 B1") ==
        "its workers wait for each other: w0 is at B0, which needs B0 of stage 1; w1 is at F1, which needs "
        "F1 of "
        "stage 0");
  CHECK(text("w0: F0 F100000 B0 B100000\nw1: F0 B0") == "F1 is missing in the row of w0");
  CHECK(error_of([&] { check(parse_schedule("w0: F0")); }).message() ==
        "[schedule] custom: B0 is missing in the row of w0");
}

TEST_CASE("every generated schedule can run, whatever its size", "[schedule]") {
  for (int p = 1; p <= 6; ++p)
    for (int m = 1; m <= 14; ++m)
      for (const Schedule& s : all_schedules(p, m)) {
        INFO(s.str());
        CHECK(problem_of(s).value_or("") == "");
      }
  CHECK(invalid_text([] { (void)gpipe(0, 4); }).find("0 workers") != std::string::npos);
  CHECK(invalid_text([] { (void)interleaved(4, 6, 2); }).find("no multiple") != std::string::npos);
}

TEST_CASE("the first micro-batches of a schedule are a schedule", "[schedule]") {
  for (const int workers : {1, 2, 3, 4})
    for (const int chunks : {1, 2, 3})
      for (int few = 1; few <= 2 * workers; ++few) {
        INFO(workers << " workers, " << chunks << " chunks, " << few);
        const Policy first = first_of(interleaved(workers, 2 * workers, chunks), few);
        CHECK(micro_batches_of(first) == few);
        check(std::get<Schedule>(first));
      }
  CHECK(std::get<Schedule>(first_of(one_f_one_b(2, 3), 2)).rows == one_f_one_b(2, 2).rows);
  CHECK(micro_batches_of(first_of(credits(2, 4, 3), 1)) == 1);
}

TEST_CASE("makespans are those of the formulae", "[schedule]") {
  for_each_size([](int p, int m) {
    CHECK(simulate(gpipe(p, m)).makespan == 3 * (m + p - 1));
    CHECK(simulate(one_f_one_b(p, m)).makespan == 3 * (m + p - 1));
    CHECK(simulate(zb_h1(p, m)).makespan == 3 * m + p - 1);
    CHECK(simulate(zb_h2(p, m)).makespan == 3 * m + p - 1);
    CHECK(simulate(credits(p, m, 2 * p - 1)).makespan == 3 * m + p - 1);
    for (const int v : {2, 4}) CHECK(simulate(interleaved(p, m, v)).makespan == 3 * (v * m + p - 1));
    for (const int v : {1, 2, 3}) CHECK(simulate(looped_bfs(p, m, v)).makespan == 3 * (v * m + p - 1));
    CHECK(simulate(zb_v(p, m)).makespan == 6 * m + p - 1);
    CHECK(simulate(dualpipe_v(p, m)).makespan == 6 * m + p - 1);
    CHECK(simulate(gpipe(p, m)).bubble() == Approx((p - 1.0) / (m + p - 1)));
    CHECK(simulate(zb_h1(p, m)).bubble() == Approx((p - 1.0) / (3 * m + p - 1)));
  });
}

TEST_CASE("workers of one machine share its processors: each is faster while others wait") {
  const std::vector<StageTimes> times{{1, 1, 1}}, half{{0.5, 0.5, 0.5}};
  for (const int m : {1, 2, 8}) {
    // Who works alone is twice as fast, so that the machine never has anything to spare: 3 m of two.
    const SharedProcessors one{.alone = half, .machine = {0, 0}, .all = 2};
    for (const auto& schedule : {gpipe(2, m), one_f_one_b(2, m), zb_h1(2, m)})
      CHECK(simulate(schedule, times, 1, {}, one).makespan == Approx(3 * m));
    const SharedProcessors two{.alone = half, .machine = {0, 1}, .all = 2};
    CHECK(simulate(gpipe(2, m), times, 1, {}, two).makespan == Approx(1.5 * (m + 1)));
    // Replicas that do the same leave nothing to each other.
    const SharedProcessors replicas{.alone = half, .machine = {0, 0}, .like = 2, .all = 2};
    CHECK(simulate(gpipe(2, m), times, 1, {}, replicas).makespan == Approx(3 * (m + 1)));
  }
  const SharedProcessors one{.alone = half, .machine = {0, 0}, .all = 2};
  const Simulation run = simulate(one_f_one_b(2, 2), times, 1, {}, one);
  CHECK(run.events.front().end == Approx(0.5));
  CHECK(run.busy[0] == Approx(0.5 + 1 + 2 + 1));
  CHECK_THROWS_AS(simulate(gpipe(2, 1), times, 1, {}, {.alone = half, .machine = {0}}), Error);
}

TEST_CASE("peaks of live micro-batches are those of the formulae", "[schedule]") {
  for_each_size([](int p, int m) {
    CHECK(simulate(gpipe(p, m)).peak_live == of_each(p, [&](int) { return m; }));
    CHECK(simulate(one_f_one_b(p, m)).peak_live == of_each(p, [&](int i) { return std::min(m, p - i); }));
    CHECK(simulate(zb_h1(p, m)).peak_live == of_each(p, [&](int) { return std::min(m, p); }));
    CHECK(simulate(zb_h2(p, m)).peak_live == of_each(p, [&](int) { return std::min(m, 2 * p - 1); }));
    for (const int v : {2, 4})
      CHECK(simulate(interleaved(p, m, v)).peak_live ==
            of_each(p, [&](int i) { return (v - 1) * p + 2 * (p - 1 - i) + 1; }));
    CHECK(simulate(zb_v(p, m)).peak_live == of_each(p, [&](int) { return 2 * p; }));
    CHECK(simulate(dualpipe_v(p, m)).peak_live == of_each(p, [&](int) { return 2 * p + 1; }));
    for (const int c : {1, p, 2 * p - 1})
      CHECK(simulate(credits(p, m, c)).peak_live == of_each(p, [&](int) { return std::min(m, c); }));
  });
}

TEST_CASE("the steady period over several steps without a barrier", "[schedule]") {
  const int p = 4, m = 8;
  const auto period = [](const Policy& policy) { return simulate(policy, {{}}, 8).period(); };
  CHECK(period(gpipe(p, m)) == 33);
  CHECK(period(one_f_one_b(p, m)) == 33);
  CHECK(period(zb_h1(p, m)) == 27);
  CHECK(period(zb_h2(p, m)) == 24);
  CHECK(period(credits(p, m, 2 * p - 1)) == 24);
  for_each_size([&](int workers, int batches) {
    CHECK(period(zb_h2(workers, batches)) == 3 * batches);
    CHECK(period(credits(workers, batches, 2 * workers - 1)) == 3 * batches);
  });
  CHECK(invalid_text([&] { (void)simulate(gpipe(p, m)).period(); }).find("at least 2 steps") !=
        std::string::npos);
}

TEST_CASE("a simulation keeps every rule of a pipeline", "[schedule]") {
  const int p = 3, m = 6, steps = 3;
  std::vector<Policy> policies{credits(p, m, 2), credits(p, m, 5)};
  for (const Schedule& s : all_schedules(p, m)) policies.push_back(s);
  for (const Policy& policy : policies) {
    INFO(name_of(policy));
    const StageMap map = map_of(policy);
    const int stages = map.stages();
    const auto hop = [&](int a, int b) { return map.worker(a) == map.worker(b) ? 0 : 0.125; };
    std::vector<StageTimes> times;
    for (int s = 0; s < stages; ++s) times.push_back({1.0 + s % 2, 0.5 + s % 3, 0.25 * (s + 1)});
    const Simulation run = simulate(policy, times, steps, 0.125);
    std::map<std::tuple<int, int, Work>, const Simulation::Event*> by;  // stage, micro-batch, work
    std::vector<double> busy_until(p);
    std::vector<Simulation::Event> events = run.events;
    std::stable_sort(events.begin(), events.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
    for (const auto& e : events) {
      const int stage = map.stage(e.worker, e.action.chunk);
      CHECK(e.begin >= busy_until[static_cast<size_t>(e.worker)]);
      busy_until[static_cast<size_t>(e.worker)] = e.end;
      CHECK(e.end - e.begin == Approx(times[static_cast<size_t>(stage)].of(e.action.work)));
      CHECK(by.emplace(std::tuple(stage, e.action.micro_batch, e.action.work), &e).second);
    }
    for (int s = 0; s < stages; ++s)
      for (int b = 0; b < m * steps; ++b) {
        const auto at = [&](int stage, Work work) { return by.at({stage, b, work}); };
        const bool split = by.count({s, b, Work::weight}) > 0;
        const auto back = [&](int stage) {
          return by.count({stage, b, Work::input}) ? at(stage, Work::input) : at(stage, Work::backward);
        };
        if (s > 0) CHECK(at(s, Work::forward)->begin >= at(s - 1, Work::forward)->end + hop(s - 1, s));
        if (s + 1 < stages) CHECK(back(s)->begin >= back(s + 1)->end + hop(s + 1, s));
        CHECK(back(s)->begin >= at(s, Work::forward)->end);
        if (split) CHECK(at(s, Work::weight)->begin >= at(s, Work::input)->end);
        if (b >= m)  // the weights of a step before
          CHECK(at(s, Work::forward)->begin >= by.at({s, b - m, split ? Work::weight : Work::backward})->end);
      }
    CHECK(by.size() == run.events.size());
  }
}

TEST_CASE("a policy is made from its name or its table", "[schedule]") {
  CHECK(name_of(make_policy("1f1b", 4, 8)) == "1f1b");
  CHECK(name_of(make_policy("credits(7)", 4, 8)) == "credits(7)");
  CHECK(name_of(make_policy("credits(4, 3, 2, 1)", 4, 8)) == "credits(4, 3, 2, 1)");
  CHECK(chunks_of(make_policy("interleaved", 4, 8, 3)) == 3);
  CHECK(std::get<Schedule>(make_policy("w0: F0 B0\nw1: F0 B0", 2, 1)).rows[1].size() == 2);
  const auto text = [](const std::string& t, int chunks = 1) {
    return invalid_text([&] { (void)make_policy(t, 2, 4, chunks); });
  };
  CHECK(text("1f1f").find("did you mean \"1f1b\"?") != std::string::npos);
  CHECK(text("credits(0)").find("numbers above 0") != std::string::npos);
  CHECK(text("credits(1, 2, 3)").find("has 3 numbers for 2 workers") != std::string::npos);
  CHECK(text("zb-h1", 2).find("one chunk for each worker, got 2") != std::string::npos);
  CHECK(text("w0: F0 B0\nw1: F0 B0").find("1 micro-batches and 1 chunks; the pipeline has 2, 4 and 1") !=
        std::string::npos);
  CHECK(
      text("w0: F0 F1 F2 F3 B0 B1 B2 B3\nw1: F0 F1 F2 F3 B0 B1 B2").find("B3 is missing in the row of w1") !=
      std::string::npos);
}

TEST_CASE("auto takes the shortest step that fits into memory", "[schedule]") {
  const int p = 4, m = 8;
  const Choice free_choice = choose(p, m);
  CHECK(free_choice.predicted.makespan == 27);  // ZB-H1's, the least that one step can take
  CHECK(std::accumulate(free_choice.predicted.peak_live.begin(), free_choice.predicted.peak_live.end(), 0) <=
        16);
  for (const int limit : {1, 2, 3, 4, 6}) {
    const Choice choice = choose(p, m, {{}}, {limit});
    INFO(limit << ": " << choice.why);
    for (const int live : choice.predicted.peak_live) CHECK(live <= limit);
    if (limit > 1)
      CHECK(choice.predicted.makespan < choose(p, m, {{}}, {limit - 1}).predicted.makespan + 1e-9);
  }
  // One stage takes longer than the others: what it leaves idle is filled with weight gradients.
  const std::vector<StageTimes> slow{{}, {1.3, 1.3, 1.3}, {}, {}};
  CHECK(choose(p, m, slow).predicted.makespan <= simulate(one_f_one_b(p, m), slow).makespan);
  CHECK(invalid_text([&] { (void)choose(p, m, {{}}, {0}); }).find("at least 1") != std::string::npos);
  CHECK(invalid_text([&] { (void)choose(p, m, {{}, {}}); }).find("times of 2 stages") != std::string::npos);
}
