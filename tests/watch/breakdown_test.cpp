// Where the time of a profile went: each moment counts once.
#include "troupe/watch/breakdown.h"

#include <catch2/catch.hpp>

using namespace troupe;
using internal::actors::TraceEvent;

namespace {

constexpr int64_t kMs = 1'000'000;

TraceEvent event(const char* mode, int64_t worker, int64_t begin, int64_t end, const std::string& key = "",
                 int64_t start = -1, int64_t peer = 0) {
  TraceEvent e;
  e.mode = mode, e.name = "Half::forward", e.worker = worker, e.peer = peer, e.key = key;
  e.begin = begin * kMs, e.end = end < 0 ? end : end * kMs, e.start = start < 0 ? start : start * kMs;
  return e;
}

}  // namespace

TEST_CASE("a call's time is transfer, waiting for its callee, and there a queue and work") {
  // w0 calls w1 from 0 to 100; there it comes at 10, begins at 40 and is answered at 90.
  const auto b = Breakdown::of({event("call", 0, 0, 100, "k", -1, 1), event("handle", 1, 10, 90, "k", 40)});
  REQUIRE(b.workers.size() == 2);
  CHECK(b.seconds == Approx(0.1));
  CHECK(b.workers[0].transfer == Approx(0.2));
  CHECK(b.workers[0].waiting == Approx(0.8));
  CHECK(b.workers[0].idle == Approx(0));
  CHECK(b.workers[1].queueing == Approx(0.3));
  CHECK(b.workers[1].compute == Approx(0.5));
  CHECK(b.workers[1].idle == Approx(0.2));
  REQUIRE(b.methods.size() == 1);
  CHECK(b.methods[0].run == Approx(0.05));
  CHECK(b.methods[0].queued == Approx(0.03));
  REQUIRE(b.links.size() == 1);
  CHECK(b.links[0].time == Approx(0.02));
}

TEST_CASE("what overlaps with work counts as work, and a method that waits for a call does not compute") {
  auto nested = event("call", 1, 20, 60, "n", -1, 2);
  nested.parent = "k";
  const auto b = Breakdown::of({event("call", 0, 0, 100, "k", -1, 1), event("handle", 1, 0, 100, "k", 0),
                                nested, event("handle", 2, 20, 60, "n", 20), event("part", 0, 50, 100)});
  CHECK(b.workers[0].compute == Approx(0.5));
  CHECK(b.workers[0].waiting == Approx(0.5));
  CHECK(b.workers[1].compute == Approx(0.6));
  CHECK(b.workers[1].waiting == Approx(0.4));
}

TEST_CASE("methods and links that are slower than the same elsewhere are named") {
  std::vector<TraceEvent> events;
  for (int64_t worker = 1; worker <= 3; ++worker)
    for (int64_t i = 0; i < 5; ++i) {
      const std::string key = std::to_string(worker) + "/" + std::to_string(i);
      const int64_t at = 100 * i, run = worker == 2 ? 30 : 10, way = worker == 3 ? 8 : 2;
      events.push_back(event("call", 0, at, at + run + way, key, -1, worker));
      events.push_back(event("handle", worker, at + way / 2, at + way / 2 + run, key, at + way / 2));
    }
  const auto b = Breakdown::of(events);
  const std::string text = b.str();
  INFO(text);
  CHECK(text.find("! Half::forward on w2 takes 3.0 times as long as on the other workers\n") !=
        std::string::npos);
  CHECK(text.find("! the way from w0 to w3 and back takes 8.00 ms, 4.0 times as long as the others\n") !=
        std::string::npos);
  CHECK(text.find("on w1 takes") == std::string::npos);
}

TEST_CASE("a profile without events, and calls without an end, are no trouble") {
  CHECK(Breakdown::of({}).workers.empty());
  const auto b = Breakdown::of(
      {event("call", 0, 0, -1, "k", -1, 1), event("span", 0, 0, 50), event("handle", 1, 5, -1, "k")});
  CHECK(b.workers[0].waiting == Approx(0.9));
  CHECK(b.workers[1].queueing == Approx(0.9));
}
