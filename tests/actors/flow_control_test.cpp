// Back-pressure alone: room for calls, who waits, and that nobody waits for ever, as a state machine.
#include "actors/calls/flow_control.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/base/generator.h"

using namespace troupe;
using namespace troupe::internal::actors;

namespace {

constexpr WorkerId kPeer = 1;
ObjectId actor(uint64_t number, WorkerId owner = kPeer) { return {owner, 0, number}; }
const auto all_alive = [](uint64_t) { return true; };

// Calls to a few actors of two workers that begin in any order, and say so only if asked, or with their
// answer.
class Simulation {
 public:
  Simulation(uint64_t seed, FlowLimits limits) : random_(seed), limits_(limits), flow_(limits) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      switch (random_.below(4)) {
        case 0:
        case 1:
          call();
          break;
        case 2:
          begin();
          break;
        case 3:  // one that waits is given up
          if (!waiting_.empty()) gone_.insert(waiting_.begin()->first), waiting_.erase(waiting_.begin());
          break;
      }
      check();
    }
    // Nobody is answered from now on, but what has left begins: all that waits leaves.
    while (begin()) check();
    REQUIRE(waiting_.empty());
    for (auto& [id, ticket] : begun_) flow_.leave(ticket);
    REQUIRE(flow_.all().bytes == 0);
    REQUIRE(flow_.all().messages == 0);
  }

 private:
  struct Message {
    ObjectId to;
    size_t bytes;
    bool tells;
    FlowControl::Ticket ticket;
  };
  void call() {
    const uint64_t id = ++last_;
    const ObjectId to = actor(1 + random_.below(3), 1 + static_cast<WorkerId>(random_.below(2)));
    const size_t bytes =
        1 + random_.below(random_.below(20) == 0 ? 3 * limits_.bytes : limits_.bytes / 4 + 1);
    largest_ = std::max(largest_, bytes);
    if (auto ticket = flow_.enter(to, bytes)) {
      for (const auto& [w, m] : waiting_) REQUIRE(m.owner != to.owner);  // it overtook nobody
      return leave(id, to, bytes, ticket);
    }
    flow_.wait(id, to, bytes);
    sizes_[id] = bytes;
    waiting_.emplace(id, to);
    drain(to.owner);
  }
  void leave(uint64_t id, const ObjectId& to, size_t bytes, const FlowControl::Ticket& ticket) {
    REQUIRE(id > last_left_[to.owner]);  // in order
    last_left_[to.owner] = id;
    on_way_.push_back({to, bytes, flow_.scarce(ticket), ticket});
  }
  void drain(WorkerId to) {
    if (!flow_.begin_drain(to)) return;
    REQUIRE_FALSE(flow_.begin_drain(to));
    REQUIRE_FALSE(flow_.enter(actor(1, to), 1));  // nobody overtakes
    while (auto next = flow_.next(to, [&](uint64_t id) { return waiting_.contains(id); })) {
      REQUIRE_FALSE(gone_.contains(next->message));
      leave(next->message, waiting_.at(next->message), sizes_.at(next->message), next->ticket);
      waiting_.erase(next->message);
    }
  }
  // Some message begins. Those that were not asked keep their room: they wait for others.
  bool begin() {
    if (on_way_.empty()) return false;
    const size_t i = random_.below(on_way_.size());
    Message m = on_way_[i];
    on_way_.erase(on_way_.begin() + static_cast<int64_t>(i));
    if (!m.tells) return begun_.emplace(++last_, m.ticket), true;
    flow_.leave(m.ticket);
    REQUIRE_FALSE(m.ticket);
    drain(m.to.owner);
    return true;
  }
  void check() {
    for (WorkerId w : {1u, 2u}) REQUIRE(flow_.to(w).bytes < limits_.bytes + largest_);
    std::map<ObjectId, size_t> counts;
    for (const auto& m : on_way_) ++counts[m.to];
    for (const auto& [to, n] : counts) REQUIRE(n <= limits_.messages);
  }

  Generator random_;
  const FlowLimits limits_;
  FlowControl flow_;
  uint64_t last_ = 0;
  size_t largest_ = 0;
  std::vector<Message> on_way_;
  std::map<uint64_t, FlowControl::Ticket> begun_;
  std::map<uint64_t, ObjectId> waiting_;
  std::map<uint64_t, size_t> sizes_;
  std::set<uint64_t> gone_;
  std::map<WorkerId, uint64_t> last_left_;
};

}  // namespace

TEST_CASE("calls leave in order, within the limits, and none waits for ever, in any order of events",
          "[calls]") {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    Simulation(seed, {.bytes = 1 + seed % 7 * 40, .messages = 1 + seed % 5}).run(300);
  }
}

TEST_CASE("one message always has room, however large, and the next one waits for it", "[calls]") {
  FlowControl flow({.bytes = 100, .messages = 2});
  auto large = flow.enter(actor(1), 1'000'000);
  REQUIRE(large);
  CHECK(flow.scarce(large));
  CHECK_FALSE(flow.enter(actor(2), 1));
  CHECK(flow.enter(actor(1, 5), 1));  // to another worker
  flow.leave(large);
  flow.leave(large);  // once is enough
  CHECK(flow.to(kPeer).bytes == 0);
  auto a = flow.enter(actor(1), 1), b = flow.enter(actor(1), 1);
  CHECK_FALSE(flow.scarce(a) != flow.scarce(b));
  CHECK_FALSE(flow.enter(actor(1), 1));  // the actor has two
  CHECK(flow.enter(actor(2), 1));
}

TEST_CASE("whoever waits and goes away holds nobody up", "[calls]") {
  FlowControl flow({.bytes = 100, .messages = 1});
  REQUIRE(flow.enter(actor(1), 1));
  flow.wait(2, actor(1), 1);
  flow.wait(3, actor(2), 1);
  REQUIRE(flow.begin_drain(kPeer));
  CHECK_FALSE(flow.next(kPeer, all_alive));  // 2 waits for its actor, 3 for 2
  REQUIRE(flow.begin_drain(kPeer));
  const auto next = flow.next(kPeer, [](uint64_t id) { return id != 2; });
  REQUIRE(next);
  CHECK(next->message == 3);
  CHECK_FALSE(flow.next(kPeer, all_alive));
  CHECK(flow.to(kPeer).waiting == 0);
  CHECK_FALSE(flow.begin_drain(kPeer));
  CHECK_FALSE(flow.begin_drain(77));
}

TEST_CASE("loads of actors that have nothing to do are not kept", "[calls]") {
  FlowControl flow(FlowLimits{});
  for (uint64_t n = 1; n < 10'000; ++n) {
    auto t = flow.enter(actor(n), 1);
    REQUIRE(t);
    flow.leave(t);
  }
  REQUIRE(flow.enter(actor(10'000), 8));
  CHECK(flow.all().messages == 1);
  CHECK(flow.all().bytes == 8);
}
