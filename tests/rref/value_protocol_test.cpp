// Values and the references to them as pure state machines: creations, uses, results and reference messages
// on links that keep their own order and no other; workers that die; creations that are never sent.
#include <catch2/catch.hpp>

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/generator.h"
#include "rref/tables/creations.h"
#include "rref/tables/holder_table.h"
#include "rref/tables/owner_table.h"
#include "rref/tables/value_table.h"

using namespace troupe;
using namespace troupe::internal::rref;

namespace {

constexpr uint64_t kObjects = 4;
constexpr WorkerId kOwner = 0, kCreator = 1;

// Worker 1 has worker 0 compute kObjects values; everybody passes references on, uses and drops them.
class Simulation {
 public:
  Simulation(uint64_t seed, WorkerId workers, bool trouble)
      : random_(seed), holders_(workers), handles_(workers), dead_(workers), trouble_(trouble) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
    for (uint64_t n = created_ + 1; n <= kObjects; ++n) create();
    do {
      for (WorkerId w = 0; w < holders_.size(); ++w)
        for (uint64_t n = 1; n <= kObjects; ++n)
          while (handles_[w][n] > 0) drop(w, n);
      for (uint64_t n = 1; n <= kObjects; ++n) finish(n);
    } while (deliver());
    REQUIRE(owner_.objects() == 0);
    REQUIRE(owner_.pending() == 0);
    REQUIRE(owner_.holders() == 0);
    REQUIRE(values_.size() == 0);
    REQUIRE(creations_.waiting() == 0);
    for (WorkerId w = 1; w < holders_.size(); ++w) {
      if (dead_[w]) continue;
      REQUIRE(holders_[w].held() == 0);
      REQUIRE(holders_[w].registering() == 0);
    }
    for (const auto& [use, from] : unanswered_) REQUIRE(dead_[from]);
  }
  uint64_t waited = 0;  // uses that came before their value

 private:
  struct Message {
    enum Kind { make, reference, enroll, answer, release_grants, unpin, use, used } kind;
    WorkerId from;
    uint64_t object = 0, number = 0;  // pin, grants, or number of the use
    bool refused = false;
  };
  struct Pin {
    WorkerId from, to;
    uint64_t object;
  };
  static ObjectId id(uint64_t n) { return {kOwner, kCreator, n}; }
  void post(WorkerId to, Message m) {
    if (!dead_[m.from] && !dead_[to]) links_[{m.from, to}].push_back(m);
  }

  void step() {
    if (std::exchange(doomed_, false)) crash(kCreator);
    const auto w = static_cast<WorkerId>(random_.below(holders_.size()));
    const uint64_t n = 1 + random_.below(kObjects);
    switch (random_.below(trouble_ ? 100 : 99)) {
      case 99:
        if (w > 0) crash(w);
        break;
      default:
        switch (random_.below(14)) {
          case 0:
            return create();
          case 1:
          case 2:
          case 3:
            return pass(w, static_cast<WorkerId>(random_.below(holders_.size())), n);
          case 4:
          case 5:
            return use(w, n);
          case 6:
          case 7:
            if (handles_[w][n] > 0) drop(w, n);
            return;
          case 8:
            return finish(n);
          default:
            deliver();
        }
    }
  }

  void create() {
    if (created_ == kObjects) return;
    const uint64_t n = ++created_;
    if (dead_[kCreator]) return;
    holders_[kCreator].created(id(n));
    ++handles_[kCreator][n];
    if (trouble_ && random_.below(8) == 0) {  // it cannot be sent
      unsent_.insert(n);
      holders_[kCreator].not_made(id(n), Error(ErrorKind::overloaded, "full"));
    } else {
      post(kOwner, {Message::make, kCreator, n});
    }
  }
  void finish(uint64_t n) {
    if (!values_.has(id(n)) || finished_.contains(n)) return;
    finished_.insert(n);
    for (const Message& m : values_.finish(id(n), std::make_shared<const uint64_t>(n))) reply(m, true);
  }
  void pass(WorkerId from, WorkerId to, uint64_t n) {
    if (handles_[from][n] == 0 || from == to || dead_[to]) return;
    if (from == kOwner) {
      if (!granted(n, to)) {
        REQUIRE(dead_[kCreator]);
        return;
      }
      return post(to, {Message::reference, from, n, 0});
    }
    if (holders_[from].unshareable(id(n))) return;
    holders_[from].copied(id(n));
    pins_[++last_pin_] = {from, to, n};
    post(to, {Message::reference, from, n, last_pin_});
  }
  bool granted(uint64_t n, WorkerId to) {
    return owner_.grant(id(n), to) ||
           (!owner_.owns(id(n)) && creations_.pending(id(n)) && owner_.grant_early(id(n), to));
  }
  void use(WorkerId from, uint64_t n) {
    if (handles_[from][n] == 0 || (from && holders_[from].failure(id(n)))) return;
    unanswered_[++last_use_] = from;
    const Message m{Message::use, from, n, last_use_};
    from == kOwner ? used_at_owner(m) : post(kOwner, m);
  }
  void drop(WorkerId w, uint64_t n) {
    --handles_[w][n];
    if (w == kOwner)
      gone(n, owner_.release_grants(id(n), kOwner, 1));
    else
      perform(w, n, holders_[w].dropped(id(n)));
  }
  void gone(uint64_t n, bool dead) {
    if (dead) values_.release(id(n));
  }
  void perform(WorkerId w, uint64_t n, HolderActions actions) {
    for (const Unpin& u : actions.unpins) post(u.to, {Message::unpin, w, n, u.pin});
    if (actions.release_grants) post(kOwner, {Message::release_grants, w, n, actions.release_grants});
    if (actions.register_at_owner) post(kOwner, {Message::enroll, w, n});
  }

