// The protocol that brings a result straight to the call that uses it, alone: the tables of the caller, of
// the workers that make arguments and of the worker that is called, and messages between them in any order.
#include <catch2/catch.hpp>

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "actors/calls/hand_over.h"
#include "actors/calls/late_arguments.h"
#include "actors/calls/late_call.h"
#include "core/base/generator.h"

using namespace troupe;
using namespace troupe::internal::actors;

namespace {

constexpr WorkerId kCaller = 0, kMaker = 1, kOtherMaker = 2, kUser = 3, kWorkers = 4;

struct FakeCall final : Cancellable {
  explicit FakeCall(size_t j) : j(j) {}
  void run() override {}
  void cancel() override {}
  size_t j;
};

// Of each choice, which is taken: all of them one after the other, or random ones.
class Choices {
 public:
  explicit Choices(std::optional<uint64_t> seed = {})
      : random_(seed ? std::optional<Generator>(*seed) : std::nullopt) {}
  size_t of(size_t n) {
    if (n == 1) return 0;
    if (random_) return random_->below(n);
    if (at_ == path_.size()) path_.push_back({0, n});
    return path_[at_++].taken;
  }
  // Another run, with other choices. False: there are none.
  bool next() {
    at_ = 0;
    while (!path_.empty() && ++path_.back().taken == path_.back().of) path_.pop_back();
    return !path_.empty();
  }

 private:
  struct Choice {
    size_t taken, of;
  };
  std::optional<Generator> random_;
  std::vector<Choice> path_;
  size_t at_ = 0;
};

enum class Loss { none, maker, user, caller, link };

struct Scenario {
  std::vector<std::vector<WorkerId>> calls;  // for each late call, who makes its arguments
  bool drops = false;                        // the caller may want no result any more
  bool fails = false;                        // a method that makes an argument may throw
  bool unsendable = false;                   // a maker may not be able to send an argument
  bool refused = false;                      // an argument may be refused where it arrives
  bool asks_at_once = false;                 // nothing happens between the late call and the questions
  bool creation = false;                     // the called actor may have to be made first
  Loss loss = Loss::none;
};

class World {
 public:
  World(Choices& choices, const Scenario& scenario) : choices_(choices), scenario_(scenario) {
    for (size_t j = 0; j < scenario.calls.size(); ++j) {
      calls_.push_back(std::make_unique<Late>(scenario.calls[j].size()));
      for (size_t k = 0; k < scenario.calls[j].size(); ++k) send(kCaller, maker(j, k), {Message::make, j, k});
    }
  }

  void run() {
    while (step()) {
    }
    check();
  }

 private:
  using Answer = LateCall::Answer;
  struct Message {
    enum Kind { make, late_call, ask, argument, cancel_make, cancel_late, made, answer, closed } kind;
    size_t j = 0, k = 0;
    Answer how = Answer::value;
    uint64_t number = 0;
    bool well = true;
  };
  struct Argument {  // a call that makes one
    std::optional<Answer> answer;
    bool asked = false, given_up = false;
    // at its maker
    bool running = false, cancelled = false, ended = false;
    HandOverSlot slot;
    int sent = 0;  // copies of its value that left the maker
  };
  struct Late {
    explicit Late(size_t n) : state(n), arguments(n) {}
    LateCall state;
    std::vector<Argument> arguments;
    uint64_t number = 0;  // 0: has not left
    std::optional<bool> result;
    bool dropped = false;
    int began = 0;  // its own time
    // where it is called
    bool arrived = false, is_ready = false, cancelled = false, runs = false, answered = false;
    int ran = 0;
  };

  WorkerId maker(size_t j, size_t k) const { return scenario_.calls[j][k]; }
  static int64_t value(size_t j, size_t k) { return static_cast<int64_t>(10 * j + k); }

  void send(WorkerId from, WorkerId to, Message m) {
    if (!dead_[from] && !dead_[to] && !lost_[from].contains(to)) links_[{from, to}].push_back(m);
  }

  // ---- what can happen next

  bool step() {
    std::vector<std::function<void()>> events;
    if (!dead_[kCaller]) caller_events(events);
    for (size_t j = 0; j < calls_.size(); ++j)
      for (size_t k = 0; k < calls_[j]->arguments.size(); ++k)
        if (calls_[j]->arguments[k].running && !dead_[maker(j, k)]) maker_events(events, j, k);
    if (!dead_[kUser]) user_events(events);
    for (auto& [ends, link] : links_)
      if (!link.empty())
        events.push_back([this, ends, &link] {
          const Message m = link.front();
          link.pop_front();
          receive(ends.first, ends.second, m);
        });
    // A loss that would come after everything else shows nothing.
    if (events.empty()) return false;
    if (!loss_done_ && scenario_.loss != Loss::none) events.push_back([this] { lose(); });
    events[choices_.of(events.size())]();
    return true;
  }

