// Links that come back: both ends as pure machines over a simulated way that breaks, is late, and loses
// dials.
#include "net/protocol/link.h"

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>

using namespace troupe;
using namespace troupe::internal::net;
using Word = LinkWords::Word;
using std::chrono::milliseconds;

namespace {

constexpr Duration kSilence = std::chrono::seconds(5), kHeartbeat = std::chrono::seconds(1);
const LinkId kLink{std::byte{7}};

// What goes along a connection: a message with its number, or the word that so many have been received.
struct SimFrame {
  bool numbered = false;
  uint32_t number = 0;
  int payload = 0;
};

// Assertions of Catch take their time, even those that hold, and there are millions.
void must(bool holds, const char* otherwise) {
  if (!holds) FAIL(otherwise);
}

struct Way;  // one connection

class SimLinkEnd;

struct SimWorld {
  explicit SimWorld(uint32_t seed) : random(seed) {}
  int64_t upto(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random); }
  Duration delay() { return milliseconds(upto(20)) + std::chrono::microseconds(upto(999)); }
  void at(TimePoint when, std::function<void()> what) { events.emplace(when, std::move(what)); }
  void after(Duration d, std::function<void()> what) { at(now + d, std::move(what)); }
  // Until nothing is left, or that time.
  void run(TimePoint until) {
    while (!events.empty() && events.begin()->first <= until) {
      auto first = events.extract(events.begin());
      now = first.key();
      first.mapped()();
    }
    now = until;
  }
  bool passes(int from) const { return now >= cut_until[from]; }
  std::mt19937 random;
  TimePoint now{std::chrono::hours(1)};
  std::multimap<TimePoint, std::function<void()>> events;
  TimePoint cut_until[2] = {};  // of the way from that end
  std::shared_ptr<Way> way;     // the newest
  SimLinkEnd* ends[2] = {};
};

// Behaves as TCP: in order, and what the way does not let through comes when it does, if the connection still
// stands then, some time later. A broken one gives nothing more; each end hears of that later, or never.
struct Way : std::enable_shared_from_this<Way> {
  explicit Way(SimWorld& w) : world(w) {}
  void send(int from, const SimFrame& frame);
  void shut(int by);
  void reset();
  SimWorld& world;
  bool broken = false;
  TimePoint last[2] = {};
};

class SimLinkEnd {
 public:
  SimLinkEnd(SimWorld& world, int side, int messages, bool anew = false)
      : world_(world), side_(side), left_(messages), comeback_(side == 0, kLink, kSilence) {
    comeback_.set_direct(world.upto(3) != 0);
    heard_ = world.now;
    lost_ = anew;  // this process knows nothing of the link
    produce();
    tick();
  }
  ~SimLinkEnd() { *alive_ = false; }

  void begin(std::shared_ptr<Way> way) { way_ = std::move(way); }
  bool lost() const { return lost_; }
  int delivered() const { return delivered_; }
  int sent() const { return payload_; }
  size_t held() const { return window_.unacknowledged().size() + window_.waiting().size(); }
  bool up() const { return comeback_.is_up(); }
  const std::shared_ptr<Way>& way() const { return way_; }

  void arrived(const std::shared_ptr<Way>& from, const SimFrame& frame) {
    if (lost_ || from != way_) return;
    heard_ = world_.now;
    if (!frame.numbered) {
      std::vector<SimFrame> over;
      must(window_.acknowledge(frame.number, over), "what was not sent is acknowledged");
      return flush();
    }
    must(ahead(frame.number, expected_) <= 0, "a frame is left out");
    if (frame.number != expected_) return;
    must(frame.payload == delivered_, "a frame comes twice, or out of order");
    ++expected_, ++delivered_;
    if (world_.upto(3) == 0) acknowledge();
  }
  void ended(const std::shared_ptr<Way>& from) {
    if (lost_ || from != way_) return;
    way_ = nullptr;
    comeback_.broke();
    look();
  }
  LinkWords asked(const LinkWords& words, const std::shared_ptr<Way>& way) {
    if (lost_) return {.id = words.id, .word = Word::unknown};
    const LinkWords answer = comeback_.asked(world_.now, words, expected_);
    if (answer.word == Word::again) use(way, words.received);
    return answer;
  }
  void lose() {
    lost_ = true;
    if (way_) way_->shut(side_);
    way_ = nullptr;
  }

