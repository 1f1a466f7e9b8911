// What `troupe top` says of two looks at a job, and how its page fits a terminal.
#include <catch2/catch.hpp>

#include "tools/watch/top_page.h"
#include "tools/watch/verdict.h"

using namespace troupe::tools;

namespace {

WorkerRow row(const std::string& name, double clock, double busy, double cpu) {
  WorkerRow r;
  r.worker = name, r.pid = 100, r.clock = clock, r.busy = busy, r.cpu = cpu, r.memory = 30'000'000;
  return r;
}

// Three workers that do the same, at 0 s and at 10 s.
std::pair<JobReport, JobReport> looks() {
  JobReport before{"0f3a", "digits", "w0", 0, {}}, now = before;
  for (const char* name : {"w0", "w1", "w2"}) {
    before.workers.push_back(row(name, 0, 0, 0));
    now.workers.push_back(row(name, 10, 5, 6));
    before.workers.back().methods = {{"Half::forward", 100, 1, 0}};
    now.workers.back().methods = {{"Half::forward", 200, 2, 0}};
  }
  return {before, now};
}

}  // namespace

TEST_CASE("nothing stands out of equals") {
  const auto [before, now] = looks();
  CHECK(verdicts(before, now).empty());
}

TEST_CASE("a method that is slower on one worker is named with both times") {
  auto [before, now] = looks();
  now.workers[2].methods[0].busy = 4;
  const auto said = verdicts(before, now);
  REQUIRE(said.size() == 1);
  CHECK(said[0] == "Half::forward is slower on w2: 30 ms a call, 10 ms elsewhere (3.0 times)");
}

TEST_CASE("a worker that gets no core is named, and before the methods that are slow for it") {
  auto [before, now] = looks();
  now.workers[1].cpu = 1, now.workers[1].starved = 9;
  now.workers[1].methods[0].busy = 1.0 + 2.0;
  const auto said = verdicts(before, now);
  REQUIRE(said.size() == 2);
  CHECK(said[0].starts_with("w1 gets 10 % of the time on a core that it wants"));
}

TEST_CASE("a worker that does not answer, or has begun anew, is compared with nothing") {
  auto [before, now] = looks();
  now.workers[0].pid = 7, now.workers[0].methods[0].busy = 0;
  now.workers[1].silent = "its process 9 is stopped";
  const auto said = verdicts(before, now);
  REQUIRE(said.size() == 1);
  CHECK(said[0] == "w1 does not answer: its process 9 is stopped");
}

TEST_CASE("a page fits its width, sorts, filters, and opens a worker") {
  auto [before, now] = looks();
  now.workers[2].busy = 9,
  now.workers[2].actors = {{"Half#0:1 on w2", "Half", "Half::forward on w2 (Half#0:1)", 0.2, 9, 3, 200}};
  now.workers[2].steps = 50, now.workers[2].steps_per_second = 4.5, now.workers[2].loss = 0.25;
  TopView view{.sort = 'b', .open = 0};
  const TopPage page = top_page(now, &before, std::string(200, 'x'), view, 80);
  for (const auto& line : page.lines) CHECK(line.size() <= 80);
  CHECK(page.lines[0] == "digits (0f3a), 3 workers  50 steps  4.5/s  loss 0.25");
  CHECK(page.lines[1].starts_with("! xxx"));
  REQUIRE(page.chosen.has_value());
  CHECK(page.lines[*page.chosen].starts_with("w2       90%   60%"));
  CHECK(page.lines[*page.chosen].find("Half::forward, 200 ms") != std::string::npos);
  const auto shown = [&](const std::string& part) {
    return std::any_of(page.lines.begin(), page.lines.end(),
                       [&](const auto& l) { return l.find(part) != std::string::npos; });
  };
  CHECK(shown("actors of w2"));
  CHECK(shown("Half#0:1 on w2"));
  CHECK(top_page(now, &before, "", {.filter = "Half#0"}, 80).rows == 1);
  CHECK(top_page(now, nullptr, "", {.filter = "none"}, 40).rows == 0);
}

TEST_CASE("the rows of feeds and the time that steps waited for them are said between two looks") {
  auto [before, now] = looks();
  CHECK(feeds_text(now, &before).empty());
  before.workers[0].metrics = {{"feed_rows", 1000}, {"feed_waited_us", 0}};
  now.workers[0].metrics = {{"feed_rows", 13'000}, {"feed_waited_us", 2'500'000}};
  now.workers[1].metrics = {{"feed_rows", 500}, {"feed_waited_us", 100'000}};  // since the look before
  const std::string text = "1250 rows/s of feeds, waited for 25% of the time";
  CHECK(feeds_text(now, &before) == text);
  CHECK(feeds_text(now, nullptr).empty());
  CHECK(top_page(now, &before, "", {}, 80).lines[1] == text);
  CHECK(ps_text(now, &before, false).find(", " + text + "\n") != std::string::npos);
}