  void caller_events(std::vector<std::function<void()>>& events) {
    for (size_t j = 0; j < calls_.size(); ++j) {
      Late& late = *calls_[j];
      if (late.dropped || late.result) continue;
      if (!late.number) {
        events.push_back([this, j] { leave(j); });
      } else {
        for (size_t k = 0; k < late.arguments.size(); ++k)
          if (!late.arguments[k].asked) {
            events.push_back([this, j, k] { ask(j, k); });
            break;
          }
      }
      if (scenario_.drops) events.push_back([this, j] { drop(j); });
    }
  }

  void maker_events(std::vector<std::function<void()>>& events, size_t j, size_t k) {
    events.push_back([this, j, k] { make(j, k, true, true); });
    if (scenario_.fails) events.push_back([this, j, k] { make(j, k, false, true); });
    if (scenario_.unsendable) events.push_back([this, j, k] { make(j, k, true, false); });
  }

  void user_events(std::vector<std::function<void()>>& events) {
    for (size_t j = 0; j < calls_.size(); ++j) {
      Late& late = *calls_[j];
      if (late.arrived && !late.is_ready) events.push_back([this, j] { ready(j); });
      if (late.runs)
        events.push_back([this, j] {
          calls_[j]->runs = false;
          answer(j, !calls_[j]->cancelled);
        });
    }
  }

  // ---- the caller

  void leave(size_t j) {
    Late& late = *calls_[j];
    if (lost_[kCaller].contains(kUser)) return finish(j, false);
    late.number = ++last_number_;
    send(kCaller, kUser, {.kind = Message::late_call, .j = j, .number = late.number});
    for (size_t k = 0; scenario_.asks_at_once && k < late.arguments.size(); ++k) ask(j, k);
  }
  void ask(size_t j, size_t k) {
    Argument& a = calls_[j]->arguments[k];
    a.asked = true;
    if (a.answer) return act(j, k, calls_[j]->state.answered(k, *a.answer));
    send(kCaller, maker(j, k), {.kind = Message::ask, .j = j, .k = k, .number = calls_[j]->number});
  }
  void answered(size_t j, size_t k, Answer how) {
    Argument& a = calls_[j]->arguments[k];
    if (a.answer || a.given_up) return;
    a.answer = how;
    if (a.asked) act(j, k, calls_[j]->state.answered(k, how));
  }
  void act(size_t j, size_t k, const LateCall::Next& next) {
    Late& late = *calls_[j];
    if (next.what == LateCall::Next::pass_on)
      send(kCaller, kUser, {.kind = Message::argument, .j = j, .k = k, .number = late.number});
    if (next.whole) ++late.began;
    if (next.what != LateCall::Next::fail) return;
    REQUIRE_FALSE(late.result);
    late.result = false;
    send(kCaller, kUser, {.kind = Message::cancel_late, .j = j});
    give_up(j, next.unwanted);
  }
  void drop(size_t j) {
    Late& late = *calls_[j];
    late.dropped = true;
    if (late.number) send(kCaller, kUser, {.kind = Message::cancel_late, .j = j});
    give_up(j, late.state.ended(false));
  }
  void finish(size_t j, bool well) {
    if (calls_[j]->result || calls_[j]->dropped) return;
    calls_[j]->result = well;
    give_up(j, calls_[j]->state.ended(well));
  }
  void give_up(size_t j, const std::vector<size_t>& unwanted) {
    for (size_t k : unwanted) {
      Argument& a = calls_[j]->arguments[k];
      if (a.answer) continue;  // before the late call had left
      a.given_up = true;
      send(kCaller, maker(j, k), {.kind = Message::cancel_make, .j = j, .k = k});
    }
  }

  // ---- makers of arguments

