// The protocol of an attempt, by exhaustion: a model of two to four replicas, each of which dies at any
// message, two of them, with calls that stay in mailboxes.
#include "troupe/attempt/machine.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using Machine = troupe::internal::AttemptMachine;
using Event = Machine::Event;
using Action = Machine::Action;

namespace {

// Rules of the protocol that can be left out.
struct Rules {
  bool rest = true, undo = true, commit_counts = true;
  int points = 2;
};

// What a forward pass changes (`moved`) and what a step does (`steps`); own: both say which rank it was.
struct Replica {
  int moved = 0, steps = 0;
  int late = 0;  // forward calls in its mailbox that nobody waits for any more
  std::map<int, int> points;
};

struct Kill {
  int at, victim;  // the number of a message, and whom it kills in the place of being handled
};

// All replicas, and a driver that makes `kSteps` steps; each forward pass moves each replica by one.
class World {
 public:
  static constexpr int kSteps = 2;
  World(int n, std::vector<Kill> kills, unsigned late, Rules rules)
      : rules_(rules), kills_(std::move(kills)), late_(late) {
    for (int r = 0; r < n; ++r) replicas_.emplace_back(Replica());
  }
  // Empty: the state is that of a run that nobody disturbed, or all died.
  std::string run() {
    (void)keep(0);
    own_ = next_;
    for (number_ = 0; number_ < kSteps;) {
      if (const auto why = attempt(); !why.empty()) return why;
      if (over_) return "";
      ++number_;
    }
    for (const auto& r : replicas_)
      if (r && (r->moved != kSteps || r->steps != kSteps))
        return "moved " + std::to_string(r->moved) + ", stepped " + std::to_string(r->steps);
    return "";
  }
  int messages() const { return count_; }

 private:
  // True: it was handled. A kill happens to anybody, whoever the message is for.
  bool message(size_t to, const std::function<void(Replica&)>& f) {
    for (auto k = kills_.begin(); k != kills_.end(); ++k)
      if (k->at == count_) {
        replicas_[static_cast<size_t>(k->victim)].reset();
        kills_.erase(k);
        break;
      }
    ++count_;
    if (!replicas_[to]) return false;
    f(*replicas_[to]);
    return true;
  }
  bool to_all(const std::function<void(Replica&)>& f) {
    bool all = true;
    for (size_t r = 0; r < replicas_.size(); ++r) all = message(r, f) && all;
    return all;
  }
  // An answer that came is there, whatever becomes of who gave it.
  bool keep(int number) {
    next_.assign(replicas_.size(), -1);
    bool all = true;
    for (size_t r = 0; r < replicas_.size(); ++r)
      all = message(r,
                    [&](Replica& x) {
                      x.points[number] = next_[r] = x.moved;
                      while (static_cast<int>(x.points.size()) > rules_.points)
                        x.points.erase(x.points.begin());
                    }) &&
            all;
    return all;
  }
  // Calls of those behind a loss are handled now, or stay in the mailbox.
  bool pass() {
    bool all = true;
    for (size_t r = 0; r < replicas_.size(); ++r) {
      const bool waits = !all && (late_ >> r & 1);
      all = message(r, [&](Replica& x) { waits ? ++x.late : ++x.moved; }) && all;
    }
    return all;
  }
  void handle_late() {
    for (auto& r : replicas_)
      if (r) r->moved += std::exchange(r->late, 0);
  }
  bool any() const {
    return std::any_of(replicas_.begin(), replicas_.end(), [](const auto& r) { return bool(r); });
  }
  // Newcomers have what a survivor has, and what the lost one had for itself.
  bool form() {
    for (size_t r = 0; r < replicas_.size(); ++r) {
      if (replicas_[r]) continue;
      const auto source =
          std::find_if(replicas_.begin(), replicas_.end(), [](const auto& x) { return bool(x); });
      Replica healed = **source;
      healed.moved = own_[r];
      healed.late = 0;
      healed.points.clear();
      replicas_[r] = healed;
      if (!message(r, [](Replica&) {})) return false;
    }
    return keep(number_ + (stands_ ? 1 : 0));
  }
  Event body() {
    if (!pass()) return Event::lost;
    if (!keep(number_ + 1)) return Event::lost;
    REQUIRE(machine_->on(Event::prepared) == Action::go_on);
    const auto own = next_;
    const bool all = to_all([](Replica& r) { ++r.steps; });
    if (!all && !rules_.commit_counts) {  // what the protocol is not: a loss here is like any other
      machine_.emplace();
      (void)machine_->on(Event::begin);
      return Event::lost;
    }
    if (!all) REQUIRE(machine_->on(Event::lost) == Action::go_on);
    REQUIRE(machine_->on(Event::committed) == Action::go_on);
    own_ = own, stands_ = true;
    return Event::returned;
  }
  std::string attempt() {
    machine_.emplace();
    stands_ = false;
    const bool missing = std::any_of(replicas_.begin(), replicas_.end(), [](const auto& r) { return !r; });
    Action next = machine_->on(missing ? Event::missing : Event::begin);
    for (int i = 0; i < 50; ++i) {
      if (!any()) return over_ = true, "";
      switch (next) {
        case Action::run: {
          const Event event = body();
          next = machine_->on(event);
          break;
        }
        case Action::keep:
          next = machine_->on(keep(number_) ? Event::done : Event::lost);
          break;
        case Action::rest:
          if (rules_.rest) handle_late();
          next = machine_->on(Event::done);
          break;
        case Action::undo: {
          bool all = true, known = true;
          for (size_t r = 0; r < replicas_.size() && rules_.undo; ++r)
            if (replicas_[r])
              all = message(r,
                            [&](Replica& x) {
                              const auto at = x.points.find(number_);
                              known = known && at != x.points.end();
                              if (known) x.moved = at->second;
                            }) &&
                    all;
          if (!known) return "no point";
          handle_late();  // without rest they come now
          next = machine_->on(all ? Event::done : Event::lost);
          break;
        }
        case Action::form:
          next = machine_->on(form() ? Event::done : Event::lost);
          break;
        case Action::finish:
          return "";
        case Action::give_up:
        case Action::go_on:
          return "what?";
      }
    }
    return "no end";
  }