  // The first message of any link; false if there is none.
  bool deliver() {
    std::vector<std::pair<WorkerId, WorkerId>> busy;
    for (const auto& [link, queue] : links_)
      if (!queue.empty()) busy.push_back(link);
    if (busy.empty()) return false;
    deliver(busy[random_.below(busy.size())]);
    return true;
  }
  void deliver(std::pair<WorkerId, WorkerId> link) {
    const Message m = links_[link].front();
    links_[link].pop_front();
    const WorkerId to = link.second;
    switch (m.kind) {
      case Message::make: {
        REQUIRE(owner_.create(id(m.object), kCreator));
        values_.expect(id(m.object));
        auto waiting = creations_.take(id(m.object));
        creations_.made(id(m.object));
        for (const Message& w : waiting) w.kind == Message::use ? used_at_owner(w) : enrolled(w);
        break;
      }
      case Message::reference:
        if (to == kOwner) {
          if (m.number) post(m.from, {Message::unpin, kOwner, m.object, m.number});
          if (granted(m.object, kOwner)) ++handles_[kOwner][m.object];
        } else {
          ++handles_[to][m.object];
          perform(to, m.object, holders_[to].imported(id(m.object), m.from, m.number));
        }
        break;
      case Message::enroll:
        enrolled(m);
        break;
      case Message::answer: {
        auto why = m.refused ? std::optional(Error(ErrorKind::invalid, "gone")) : std::nullopt;
        perform(to, m.object, holders_[to].registered(id(m.object), why));
        break;
      }
      case Message::release_grants:
        gone(m.object, owner_.release_grants(id(m.object), m.from, m.number));
        break;
      case Message::unpin: {
        const auto pin = pins_.find(m.number);
        if (pin == pins_.end()) break;
        pins_.erase(pin);
        perform(to, m.object, holders_[to].dropped(id(m.object)));
        break;
      }
      case Message::use:
        used_at_owner(m);
        break;
      case Message::used:
        REQUIRE(unanswered_.erase(m.number) == 1);
        if (m.refused) REQUIRE((any_dead_ || unsent_.contains(m.object)));
        break;
    }
  }
  void enrolled(const Message& m) {
    if (owner_.grant(id(m.object), m.from)) return post(m.from, {Message::answer, kOwner, m.object});
    creations_.pending(id(m.object)) ? wait(m) : refuse(m);
  }
  void used_at_owner(const Message& m) {
    if (values_.has(id(m.object))) {
      if (values_.get(id(m.object), m))
        reply(m, true);
      else
        ++waited;
    } else if (creations_.pending(id(m.object))) {
      wait(m);
      ++waited;
    } else {
      reply(m, false);
    }
  }
  void wait(const Message& m) {
    creations_.wait(id(m.object), m);
    doomed_ = trouble_ && random_.below(3) == 0;  // the creator dies before what it makes has come
  }
  void refuse(const Message& m) {
    m.kind == Message::use ? reply(m, false) : post(m.from, {Message::answer, kOwner, m.object, 0, true});
  }
  void reply(const Message& m, bool good) {
    if (m.from != kOwner) return post(m.from, {Message::used, kOwner, m.object, m.number, !good});
    REQUIRE(unanswered_.erase(m.number) == 1);
    if (!good) REQUIRE((any_dead_ || unsent_.contains(m.object)));
  }

  // Of what it has sent, any part may still arrive.
  void crash(WorkerId w) {
    if (dead_[w]) return;
    for (auto& [link, queue] : links_)
      if (link.first == w)
        for (uint64_t k = random_.below(queue.size() + 1); k > 0; --k) deliver(link);
    dead_[w] = any_dead_ = true;
    handles_[w].clear();
    for (auto& [link, queue] : links_)
      if (link.first == w || link.second == w) queue.clear();
    for (const ObjectId& object : owner_.lose(w)) values_.release(object);
    for (const Message& m : creations_.lose(w)) refuse(m);
    for (auto p = pins_.begin(); p != pins_.end();) {
      const Pin pin = p->second;
      const bool over = pin.to == w && !dead_[pin.from];
      p = over ? pins_.erase(p) : std::next(p);
      if (over) perform(pin.from, pin.object, holders_[pin.from].dropped(id(pin.object)));
    }
  }

  Generator random_;
  OwnerTable owner_;
  ValueTable<uint64_t, Message> values_;
  Creations<Message> creations_;
  std::vector<HolderTable> holders_;
  std::vector<std::map<uint64_t, int>> handles_;
  std::vector<bool> dead_;
  bool trouble_, any_dead_ = false, doomed_ = false;
  std::map<std::pair<WorkerId, WorkerId>, std::deque<Message>> links_;
  std::map<uint64_t, Pin> pins_;
  std::map<uint64_t, WorkerId> unanswered_;  // uses and who waits for them
  std::set<uint64_t> finished_, unsent_;
  uint64_t created_ = 0, last_pin_ = 0, last_use_ = 0;
};

}  // namespace

TEST_CASE("every use of a value is answered once, and with the value, in any order of links") {
  uint64_t waited = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    INFO("seed " << seed);
    Simulation run(seed, 2 + static_cast<WorkerId>(seed % 4), false);
    run.run(200);
    waited += run.waited;
  }
  CHECK(waited > 1000);
}

TEST_CASE("every use of a value is answered once, although workers die and creations are not sent") {
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    INFO("seed " << seed);
    Simulation(seed, 3 + static_cast<WorkerId>(seed % 4), true).run(200);
  }
}