 private:
  // On the event loop, and not if this end has crashed meanwhile.
  void after(Duration d, std::function<void()> what) {
    world_.after(d, [alive = alive_, what = std::move(what)] {
      if (*alive) what();
    });
  }
  void produce() {
    if (lost_ || left_ == 0) return;
    for (int64_t n = std::min<int64_t>(left_, 1 + world_.upto(4)); n > 0; --n, --left_)
      window_.push({true, number_++, payload_++});
    flush();
    after(milliseconds(world_.upto(400)), [this] { produce(); });
  }
  // Something goes each second, as heartbeats do, and says what has come.
  void tick() {
    if (lost_) return;
    acknowledge();
    look();
    after(kHeartbeat, [this] { tick(); });
  }
  void acknowledge() {
    if (!way_) return;
    window_.push_ahead({false, expected_, 0}, false);
    flush();
  }
  void flush() {
    if (!way_) return;
    while (!window_.waiting().empty() &&
           (!window_.waiting().front().numbered || window_.unacknowledged().size() < 8)) {
      way_->send(side_, window_.waiting().front());
      window_.written(true);
    }
  }
  void use(const std::shared_ptr<Way>& way, uint32_t received) {
    if (way_ && way_ != way) way_->shut(side_);
    way_ = way;
    heard_ = world_.now;
    std::vector<SimFrame> over;
    must(window_.again(received, over), "more was received than was sent");
    flush();
    look();
  }
  void look() {
    if (lost_) return;
    const auto next = comeback_.next(world_.now, heard_);
    if (next.what == Comeback::Do::give_up) return lose();
    if (next.what == Comeback::Do::dial) dial();
    const uint64_t turn = ++turn_;
    const auto again = comeback_.next(world_.now, heard_).again;
    after(std::max<Duration>(again - world_.now, milliseconds(1)), [this, turn] {
      if (turn == turn_) look();
    });
  }
  void dial() {
    auto words = comeback_.dial(world_.now, expected_);
    const uint32_t attempt = words.attempt;
    after(comeback_.patience(), [this, attempt] { failed(attempt, Comeback::Failure::failed); });
    if (world_.upto(9) == 0) return;  // lost on the way
    // Some come late, when they have been given up.
    const Duration there = world_.delay() + milliseconds(world_.upto(9) == 0 ? 900 : 0);
    const int other = 1 - side_, me = side_;
    auto way = std::make_shared<Way>(world_);
    SimWorld& world = world_;
    world.after(there, [alive = alive_, &world, way, words, other, me, attempt, this] {
      if (!world.passes(me) || !world.passes(other)) return;
      const Duration back = world.delay();
      way->last[other] = world.now + back + Duration(1);  // nothing overtakes the answer
      SimLinkEnd* there = world.ends[other];
      const auto answer = there ? std::optional(there->asked(words, way)) : std::nullopt;
      world.after(back, [alive, &world, way, answer, other, attempt, this] {
        if (!*alive || !world.passes(other) || world.upto(19) == 0) return way->shut(1 - other);
        if (!answer) return failed(attempt, Comeback::Failure::refused);
        switch (comeback_.answered(attempt, world.now, *answer)) {
          case Word::again:
            if (!lost_) use(way, answer->received);
            return;
          case Word::unknown:
            return lose();
          default:
            way->shut(1 - other);
            return look();
        }
      });
    });
  }
  void failed(uint32_t attempt, Comeback::Failure why) {
    if (lost_) return;
    if (!comeback_.failed(attempt, world_.now, why)) return lose();
    look();
  }

