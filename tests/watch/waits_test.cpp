// From the calls of all workers to what keeps them waiting: each cause alone, and several together.
#include "troupe/watch/waits.h"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::internal;
using actors::CallActivity;
using actors::CallsReport;
using actors::HandledCall;
using actors::OpenCall;
using watch::Asked;
using watch::Wait;

namespace {

std::vector<Asked> workers(size_t count) {
  std::vector<Asked> all;
  for (size_t i = 0; i < count; ++i)
    all.push_back({static_cast<WorkerId>(i), "w" + std::to_string(i), CallsReport{}});
  return all;
}

OpenCall open_call(uint64_t id, WorkerId to, double seconds, const std::string& label = "Half::forward") {
  return {.id = id, .label = label, .to = to, .seconds = seconds, .left = 60 - seconds};
}

HandledCall handled(WorkerId from, uint64_t id, CallActivity::State state, const std::string& actor,
                    const std::string& what = "", double seconds = 1) {
  return {.from = from,
          .id = id,
          .label = "Half::forward",
          .actor = actor,
          .what = what,
          .seconds = seconds,
          .state = state};
}

}  // namespace

TEST_CASE("nobody waits where nobody has called") {
  CHECK(watch::find_waits(workers(3)).empty());
  CHECK(watch::waits_text({}) == "nobody waits\n");
}

TEST_CASE("those who do not answer come first, then circles, then who is waited for longest") {
  auto all = workers(4);
  all[3].calls.reset();
  all[3].why_silent = "its process 7 is stopped";
  all[0].calls->open = {open_call(1, 1, 50), open_call(2, 2, 9), open_call(3, 3, 2)};
  all[1].calls->handled = {handled(0, 1, CallActivity::at_work, "A#0:1 on w1")};
  all[2].calls->handled = {handled(0, 2, CallActivity::waiting, "B#0:1 on w2", "two trainers")};
  const auto waits = watch::find_waits(all);
  REQUIRE(waits.size() == 3);
  CHECK(waits[0].line() ==
        "w3 does not answer: its process 7 is stopped: 1 call waits, since 2.0 s, and gives up in 58.0 s");
  CHECK(waits[1].what == "A#0:1 on w1 has been running Half::forward for 1.0 s");
  CHECK(waits[2].what == "B#0:1 on w2 waits for two trainers");
}

TEST_CASE("a call is followed by way of coroutines and queues to the one that runs") {
  auto all = workers(3);
  all[0].calls->open = {open_call(1, 1, 30, "Relay::ask")};
  all[1].calls->handled = {handled(0, 1, CallActivity::waiting, "Relay#0:2 on w1")};
  OpenCall nested = open_call(9, 2, 29);
  nested.by = "Relay#0:2 on w1", nested.by_from = 0, nested.by_id = 1;
  all[1].calls->open = {nested};
  all[2].calls->handled = {
      handled(1, 9, CallActivity::queued, "Half#0:1 on w2", "Half::nap on w2 (Half#0:1)", 40),
      handled(0, 5, CallActivity::at_work, "Half#0:1 on w2", "", 40)};
  all[2].calls->at_work = {{"Half#0:1 on w2", "Half::nap on w2 (Half#0:1)", 40, 1}};
  const auto waits = watch::find_waits(all);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].what == "Half#0:1 on w2 has been running Half::nap for 40.0 s");
  CHECK(waits[0].waiting == 2);
  CHECK(waits[0].way == std::vector<std::string>{"w0 waits for Relay::ask on w1",
                                                 "Relay#0:2 on w1 waits for Half::forward on w2"});
}

TEST_CASE("equal waits are one with a count") {
  auto all = workers(2);
  for (uint64_t i = 1; i <= 40; ++i) {
    all[0].calls->open.push_back(open_call(i, 1, static_cast<double>(i)));
    all[1].calls->handled.push_back(handled(0, i, i == 40 ? CallActivity::at_work : CallActivity::queued,
                                            "A#0:1 on w1", "Half::forward on w1 (A#0:1)"));
  }
  all[1].calls->at_work = {{"A#0:1 on w1", "Half::forward on w1 (A#0:1)", 1, 39}};
  const auto waits = watch::find_waits(all);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].waiting == 40);
  CHECK(waits[0].seconds == 40);
  CHECK(waits[0].left == 20);
}

