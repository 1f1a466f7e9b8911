// The reference counting protocol alone: owner and holders as pure state machines, messages delivered in any
// order, workers that die.
#include <catch2/catch.hpp>

#include <map>
#include <optional>
#include <vector>

#include "core/base/generator.h"
#include "rref/tables/holder_table.h"
#include "rref/tables/owner_table.h"

using namespace troupe;
using namespace troupe::internal::rref;

namespace {

constexpr ObjectId kObject{0, 1, 1};

// One owner (worker 0) and some holders; messages wait in a bag and are delivered in random order.
class Simulation {
 public:
  Simulation(uint64_t seed, WorkerId workers, bool crashes)
      : random_(seed), holders_(workers), handles_(workers), dead_(workers), crashes_(crashes) {
    owner_.create(kObject, 1);
    holders_[1].created(kObject);
    handles_[1] = 1;
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
    for (WorkerId w = 0; w < holders_.size(); ++w)
      while (handles_[w] > 0) drop(w);
    while (!bag_.empty()) {
      deliver();
      for (WorkerId w = 0; w < holders_.size(); ++w)
        while (handles_[w] > 0) drop(w);
    }
    REQUIRE_FALSE(owner_.owns(kObject));
    for (WorkerId w = 1; w < holders_.size(); ++w)
      if (!dead_[w]) REQUIRE(holders_[w].held() == 0);
    for (const auto& [pin, p] : pins_) REQUIRE(dead_[p.from]);
  }

 private:
  struct Message {
    enum Kind { reference, enroll, answer, release_grants, unpin } kind;
    WorkerId from, to;
    uint64_t number = 0;  // pin, or grants
    bool refused = false;
  };
  struct Pin {
    WorkerId from, to;
  };

  void step() {
    const auto w = static_cast<WorkerId>(random_.below(holders_.size()));
    switch (random_.below(crashes_ ? 40 : 10)) {
      case 0:
      case 1:
      case 2:
        if (handles_[w] > 0) send(w, static_cast<WorkerId>(random_.below(holders_.size())));
        break;
      case 3:
      case 4:
        if (handles_[w] > 0) drop(w);
        break;
      case 10:
        if (w > 1) crash(w);
        break;
      default:
        deliver();
    }
    check();
  }

  // Whoever has a handle can use it: the object lives. (If its sender has died, only once it has been
  // registered.)
  void check() {
    for (WorkerId w = 0; w < holders_.size(); ++w) {
      if (dead_[w] || handles_[w] == 0) continue;
      if (any_dead_ && w && (holders_[w].failure(kObject) || holders_[w].registering())) continue;
      REQUIRE(owner_.owns(kObject));
    }
  }

  void send(WorkerId from, WorkerId to) {
    if (from == to || dead_[from] || dead_[to]) return;
    if (from == 0) {
      REQUIRE(owner_.grant(kObject, to));
      bag_.push_back({Message::reference, from, to, 0});
    } else {
      holders_[from].copied(kObject);
      pins_[++last_pin_] = {from, to};
      bag_.push_back({Message::reference, from, to, last_pin_});
    }
  }

  void drop(WorkerId w) {
    --handles_[w];
    if (w == 0)
      owner_.release_grants(kObject, 0, 1);
    else
      perform(w, holders_[w].dropped(kObject));
  }

  void perform(WorkerId w, HolderActions actions) {
    for (const Unpin& u : actions.unpins) bag_.push_back({Message::unpin, w, u.to, u.pin});
    if (actions.release_grants) bag_.push_back({Message::release_grants, w, 0, actions.release_grants});
    if (actions.register_at_owner) bag_.push_back({Message::enroll, w, 0});
  }

  void deliver() {
    if (bag_.empty()) return;
    const size_t at = random_.below(bag_.size());
    const Message m = bag_[at];
    bag_.erase(bag_.begin() + static_cast<std::ptrdiff_t>(at));
    if (dead_[m.to]) return;
    switch (m.kind) {
      case Message::reference:
        if (m.to == 0) {
          if (m.number) bag_.push_back({Message::unpin, 0, m.from, m.number});
          if (owner_.grant(kObject, 0))
            ++handles_[0];
          else
            REQUIRE(dead_[m.from]);
        } else {
          ++handles_[m.to];
          perform(m.to, holders_[m.to].imported(kObject, m.from, m.number));
        }
        break;
      case Message::enroll: {
        const bool granted = owner_.grant(kObject, m.from);
        bag_.push_back({Message::answer, 0, m.from, 0, !granted});
        break;
      }
      case Message::answer:
        perform(m.to,
                holders_[m.to].registered(
                    kObject, m.refused ? std::optional(Error(ErrorKind::invalid, "gone")) : std::nullopt));
        if (m.refused) REQUIRE(any_dead_);  // without deaths nobody is ever refused
        break;
      case Message::release_grants:
        owner_.release_grants(kObject, m.from, m.number);
        break;
      case Message::unpin:
        if (pins_.erase(m.number)) perform(m.to, holders_[m.to].dropped(kObject));
        break;
    }
  }

  void crash(WorkerId w) {
    if (dead_[w]) return;
    dead_[w] = any_dead_ = true;
    handles_[w] = 0;
    owner_.lose(w);
    for (auto p = pins_.begin(); p != pins_.end();) {
      if (p->second.to != w || dead_[p->second.from]) {
        ++p;
        continue;
      }
      const WorkerId from = p->second.from;
      p = pins_.erase(p);
      perform(from, holders_[from].dropped(kObject));
    }
  }

  Generator random_;
  OwnerTable owner_;
  std::vector<HolderTable> holders_;
  std::vector<int> handles_;
  std::vector<bool> dead_;
  bool crashes_, any_dead_ = false;
  std::vector<Message> bag_;
  std::map<uint64_t, Pin> pins_;
  uint64_t last_pin_ = 0;
};

}  // namespace

TEST_CASE("an object lives as long as anybody holds it, and no longer, in any order of messages") {
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    INFO("seed " << seed);
    Simulation(seed, 2 + static_cast<WorkerId>(seed % 5), false).run(120);
  }
}

TEST_CASE("references of workers that die are reclaimed, in any order of messages") {
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    INFO("seed " << seed);
    Simulation(seed, 3 + static_cast<WorkerId>(seed % 4), true).run(160);
  }
}

TEST_CASE("a lost holder is never listed again") {
  OwnerTable owner;
  owner.create(kObject, 1);
  CHECK(owner.grant(kObject, 2));
  CHECK(owner.lose(1).empty());
  CHECK(owner.lose(2) == std::vector<ObjectId>{kObject});
  owner.create(kObject, 3);
  CHECK_FALSE(owner.grant(kObject, 2));
}
