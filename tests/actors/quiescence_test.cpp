// Finding out that nothing is under way: the state machine, with messages and questions in any order.
#include <catch2/catch.hpp>

#include <deque>
#include <random>

#include "actors/calls/quiescence.h"
#include "core/base/error.h"

using namespace troupe;
using namespace troupe::internal::actors;

namespace {

// Workers that handle messages and send others, a finite number in all.
class World {
 public:
  World(uint32_t seed, WorkerId count, int budget) : random_(seed), budget_(budget), workers_(count) {}

  size_t pick(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  WorkerId count() const { return static_cast<WorkerId>(workers_.size()); }

  void send(WorkerId from, WorkerId to) {
    if (budget_-- <= 0) return;
    if (from == to) return (void)++workers_[to].busy;
    ++workers_[from].peers[to].sent;
    if (!workers_[to].dead && !knows(from, to) && !knows(to, from)) on_the_way_.emplace_back(from, to);
  }
  // Something happens: a message arrives, or a worker ends what it does, which may send messages.
  void step() {
    const auto w = static_cast<WorkerId>(pick(count()));
    if (!rumours_.empty() && pick(10) == 0) {
      const auto [who, of] = rumours_.front();
      rumours_.pop_front();
      hear(who, of);
    }
    if (pick(2) && !on_the_way_.empty()) {
      const auto at = on_the_way_.begin() + static_cast<ptrdiff_t>(pick(on_the_way_.size()));
      const auto [from, to] = *at;
      on_the_way_.erase(at);
      ++workers_[to].peers[from].arrived;
      ++workers_[to].busy;
    } else if (workers_[w].busy && !workers_[w].dead) {
      for (size_t n = pick(3); n > 0; --n) send(w, static_cast<WorkerId>(pick(count())));
      --workers_[w].busy;
    }
  }
  // What a dead worker sent arrives until the others hear of its death, one by one.
  void kill(WorkerId w) {
    workers_[w].dead = true;
    std::erase_if(on_the_way_, [w](const auto& m) { return m.second == w; });
    for (WorkerId other = 0; other < count(); ++other)
      if (other != w) rumours_.emplace_back(other, w);
  }
  // Two that live lose each other, one of them first.
  void cut(WorkerId a, WorkerId b) {
    hear(a, b);
    rumours_.emplace_back(b, a);
  }
  TrafficReport report(WorkerId w) const {
    return {w, workers_[w].busy, workers_[w].peers, workers_[w].lost, {}};
  }
  bool dead(WorkerId w) const { return workers_[w].dead; }
  bool at_rest() const {
    for (const auto& w : workers_)
      if (!w.dead && w.busy) return false;
    return on_the_way_.empty();
  }

 private:
  struct Worker {
    int64_t busy = 0;
    std::map<WorkerId, CallCounts> peers;
    std::set<WorkerId> lost;
    bool dead = false;
  };
  bool knows(WorkerId who, WorkerId of) const { return workers_[who].lost.contains(of); }
  void hear(WorkerId who, WorkerId of) {
    workers_[who].lost.insert(of);
    std::erase(on_the_way_, std::pair(of, who));
  }
  std::mt19937 random_;
  int budget_;
  std::vector<Worker> workers_;
  std::deque<std::pair<WorkerId, WorkerId>> on_the_way_;
  std::deque<std::pair<WorkerId, WorkerId>> rumours_;  // who has yet to hear of the loss of whom
};

enum class Trouble { none, killed, cut };

// Asks in waves until the machine says that nothing is under way; true if that was so.
bool right_in_the_end(uint32_t seed, Trouble trouble) {
  World world(seed, 2 + seed % 4, 200);
  std::set<WorkerId> all;
  for (WorkerId w = 0; w < world.count(); ++w) all.insert(w), world.send(0, w);
  Quiescence machine(all);
  const size_t speed = 1 + world.pick(20);  // how much happens between two questions
  for (int wave = 0; wave < 10'000; ++wave) {
    machine.start_wave();
    auto missing = machine.missing();
    while (!missing.empty()) {
      for (size_t n = world.pick(speed + 1); n > 0; --n) world.step();
      if (trouble == Trouble::killed && world.count() > 2 && !world.dead(1) && world.pick(30) == 0) {
        world.kill(1);
        machine.lost(1);
        std::erase(missing, WorkerId{1});
        continue;
      }
      if (trouble == Trouble::cut && world.pick(30) == 0) world.cut(0, 1);
      const auto at = missing.begin() + static_cast<ptrdiff_t>(world.pick(missing.size()));
      machine.report(world.report(*at));
      missing.erase(at);
    }
    if (machine.at_rest()) return world.at_rest();
  }
  FAIL("never came to rest, seed " << seed << ": " << machine.under_way());
  return false;
}

}  // namespace

TEST_CASE("rest is never claimed while a message is on its way or handled, and is found in the end") {
  const auto trouble = GENERATE(Trouble::none, Trouble::killed, Trouble::cut);
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    const bool right = right_in_the_end(seed, trouble);
    if (!right) FAIL("seed " << seed << " with trouble " << static_cast<int>(trouble));
  }
  SUCCEED();
}

TEST_CASE("one wave proves nothing, and what is under way is named") {
  Quiescence machine({0, 1, 2});
  machine.start_wave();
  CHECK_FALSE(machine.at_rest());
  CHECK(machine.missing() == std::vector<WorkerId>{0, 1, 2});
  const TrafficReport quiet0{0, 0, {{1, {3, 0}}}, {}, {}}, quiet1{1, 0, {{0, {0, 3}}}, {}, {}},
      quiet2{2, 0, {}, {}, {}};
  for (const auto& r : {quiet0, quiet1, quiet2}) machine.report(r);
  CHECK_FALSE(machine.at_rest());
  machine.start_wave();
  machine.report(quiet0);
  machine.report({1, 2, {{0, {0, 1}}}, {}, {"Layer::forward"}});
  CHECK(machine.under_way() ==
        "2 calls from w0 to w1 have not arrived; w1 has 2 calls or jobs under way, waits for Layer::forward; "
        "w2 "
        "does not answer");
  machine.report(quiet1);
  machine.report(quiet2);
  CHECK(machine.at_rest());
  machine.start_wave();
  machine.report({0, 0, {{1, {4, 0}}}, {}, {}});
  machine.report({1, 0, {{0, {0, 4}}}, {}, {}});  // it arrived after the wave before
  machine.report(quiet2);
  CHECK_FALSE(machine.at_rest());
}

TEST_CASE("a worker's report travels whole, and one that is none is refused") {
  const TrafficReport report{3, 2, {{1, {5, 7}}, {2, {0, 1}}}, {4, 6}, {"A::b"}};
  const TrafficReport back = TrafficReport::from_value(report.to_value());
  CHECK(back.worker == 3);
  CHECK(back.busy == 2);
  CHECK(back.peers == report.peers);
  CHECK(back.lost == report.lost);
  CHECK(back.waits == report.waits);
  CHECK_THROWS_AS(TrafficReport::from_value(Value(int64_t{1})), Error);
}