  const Rules rules_;
  std::vector<Kill> kills_;
  const unsigned late_;
  std::vector<std::optional<Replica>> replicas_;
  std::optional<Machine> machine_;
  std::vector<int> own_, next_;
  int number_ = 0, count_ = 0;
  bool stands_ = false, over_ = false;
};

struct Tally {
  int runs = 0, wrong = 0;
  std::string first;
};

// Every kill, and every pair of them, at every message, with each set of calls that come late.
Tally all_runs(int n, int kills, Rules rules) {
  Tally tally;
  const auto one = [&](std::vector<Kill> some) {
    for (unsigned late = 0; late < (1U << n); ++late) {
      World world(n, some, late, rules);
      const std::string why = world.run();
      ++tally.runs;
      if (why.empty()) continue;
      if (!tally.wrong++) {
        tally.first = why + " of " + std::to_string(n) + ":";
        for (const Kill& k : some)
          tally.first += " " + std::to_string(k.victim) + " at " + std::to_string(k.at);
      }
    }
  };
  World undisturbed(n, {}, 0, Rules());
  CHECK(undisturbed.run().empty());
  const int most = undisturbed.messages() + 6 * n;  // with what repairs add
  for (int at = n; at < most; ++at)
    for (int victim = 0; victim < n; ++victim) {
      one({{at, victim}});
      for (int then = at; kills > 1 && then < most; ++then)
        for (int other = 0; other < n; ++other)
          if (then > at || other != victim) one({{at, victim}, {then, other}});
    }
  return tally;
}

}  // namespace

TEST_CASE("an attempt ends with the state of an undisturbed run, whoever dies in it, and when") {
  const int n = GENERATE(2, 3, 4);
  const Tally tally = all_runs(n, 2, Rules());
  INFO(tally.first);
  CHECK(tally.runs > 1000);
  CHECK(tally.wrong == 0);
}

TEST_CASE("each rule of an attempt is needed: without it some run ends otherwise") {
  CHECK(all_runs(3, 1, {.rest = false}).wrong > 0);
  CHECK(all_runs(3, 1, {.undo = false}).wrong > 0);
  CHECK(all_runs(3, 1, {.points = 1}).wrong > 0);
  CHECK(all_runs(3, 1, {.commit_counts = false}).wrong > 0);
}

TEST_CASE("an attempt that cannot form a set, or loses a member behind a second step, gives up") {
  Machine machine;
  CHECK(machine.on(Event::begin) == Action::run);
  CHECK(machine.on(Event::lost) == Action::rest);
  CHECK(machine.on(Event::done) == Action::undo);
  CHECK(machine.on(Event::lost) == Action::rest);
  CHECK(machine.on(Event::done) == Action::undo);
  CHECK(machine.on(Event::done) == Action::form);
  CHECK(machine.on(Event::refused) == Action::give_up);
  CHECK(machine.redone() == 1);
  CHECK_THROWS(machine.on(Event::begin));
  Machine stale;
  CHECK(stale.on(Event::stale) == Action::keep);
  CHECK(stale.on(Event::lost) == Action::rest);
  CHECK(stale.on(Event::done) == Action::form);
  CHECK(stale.on(Event::done) == Action::run);
  CHECK_THROWS(stale.on(Event::committed));
}