TEST_CASE("a circle of actors is called a circle wherever it is entered") {
  auto all = workers(3);
  // w0 -> A on w1 -> B on w2 -> A on w1, which waits for what A's first call would set.
  all[0].calls->open = {open_call(1, 1, 30, "A::go")};
  OpenCall second = open_call(2, 2, 29, "B::go"), third = open_call(3, 1, 28, "A::end");
  second.by_from = 0, second.by_id = 1;
  third.by_from = 1, third.by_id = 2;
  all[1].calls->open = {second};
  all[2].calls->open = {third};
  all[1].calls->handled = {handled(0, 1, CallActivity::waiting, "A#0:1 on w1"),
                           handled(2, 3, CallActivity::waiting, "A#0:1 on w1")};
  all[2].calls->handled = {handled(1, 2, CallActivity::waiting, "B#0:1 on w2")};
  const auto waits = watch::find_waits(all);
  REQUIRE_FALSE(waits.empty());
  CHECK(waits[0].kind == Wait::cycle);
  CHECK(waits[0].what ==
        "actors wait for each other in a circle: A#0:1 on w1 (A::go) -> B#0:1 on w2 (B::go) -> A#0:1 on w1 "
        "(A::end)");
}

TEST_CASE("a link on which bytes wait is named, whichever way the call goes") {
  for (const bool answer : {false, true}) {
    auto all = workers(2);
    all[0].calls->open = {open_call(1, 1, 3)};
    all[answer ? 1 : 0].calls->links = {{answer ? 0u : 1u, 64'000'000}};
    const auto waits = watch::find_waits(all);
    REQUIRE(waits.size() == 1);
    CHECK(waits[0].what == (answer ? "the link from w1 to w0 is slow: 64 MB wait to be taken"
                                   : "the link from w0 to w1 is slow: 64 MB wait to be taken"));
  }
}

TEST_CASE("ranks that have not called an operation are named, and where they are instead") {
  auto all = workers(3);
  all[0].calls->joint = {
      {"7/a/0", "[all_reduce] use 0 of tag \"a\"", "rank 0 (A#0)", {"rank 1 (A#1)", "rank 2 (A#2)"}}};
  all[1].calls->joint = {{"7/a/0", "[all_reduce] use 0 of tag \"a\"", "rank 1 (A#1)", {"rank 0 (A#0)"}}};
  auto waits = watch::find_waits(all);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].what == "rank 2 (A#2) has not called [all_reduce] use 0 of tag \"a\"");
  all[2].calls->joint = {{"7/b/0", "[broadcast] use 0 of tag \"b\"", "rank 2 (A#2)", {"rank 0 (A#0)"}}};
  waits = watch::find_waits(all);
  REQUIRE(waits.size() == 2);
  CHECK(waits[0].what ==
        "rank 2 (A#2) has not called [all_reduce] use 0 of tag \"a\"; rank 2 (A#2) is in [broadcast] use 0 "
        "of tag \"b\"");
}

TEST_CASE("a queue without room is named with what its actor does") {
  auto all = workers(2);
  OpenCall call = open_call(1, 1, 3);
  call.state = OpenCall::no_room, call.target = "A#0:1 on w1";
  all[0].calls->open = {call};
  all[1].calls->at_work = {{"A#0:1 on w1", "A::slow on w1 (A#0:1)", 12, 8}};
  const auto waits = watch::find_waits(all);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].what ==
        "A#0:1 on w1 has been running A::slow for 12.0 s, and 8 calls are queued there: no room for more "
        "(FlowLimits)");
}

TEST_CASE("calls that wait for a thread name what takes the threads") {
  auto all = workers(2);
  all[0].calls->open = {open_call(1, 1, 3)};
  all[1].calls->handled = {handled(0, 1, CallActivity::queued, "A#0:1 on w1")};
  all[1].calls->threads = 1;
  all[1].calls->at_work = {{"B#0:2 on w1", "B::slow on w1 (B#0:2)", 0.5, 0}};
  const auto waits = watch::find_waits(all);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].what == "the 1 threads of w1 are taken: by B::slow (500 ms)");
}

TEST_CASE("calls to workers that are not there any more, or that nobody knows, end in words") {
  auto all = workers(2);
  all[0].calls->open = {open_call(1, 77, 3), open_call(2, 1, 2)};
  const auto waits = watch::find_waits(all);
  REQUIRE(waits.size() == 2);
  CHECK(waits[0].what == "worker 77 does not answer");
  CHECK(waits[1].what == "Half::forward or its answer is on its way between w0 and w1");
}