  void make(size_t j, size_t k, bool well, bool sendable) {
    Argument& a = calls_[j]->arguments[k];
    const WorkerId me = maker(j, k);
    a.running = false;
    a.ended = true;
    const auto how = a.slot.end();
    REQUIRE_FALSE(a.slot.end());
    Answer answer = well && !a.cancelled ? Answer::value : Answer::error;
    if (how && answer == Answer::value && sendable && !lost_[me].contains(how->to)) {
      REQUIRE(how->to == kUser);
      REQUIRE(how->index == k);
      send(me, how->to, {.kind = Message::argument, .j = j, .k = k, .number = how->number});
      answer = Answer::handed_over;
    }
    if (answer != Answer::error) ++a.sent;
    send(me, kCaller, {.kind = Message::made, .j = j, .k = k, .how = answer});
  }

  // ---- the worker that is called

  void ready(size_t j) {
    Late& late = *calls_[j];
    late.is_ready = true;
    const Ref<Cancellable> call = make_ref<FakeCall>(j);
    enter(table_.ready(kCaller, late.number, call));
    if (late.cancelled && table_.give_up(kCaller, late.number)) answer(j, false);
  }
  void enter(const LateArguments::Whole& whole) {
    if (!whole.call) return;
    const size_t j = static_cast<const FakeCall&>(*whole.call).j;
    Late& late = *calls_[j];
    if (whole.error) return answer(j, false);
    REQUIRE(++late.ran == 1);
    REQUIRE(whole.arguments.size() == late.arguments.size());
    std::set<uint32_t> seen;
    for (const LateArgument& a : whole.arguments) {
      REQUIRE(*a.value.value().get_if<int64_t>() == value(j, a.index));
      REQUIRE(seen.insert(a.index).second);
    }
    late.runs = true;
  }
  void answer(size_t j, bool well) {
    REQUIRE_FALSE(calls_[j]->answered);
    calls_[j]->answered = true;
    table_.ended(kCaller, calls_[j]->number);
    send(kUser, kCaller, {.kind = Message::answer, .j = j, .well = well});
  }
  void cancel_late(size_t j) {
    Late& late = *calls_[j];
    if (!late.arrived || late.answered) return;
    late.cancelled = true;
    if (table_.give_up(kCaller, late.number)) answer(j, false);
  }

  // ---- messages, and the end of workers

  void receive(WorkerId from, WorkerId at, const Message& m) {
    switch (m.kind) {
      case Message::make:
        calls_[m.j]->arguments[m.k].running = true;
        return;
      case Message::ask:
        if (Argument& a = calls_[m.j]->arguments[m.k]; a.running)
          REQUIRE(a.slot.ask({.to = kUser, .number = m.number, .index = static_cast<uint32_t>(m.k)}));
        return;
      case Message::cancel_make:
        calls_[m.j]->arguments[m.k].cancelled = true;
        return;
      case Message::made:
        return answered(m.j, m.k, m.how);
      case Message::answer:
        return finish(m.j, m.well);
      case Message::cancel_late:
        return cancel_late(m.j);
      case Message::late_call: {
        std::vector<LatePlace> places;
        for (size_t k = 0; k < calls_[m.j]->arguments.size(); ++k)
          places.push_back({static_cast<uint32_t>(k), maker(m.j, k)});
        REQUIRE(table_.arrived(kCaller, m.number, places));
        REQUIRE_FALSE(table_.arrived(kCaller, m.number, places));
        calls_[m.j]->arrived = true;
        if (!scenario_.creation) ready(m.j);
        return;
      }
      case Message::argument: {
        LateArgument a{.index = static_cast<uint32_t>(m.k), .value = Value(value(m.j, m.k)), .bytes = 8};
        if (scenario_.refused && choices_.of(2)) a.value = Error(ErrorKind::invalid, "refused");
        return enter(table_.came(from, kCaller, m.number, std::move(a)));
      }
      case Message::closed:
        lost_[at].insert(from);
        if (at == kCaller) caller_loses(from);
        if (at == kUser) user_loses(from);
        if (at != kUser && from == kCaller)
          for (auto& late : calls_)
            for (auto& a : late->arguments) a.cancelled = true;
        return;
    }
  }
  void caller_loses(WorkerId worker) {
    for (size_t j = 0; j < calls_.size(); ++j) {
      if (worker == kUser && calls_[j]->number) finish(j, false);
      for (size_t k = 0; k < calls_[j]->arguments.size(); ++k)
        if (maker(j, k) == worker) answered(j, k, Answer::error);
    }
  }
  void user_loses(WorkerId worker) {
    if (worker == kCaller)
      for (size_t j = 0; j < calls_.size(); ++j) cancel_late(j);
    for (const auto& whole : table_.lost(worker, Error(ErrorKind::disconnected, "lost"))) enter(whole);
  }
  void lose() {
    loss_done_ = true;
    const auto closes = [&](WorkerId from, WorkerId to) {
      auto& link = links_[{from, to}];
      if (!link.empty() && choices_.of(2)) link.clear();  // or what has left arrives
      link.push_back({Message::closed});
    };
    if (scenario_.loss == Loss::link) {
      closes(kMaker, kUser);
      closes(kUser, kMaker);
      return;
    }
    const WorkerId who = scenario_.loss == Loss::maker  ? kMaker
                         : scenario_.loss == Loss::user ? kUser
                                                        : kCaller;
    for (WorkerId w = 0; w < kWorkers; ++w) {
      if (w == who) continue;
      links_[{w, who}].clear();
      closes(who, w);
    }
    dead_[who] = true;
  }

