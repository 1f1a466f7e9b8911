// The protocol of cancellation alone: the caller's and the callee's tables as state machines, messages
// between them in any timing.
#include <catch2/catch.hpp>

#include <deque>
#include <map>
#include <set>

#include "actors/calls/incoming_calls.h"
#include "actors/calls/pending_calls.h"
#include "core/base/generator.h"

using namespace troupe;
using namespace troupe::internal::actors;
using namespace std::chrono_literals;

namespace {

constexpr WorkerId kCaller = 1, kCallee = 2;

struct FakeCall final : Cancellable {
  explicit FakeCall(uint64_t id) : id(id) {}
  void run() override {}
  void cancel() override { ++cancelled; }
  uint64_t id;
  int cancelled = 0;
};

Ref<FakeCall> fake(uint64_t id) { return make_ref<FakeCall>(id); }

// A caller, a callee, and a link that keeps the order of each direction. The thread that sends a call does so
// in two steps, between which anything may happen.
class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(seed) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
    while (!leaving_.empty()) leave();
    while (!to_callee_.empty()) arrive();
    while (!running_.empty()) answer(running_.begin()->first);
    while (!to_caller_.empty()) receive();
    REQUIRE(pending_.size() == 0);
    REQUIRE(pending_.in_flight().messages == 0);
    REQUIRE(pending_.in_flight().bytes == 0);
    REQUIRE(incoming_.size() == 0);
    for (const auto& [id, f] : futures_) REQUIRE(f.is_ready());
    for (uint64_t id : given_up_) {
      if (answered_.contains(id)) continue;
      INFO("call " << id << " was given up");
      REQUIRE(cancelled_.contains(id));  // before it was answered: each one that could be
    }
  }

 private:
  struct Message {
    bool cancel;
    uint64_t id;
  };

  void step() {
    now_ += 1ms;
    switch (random_.below(8)) {
      case 0:
      case 1: {  // a new call
        PendingCall call;
        call.caller.to = kCallee;
        call.to_actor = true;
        call.limit.made = now_;
        call.limit.end =
            random_.below(3) ? TimePoint::max() : now_ + std::chrono::milliseconds(random_.below(30));
        auto future = call.promise.future();
        const uint64_t id = pending_.next_id();
        const auto added = pending_.add(id, std::move(call), nullptr, {kCallee, kCaller, 1}, 1, OnFull::fail);
        REQUIRE(added.verdict == PendingCalls::Added::leaves);
        futures_.emplace(id, std::move(future));
        leaving_.push_back(id);
        return;
      }
      case 2:
        return leaving_.empty() ? void() : leave();
      case 3:
        return to_callee_.empty() ? void() : arrive();
      case 4:
        return to_caller_.empty() ? void() : receive();
      case 5:  // any call is given up, also one that has ended long ago
        if (futures_.empty()) return;
        if (auto g = pending_.give_up(1 + random_.below(futures_.size()))) end(*g);
        return;
      case 6: {
        for (const auto& g : pending_.expire(now_).calls) {
          REQUIRE(g.call.limit.end <= now_);
          end(g);
        }
        return;
      }
      case 7: {
        if (running_.empty()) return;
        auto at = running_.begin();
        std::advance(at, random_.below(running_.size()));
        return answer(at->first);
      }
    }
  }
  void end(const GivenUp& g) {
    REQUIRE(g.call.promise.fail(Error(ErrorKind::cancelled, "given up")));
    given_up_.insert(g.id);
    if (g.tell) to_callee_.push_back({true, g.id});
  }
  void leave() {
    const size_t i = random_.below(leaving_.size());
    const uint64_t id = leaving_[i];
    leaving_.erase(leaving_.begin() + static_cast<int64_t>(i));
    if (random_.below(10) == 0) {  // it could not be sent
      bool room = false;
      (void)pending_.not_sent(id, room);
      answered_.insert(id);  // there is nobody to tell
      return;
    }
    to_callee_.push_back({false, id});
    if (!pending_.sent(id)) to_callee_.push_back({true, id});
  }
  void arrive() {
    const Message m = to_callee_.front();
    if (random_.below(4)) to_callee_.pop_front();  // or it comes once more
    if (!m.cancel) {
      if (arrived_.insert(m.id).second) {
        const auto call = fake(m.id);
        REQUIRE(incoming_.add(kCaller, m.id, call));
        running_.emplace(m.id, call);
      } else if (running_.contains(m.id)) {
        REQUIRE_FALSE(incoming_.add(kCaller, m.id, fake(m.id)));
      }
      return;
    }
    REQUIRE(arrived_.contains(m.id));  // never before the call
    REQUIRE_FALSE(incoming_.find(kCaller + 1, m.id));
    auto call = incoming_.find(kCaller, m.id);
    if (!call) return;  // it has been answered
    REQUIRE(running_.contains(m.id));
    call->cancel();
    cancelled_.insert(m.id);
  }
  void answer(uint64_t id) {
    incoming_.remove(kCaller, id, *fake(id));  // another call of the same number: nothing
    REQUIRE(incoming_.find(kCaller, id));
    incoming_.remove(kCaller, id, *running_.at(id));
    if (!cancelled_.contains(id)) answered_.insert(id);
    running_.erase(id);
    to_caller_.push_back(id);
  }
  void receive() {
    const uint64_t id = to_caller_.front();
    to_caller_.pop_front();
    bool room = false;
    REQUIRE_FALSE(pending_.take(id, kCallee + 1, room));
    auto call = pending_.take(id, kCallee, room);
    REQUIRE(call.has_value() == !given_up_.contains(id));
    if (call) REQUIRE(call->promise.set(Value()));
  }

  Generator random_;
  TimePoint now_{};
  PendingCalls pending_{FlowLimits{}};
  IncomingCalls incoming_;
  std::deque<Message> to_callee_;
  std::deque<uint64_t> to_caller_;
  std::vector<uint64_t> leaving_;
  std::map<uint64_t, Future<Value>> futures_;
  std::map<uint64_t, Ref<FakeCall>> running_;
  std::set<uint64_t> given_up_, arrived_, answered_, cancelled_;
};

}  // namespace

