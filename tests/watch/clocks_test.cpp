// Clocks of other hosts: what is said of them is true, and their events are moved to where they belong.
#include "troupe/watch/clock_offset.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>

#include "net/socket/socket_transport.h"
#include "troupe/cluster/worker_stack.h"
#include "troupe/profile.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

// An hour ahead of the system's.
class Ahead final : public Clock {
 public:
  static constexpr Duration kBy = std::chrono::hours(1);
  TimePoint now() const override { return Clock::system().now() + kBy; }
};

struct Echo : Actor {
  int64_t say(int64_t n) { return n; }
  static constexpr auto remote = methods<&Echo::say>;
};

}  // namespace

TEST_CASE("the shortest way there and back says most about a clock") {
  ClockSamples samples;
  CHECK_FALSE(samples.any());
  samples.add(1000, 5500, 1400);  // 4300 give or take 200
  samples.add(2000, 6350, 2100);  // 4300 give or take 50
  samples.add(3000, 7500, 3900);
  const ClockOffset clock = samples.of(2);
  CHECK(clock.worker == 2);
  CHECK(clock.offset == 4300);
  CHECK(clock.error == 50);
}

TEST_CASE("events of a host whose clock is an hour ahead lie within the calls that led to them") {
  const Ahead ahead;
  std::vector<std::unique_ptr<WorkerStack>> stacks;
  for (WorkerId id = 0; id < 2; ++id) {
    const std::string name = "w" + std::to_string(id);
    stacks.push_back(
        std::make_unique<WorkerStack>(internal::actors::WorkerOptions{.id = id,
                                                                      .name = name,
                                                                      .host = "host of " + name,
                                                                      .hosting = hosting<Echo>(),
                                                                      .clock = id ? &ahead : &Clock::system(),
                                                                      .timer_thread = id == 0}));
    stacks.back()->use_sockets("a token for two clocks", {});
    stacks.back()->listen("tcp:127.0.0.1:0");
  }
  for (auto& stack : stacks)
    for (auto& other : stacks) stack->worker().members().add(other->member());
  auto& worker = stacks[0]->worker();
  const auto echo = Here(stacks[0]->references()).spawn<Echo>(1);
  (void)echo.call<&Echo::say>(1).get();
  Profile profile(worker);
  for (int64_t i = 0; i < 100; ++i) (void)echo.call<&Echo::say>(i).get();
  const Trace trace = profile.end();
  REQUIRE(trace.clocks().size() == 1);
  const ClockOffset clock = trace.clocks()[0];
  CHECK(clock.worker == 1);
  CHECK(clock.error > 0);
  CHECK(std::abs(clock.offset - std::chrono::nanoseconds(Ahead::kBy).count()) <= clock.error);
  std::map<std::string, internal::actors::TraceEvent> calls, handled;
  for (const auto& event : trace.events())
    if (!event.key.empty()) (event.mode == "call" ? calls : handled).emplace(event.key, event);
  REQUIRE(calls.size() == 100);
  for (const auto& [key, call] : calls) {
    REQUIRE(handled.contains(key));
    CHECK(handled[key].begin >= call.begin - clock.error);
    CHECK(handled[key].end <= call.end + clock.error);
  }
  CHECK(trace.table().find("the clock of w1 is +") != std::string::npos);
  CHECK(trace.json().find("the clock of w1 is +") != std::string::npos);
  for (auto& stack : stacks) stack->worker().disconnect();
}