  // ---- what must be true when nothing more can happen

  void check() {
    const bool undisturbed = !scenario_.fails && !scenario_.refused && !loss_done_;
    for (auto& late : calls_) {
      if (!dead_[kCaller]) {
        REQUIRE((late->result || late->dropped));
        if (late->result && *late->result) REQUIRE(late->ran == 1);
        if (undisturbed && !late->dropped) REQUIRE(*late->result);
        REQUIRE(late->began <= 1);
        for (size_t k = 0; k < late->arguments.size(); ++k) {
          const Argument& a = late->arguments[k];
          REQUIRE((a.answer || a.given_up));
          if (late->result && *late->result) REQUIRE_FALSE(a.given_up);
        }
      }
      for (const Argument& a : late->arguments) REQUIRE(a.sent <= 1);
      if (!dead_[kUser]) REQUIRE(late->arrived == late->answered);
    }
    if (dead_[kUser]) return;
    REQUIRE(table_.calls() == 0);
    REQUIRE(table_.early() == 0);
  }

  Choices& choices_;
  const Scenario scenario_;
  std::vector<std::unique_ptr<Late>> calls_;
  std::map<std::pair<WorkerId, WorkerId>, std::deque<Message>> links_;
  LateArguments table_;  // of the worker that is called
  uint64_t last_number_ = 0;
  std::array<bool, kWorkers> dead_{};
  std::array<std::set<WorkerId>, kWorkers> lost_;
  bool loss_done_ = false;
};

// Every order of events. Gives how many there were.
size_t exhaust(const Scenario& scenario) {
  Choices choices;
  size_t runs = 0;
  do {
    World(choices, scenario).run();
    ++runs;
  } while (choices.next());
  return runs;
}

}  // namespace

TEST_CASE("one result that goes straight to its user does so in every order of events") {
  const std::vector<std::vector<WorkerId>> one{{kMaker}};
  CHECK(exhaust({.calls = one}) > 10);
  CHECK(exhaust({.calls = one, .unsendable = true, .creation = true}) > 100);
  CHECK(exhaust({.calls = one, .fails = true}) > 10);
  CHECK(exhaust({.calls = one, .refused = true, .creation = true}) > 100);
}

TEST_CASE("one result whose user is not wanted any more leaves nothing, in every order of events") {
  CHECK(exhaust({.calls = {{kMaker}}, .drops = true}) > 100);
}

TEST_CASE("one result that goes straight ends with the loss of either worker, in every order of events") {
  for (const Loss loss : {Loss::maker, Loss::user, Loss::caller, Loss::link}) {
    INFO("loss " << static_cast<int>(loss));
    CHECK(exhaust({.calls = {{kMaker}}, .asks_at_once = true, .loss = loss}) > 100);
  }
}

TEST_CASE("several results for several calls go straight, with all that can go wrong, in random orders") {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    INFO("seed " << seed);
    Generator random(seed);
    Scenario scenario;
    for (size_t j = 0, n = 1 + random.below(3); j < n; ++j) {
      scenario.calls.emplace_back();
      for (size_t k = 0, m = 1 + random.below(3); k < m; ++k)
        scenario.calls.back().push_back(random.below(2) ? kMaker : kOtherMaker);
    }
    scenario.drops = random.below(3) == 0;
    scenario.fails = random.below(3) == 0;
    scenario.unsendable = random.below(3) == 0;
    scenario.refused = random.below(3) == 0;
    scenario.creation = random.below(2) == 0;
    if (random.below(2)) scenario.loss = static_cast<Loss>(1 + random.below(4));
    Choices choices(seed);
    World(choices, scenario).run();
  }
}