TEST_CASE("a call that is given up is cancelled at its callee unless it was answered, in any timing") {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    INFO("seed " << seed);
    Simulation(seed).run(300);
  }
}

TEST_CASE("calls of a worker that is gone are found together") {
  IncomingCalls calls;
  for (uint64_t id = 1; id <= 3; ++id)
    for (WorkerId from : {kCaller, kCallee}) REQUIRE(calls.add(from, id, fake(id)));
  const auto gone = calls.of(kCaller);
  REQUIRE(gone.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(static_cast<const FakeCall&>(*gone[i]).id == i + 1);
  CHECK(calls.of(7).empty());
  calls.clear();
  CHECK(calls.size() == 0);
}

TEST_CASE("an uncancellable call past its deadline tells who waited, and goes on until it is answered") {
  PendingCalls pending({.bytes = 1, .messages = 1});
  const ObjectId actor{kCallee, kCaller, 1};
  const auto add = [&](bool uncancellable) {
    PendingCall call;
    call.caller.to = kCallee;
    call.to_actor = true;
    call.uncancellable = uncancellable;
    call.limit = {.made = TimePoint(), .end = TimePoint() + 10ms};
    const uint64_t id = pending.next_id();
    internal::net::Call message;
    const auto added = pending.add(id, std::move(call), &message, actor, 1, OnFull::wait);
    if (added.drain) CHECK_FALSE(pending.next(kCallee));  // no room yet
    return std::pair(id, added.verdict);
  };
  const auto [first, leaves] = add(true);
  REQUIRE(leaves == PendingCalls::Added::leaves);
  REQUIRE(pending.sent(first));
  const auto [second, waits] = add(true);  // for room
  REQUIRE(waits == PendingCalls::Added::waits);
  const auto [third, plain] = add(false);
  REQUIRE(plain == PendingCalls::Added::waits);

  const auto expired = pending.expire(TimePoint() + 10ms);
  REQUIRE(expired.calls.size() == 3);
  for (const GivenUp& g : expired.calls) CHECK_FALSE(g.tell);
  CHECK(pending.size() == 2);
  CHECK(expired.next == TimePoint::max());  // once
  CHECK(pending.expire(TimePoint() + 20ms).calls.empty());

  bool room = false;
  CHECK(pending.take(first, kCallee, room));
  REQUIRE(room);
  auto next = pending.next(kCallee);
  REQUIRE(next);
  CHECK(next->id == second);
  next->left.set();
  CHECK(pending.sent(second));
  room = false;
  CHECK(pending.take(second, kCallee, room));
  CHECK_FALSE(pending.next(kCallee));
  CHECK(pending.size() == 0);
  CHECK(pending.in_flight().messages == 0);
}