  SimWorld& world_;
  const int side_;
  int left_;
  Comeback comeback_;
  Window<SimFrame> window_;
  std::shared_ptr<Way> way_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  TimePoint heard_{};
  uint32_t expected_ = 0, number_ = 0;
  uint64_t turn_ = 0;
  int delivered_ = 0, payload_ = 0;
  bool lost_ = false;
};

void Way::send(int from, const SimFrame& frame) {
  if (broken) return;
  last[from] = std::max(last[from], std::max(world.now, world.cut_until[from]) + world.delay());
  if (world.now < world.cut_until[from])  // TCP tries again later and later
    last[from] = std::max(last[from], world.cut_until[from] + milliseconds(world.upto(3000)));
  world.at(last[from], [self = shared_from_this(), from, frame] {
    if (self->broken) return;
    if (SimLinkEnd* to = self->world.ends[1 - from]) to->arrived(self, frame);
  });
}

// One end closes it: the other hears of it after what is on its way, if anything comes through.
void Way::shut(int by) {
  if (broken) return;
  broken = true;
  world.after(world.delay(), [self = shared_from_this(), by] {
    if (SimLinkEnd* to = self->world.ends[1 - by]; to && self->world.passes(by)) to->ended(self);
  });
}

void Way::reset() {
  if (broken) return;
  broken = true;
  const auto silent = world.upto(5);  // 0, 1: that end hears nothing
  for (int side : {0, 1})
    if (silent != side)
      world.after(milliseconds(world.upto(50)), [self = shared_from_this(), side] {
        if (SimLinkEnd* to = self->world.ends[side]) to->ended(self);
      });
}

struct SimRun {
  explicit SimRun(uint32_t seed) : world(seed) {
    for (int side : {0, 1}) remake(side, 60);
    auto way = std::make_shared<Way>(world);
    for (auto& end : ends) end->begin(way);
  }
  void remake(int side, int messages, bool anew = false) {
    ends[side] = std::make_unique<SimLinkEnd>(world, side, messages, anew);
    world.ends[side] = ends[side].get();
  }
  void crash(int side) {
    if (const auto way = ends[side]->way()) way->shut(side);
    world.ends[side] = nullptr;
    ends[side].reset();
  }
  SimWorld world;
  std::unique_ptr<SimLinkEnd> ends[2];
};

constexpr int kRuns = 10'000;

void lose_and_repeat_nothing(int first, int end) {
  for (int seed = first; seed < end; ++seed) {
    CAPTURE(seed);
    SimRun run(static_cast<uint32_t>(seed));
    SimWorld& w = run.world;
    TimePoint at = w.now;
    for (int64_t faults = 1 + w.upto(9); faults > 0; --faults) {
      at += milliseconds(w.upto(1500));
      if (w.upto(3) != 0) {
        w.at(at, [&] {
          for (auto& end : run.ends)
            if (const auto way = end->way()) way->reset();
        });
        continue;
      }
      const Duration length = milliseconds(w.upto(2000));
      const int64_t whom = w.upto(2);  // one way, the other, or both
      w.at(at, [&w, length, whom] {
        for (int side : {0, 1})
          if (whom != side) w.cut_until[side] = w.now + length;
      });
      at += length + kSilence;  // so that the silences do not add up
    }
    w.run(at + std::chrono::seconds(60));
    for (auto& end : run.ends) {
      REQUIRE_FALSE(end->lost());
      CHECK(end->up());
      CHECK(end->held() == 0);
    }
    CHECK(run.ends[0]->way() == run.ends[1]->way());
    CHECK(run.ends[0]->delivered() == run.ends[1]->sent());
    CHECK(run.ends[1]->delivered() == run.ends[0]->sent());
    CHECK(run.ends[0]->sent() == 60);
  }
}

}  // namespace

TEST_CASE("links that are reset again and again, and cut for less than the bound, lose and repeat nothing") {
  lose_and_repeat_nothing(0, kRuns);
}
TEST_CASE("two hundred thousand runs more of links that are reset and cut", "[.more]") {
  lose_and_repeat_nothing(kRuns, 21 * kRuns);
}

