// Pools at random: calls come, members die, come back, answer late; each call ends once.
#include "troupe/pool/supervision.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "core/base/generator.h"

using namespace troupe;
using internal::Supervision;
using Kind = Supervision::Action::Kind;

namespace {

constexpr size_t kMembers = 3;

// The world around the machine: what is under way, and what was said of each task.
struct World {
  World(const RestartPolicy& policy, int at_once)
      : policy(policy), at_once(at_once), machine(kMembers, policy, at_once) {
    take(machine.begin());
  }

  struct Sent {
    Supervision::Task task;
    size_t member;
    int64_t incarnation;
  };
  struct Made {
    size_t member;
    int64_t incarnation;
  };

  void take(const Supervision::Actions& actions) {
    for (const auto& a : actions) switch (a.kind) {
        case Kind::start:
          CHECK(a.incarnation == machine.incarnation(a.member));
          making.push_back({a.member, a.incarnation});
          lives[a.member] = -1;
          break;
        case Kind::end:
          lives[a.member] = -1;
          break;
        case Kind::send:
          CHECK(!paused);
          CHECK(lives[a.member] == a.incarnation);
          CHECK(ended.count(a.task) == 0);
          CHECK(++times[a.task] <= again[a.task] + 1);
          if (fixed.contains(a.task)) CHECK(fixed[a.task] == a.member);
          under_way.push_back({a.task, a.member, a.incarnation});
          break;
        case Kind::fail:
          CHECK(ended.insert(a.task).second);
          break;
        case Kind::give_up:
          CHECK(!given_up);
          given_up = true;
          break;
      }
    std::map<size_t, int> busy;
    for (const Sent& s : under_way)
      if (lives[s.member] == s.incarnation && !fixed.contains(s.task) && !ended.contains(s.task))
        CHECK(++busy[s.member] <= at_once);
  }

  void add(Generator& random) {
    const Supervision::Task task = ++last;
    std::optional<size_t> member;
    if (random.below(4) == 0) fixed[task] = *(member = random.below(kMembers));
    again[task] = static_cast<int>(random.below(3));
    take(machine.add(task, member, again[task]));
  }
  void start(Generator& random) {
    if (making.empty()) return;
    const size_t i = random.below(making.size());
    const Made m = making[i];
    making.erase(making.begin() + static_cast<std::ptrdiff_t>(i));
    if (machine.incarnation(m.member) == m.incarnation && !given_up) lives[m.member] = m.incarnation;
    take(machine.started(m.member, m.incarnation));
  }
  void answer(Generator& random) {
    if (under_way.empty()) return;
    const size_t i = random.below(under_way.size());
    const Sent s = under_way[i];
    under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(i));
    const auto actions = machine.answered(s.task, s.member, s.incarnation);
    CHECK(actions.has_value() == (lives[s.member] == s.incarnation && !ended.contains(s.task)));
    if (!actions) return;
    CHECK(ended.insert(s.task).second);
    done.push_back(s.task);
    take(*actions);
  }
  void lose(Generator& random) {
    std::vector<Supervision::Seat> seats;  // those of a worker
    for (size_t m = 0; m < kMembers; ++m)
      if (random.below(2) == 0) seats.push_back({m, machine.incarnation(m) - (random.below(5) == 0 ? 1 : 0)});
    for (const auto& [m, incarnation] : seats)
      if (incarnation == machine.incarnation(m)) lives[m] = -1;
    now += std::chrono::seconds(random.below(30));
    take(machine.lost(seats, now));
  }
  // Nobody dies any more: all that is left comes to its end.
  void finish(Generator& random) {
    if (paused) paused = false, take(machine.resume());
    while (!making.empty() || !under_way.empty()) start(random), answer(random);
    CHECK(ended.size() == last);
    CHECK(machine.waiting() == 0);
    CHECK(machine.under_way() == 0);
    CHECK((given_up || machine.settled()));
  }

  const RestartPolicy policy;
  const int at_once;
  Supervision machine;
  std::vector<Made> making;
  std::vector<Sent> under_way;
  std::map<size_t, int64_t> lives;
  std::map<Supervision::Task, int> times, again;
  std::map<Supervision::Task, size_t> fixed;
  std::set<Supervision::Task> ended;
  std::vector<Supervision::Task> done;
  Supervision::Task last = 0;
  TimePoint now{};
  bool given_up = false, paused = false;
};

}  // namespace

TEST_CASE("each call of a pool ends once, whatever dies when", "[pool]") {
  size_t given_up = 0, done = 0, calls = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Generator random(seed);
    const RestartPolicy policy{.restart = Restart(random.below(3)),
                               .most = static_cast<int>(random.below(12))};
    World world(policy, 1 + static_cast<int>(random.below(2)));
    for (int event = 0; event < 60; ++event) switch (random.below(8)) {
        case 0:
        case 1:
          world.add(random);
          break;
        case 2:
        case 3:
          world.start(random);
          break;
        case 4:
        case 5:
          world.answer(random);
          break;
        case 6:
          world.lose(random);
          break;
        default:
          if (world.paused) {
            world.paused = false;
            world.take(world.machine.resume());
          } else {
            world.paused = true;
            world.machine.pause();
          }
      }
    world.finish(random);
    given_up += world.given_up, done += world.done.size(), calls += world.last;
  }
  CHECK(given_up > 100);
  CHECK(done > calls / 3);
}

TEST_CASE("calls that wait for whoever is free are sent in their order", "[pool]") {
  Supervision machine(2, {}, 1);
  machine.begin();
  for (Supervision::Task t = 1; t <= 5; ++t) CHECK(machine.add(t, std::nullopt, 1).empty());
  const auto sent = [](const Supervision::Actions& actions) {
    std::vector<Supervision::Task> tasks;
    for (const auto& a : actions)
      if (a.kind == Kind::send) tasks.push_back(a.task);
    return tasks;
  };
  CHECK(sent(machine.started(0, 0)) == std::vector<Supervision::Task>{1});
  CHECK(sent(machine.started(1, 0)) == std::vector<Supervision::Task>{2});
  CHECK(sent(machine.lost({{0, 0}}, {})).empty());
  CHECK(sent(*machine.answered(2, 1, 0)) ==
        std::vector<Supervision::Task>{1});  // before those that came later
  CHECK(sent(*machine.answered(1, 1, 0)) == std::vector<Supervision::Task>{3});
  CHECK(sent(machine.started(0, 1)) == std::vector<Supervision::Task>{4});
}

TEST_CASE("what a lost worker had goes to none of its other members", "[pool]") {
  Supervision machine(3, {}, 1);
  machine.begin();
  for (size_t m = 0; m < 3; ++m) machine.started(m, 0);
  CHECK(machine.add(1, std::nullopt, 1).size() == 1);  // to member 0
  const auto actions = machine.lost({{0, 0}, {1, 0}}, {});
  CHECK(std::ranges::count_if(actions, [](const auto& a) { return a.kind == Kind::send; }) == 1);
  CHECK(std::ranges::any_of(actions, [](const auto& a) { return a.kind == Kind::send && a.member == 2; }));
}

TEST_CASE("losses that are long ago do not end a pool", "[pool]") {
  const auto ends = [](Duration pause) {
    Supervision machine(1, {.most = 2, .within = std::chrono::seconds(10)}, 1);
    machine.begin();
    TimePoint now{};
    for (int64_t i = 0; i < 20; ++i) {
      machine.started(0, i);
      machine.lost({{0, i}}, now += pause);
    }
    return machine.given_up();
  };
  CHECK_FALSE(ends(std::chrono::seconds(6)));
  CHECK(ends(std::chrono::seconds(4)));
}