TEST_CASE("a link is lost at both ends where it is cut for longer, or one of them ends or begins anew") {
  for (int seed = 0; seed < kRuns / 4; ++seed) {
    CAPTURE(seed);
    SimRun run(static_cast<uint32_t>(seed));
    SimWorld& w = run.world;
    const int64_t what = w.upto(2), whom = w.upto(1);
    const TimePoint at = w.now + milliseconds(w.upto(8000));
    w.at(at, [&] {
      if (what == 0) {
        for (auto& until : w.cut_until) until = w.now + kSilence + std::chrono::seconds(8);
      } else {
        run.crash(static_cast<int>(whom));
        if (what == 2)
          w.after(milliseconds(w.upto(500)), [&] { run.remake(static_cast<int>(whom), 0, true); });
      }
    });
    w.run(at + std::chrono::milliseconds(5500));
    if (what == 0) {
      for (auto& end : run.ends) CHECK(end->lost());
    } else {
      CHECK(run.ends[1 - whom]->lost());
    }
  }
}

TEST_CASE("a process that has ended is noticed at once where nothing on the way changes addresses") {
  for (const bool direct : {true, false}) {
    Comeback end(true, kLink, kSilence);
    end.set_direct(direct);
    const TimePoint now{std::chrono::hours(1)};
    CHECK(end.next(now, now).what == Comeback::Do::wait);
    end.broke();
    CHECK(end.next(now, now).what == Comeback::Do::dial);
    const auto words = end.dial(now, 3);
    CHECK(words == LinkWords{.id = kLink, .word = Word::again, .attempt = 1, .received = 3});
    CHECK(end.failed(words.attempt, now, Comeback::Failure::refused) == !direct);
  }
}

TEST_CASE("of two ends that dial at once, the one that opened the link goes first") {
  const TimePoint now{std::chrono::hours(1)};
  Comeback opener(true, kLink, kSilence), other(false, kLink, kSilence);
  opener.broke(), other.broke();
  const auto first = opener.dial(now, 5), second = other.dial(now, 9);
  CHECK(opener.asked(now, second, 5).word == Word::later);
  const auto answer = other.asked(now, first, 9);
  CHECK(answer.word == Word::again);
  CHECK(answer.received == 9);
  CHECK(other.answered(second.attempt, now, {.id = kLink, .word = Word::later}) == Word::later);
  CHECK(opener.answered(first.attempt, now, answer) == Word::again);
  CHECK((opener.is_up() && other.is_up()));
  CHECK(other.asked(now, first, 9).word == Word::later);  // came late, once more
}

TEST_CASE("what both ends say of a link travels as it is, and words that there are none of are unknown") {
  const LinkWords words{kLink, Word::again, 4, 0xfffffffe, 1, 0x123456789abcdef0};
  auto bytes = encode_link_words(words);
  CHECK(decode_link_words(bytes.data()) == words);
  bytes[16] = std::byte{9};
  CHECK(decode_link_words(bytes.data()).word == Word::unknown);
}

TEST_CASE("numbers of frames begin again after the last one") {
  Window<SimFrame> window;
  std::vector<SimFrame> over;
  CHECK_FALSE(window.acknowledge(1, over));
  for (int i = 0; i < 3; ++i) window.push({true, static_cast<uint32_t>(i), i}), window.written(true);
  window.push({false, 0, 0});
  CHECK(window.again(2, over));
  CHECK(over.size() == 3);  // two that have arrived, and the word that was for the old connection
  REQUIRE(window.waiting().size() == 1);
  CHECK(window.waiting().front().payload == 2);
  CHECK(window.acknowledge(1, over));
  CHECK(over.size() == 3);
  CHECK(ahead(2, 0xffffffff) == 3);
  CHECK(ahead(0xffffffff, 2) == -3);
}
