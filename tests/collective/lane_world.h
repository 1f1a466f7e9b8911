// Ranks that show each other the words of a lane, one access at a time in any order: each rank is a thread,
// of which one at a time runs, and whoever chooses says at each access who is next. A rank may die at any of
// them.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collective/lane_words.h"

namespace troupe::testing {

using namespace internal::collective;

/// What a rank does about one operation.
struct LaneCall {
  bool by_memory = true;
  uint64_t what = 1;
  enum { awaits, goes_on, gives_up } then = awaits;  ///< gives_up: it fails here while it is open
};

class LaneWorld {
 public:
  struct Plan {
    std::vector<std::vector<LaneCall>> calls;  // of each rank
    std::vector<uint64_t> first;               // the operation at which a rank's lane begins
    std::optional<size_t> dies;                // this rank,
    size_t at_access = 0;                      // there
    std::optional<LaneRule> without;
  };
  /// Of the ranks that can go on, who is next; `now`: who has run until now, if that can.
  using Choose = std::function<size_t(const std::vector<size_t>& ranks, std::optional<size_t> now)>;

  LaneWorld(Plan plan, Choose choose)
      : plan_(std::move(plan)), choose_(std::move(choose)), ranks_(plan_.calls.size()) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const size_t n = plan_.calls[r].size();
      ranks_[r].way.resize(n, LaneWay::open);
      ranks_[r].called_at.resize(n, -1);
      ranks_[r].failed_at.resize(n, -1);
      ranks_[r].in_slot.resize(n);
    }
  }

  /// What was wrong; empty: nothing.
  std::string run() {
    std::vector<std::thread> threads;
    turn_ = kNobody;
    for (size_t r = 0; r < ranks_.size(); ++r) threads.emplace_back([this, r] { live(r); });
    go_on({});
    for (std::thread& t : threads) t.join();
    check();
    return wrong_;
  }
  size_t accesses(size_t rank) const { return ranks_[rank].accesses; }

 private:
  struct Died {};
  struct RankOf {
    std::array<uint64_t, kLaneSlots> state{}, what{}, elements{};
    uint64_t called = 0, done = 0, asleep = 0;
    bool made = false, rung = false, sleeps = false, over = false, dead = false;
    size_t accesses = 0;
    std::vector<LaneWay> way;
    std::vector<int> called_at, failed_at;  // of the accesses of all, by operation; -1: not
    std::vector<bool> in_slot;
  };
  struct Words {
    LaneWorld* world;
    size_t self;
    size_t rank() const { return self; }
    size_t ranks() const { return world->ranks_.size(); }
    bool keeps(LaneRule rule) const { return world->plan_.without != rule; }
    uint64_t state(size_t r, uint64_t slot) const { return at(r).state[slot]; }
    uint64_t what(size_t r, uint64_t slot) const { return at(r).what[slot]; }
    uint64_t called(size_t r) const { return at(r).called; }
    uint64_t done(size_t r) const { return at(r).done; }
    uint64_t asleep(size_t r) const { return at(r).asleep; }
    void set_state(uint64_t slot, uint64_t x) const { at(self).state[slot] = x; }
    void set_what(uint64_t slot, uint64_t x) const { at(self).what[slot] = x; }
    void set_called(uint64_t x) const { at(self).called = x; }
    void set_done(uint64_t x) const { at(self).done = x; }
    void set_asleep(uint64_t x) const { at(self).asleep = x; }

   private:
    RankOf& at(size_t r) const { return world->access(self), world->ranks_[r]; }
  };
  static constexpr size_t kNobody = SIZE_MAX;
  static uint64_t element(size_t rank, uint64_t use) { return 1000 * use + rank + 1; }

  // Those that begin with the first operation are there before anybody calls.
  uint64_t begins(size_t rank) const { return plan_.first.empty() ? 0 : plan_.first[rank]; }
  void access(size_t self) {
    RankOf& r = ranks_[self];
    ++clock_;
    if (plan_.dies == self && r.accesses == plan_.at_access) throw Died{};
    ++r.accesses;
    go_on(self);
  }
  // Hands the turn on, and waits for the own one.
  void go_on(std::optional<size_t> self) {
    std::vector<size_t> can;
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (!ranks_[r].over && (!ranks_[r].sleeps || ranks_[r].rung)) can.push_back(r);
    const bool goes_on = self && std::ranges::find(can, *self) != can.end();
    const size_t next = can.empty() ? kNobody - 1 : choose_(can, goes_on ? self : std::nullopt);
    if (next == self) return;
    turn_ = next;
    turn_.notify_all();
    if (self && !ranks_[*self].over) wait(*self);
  }
  void wait(size_t self) {
    for (size_t t = turn_; t != self && t != kNobody - 1; t = turn_) turn_.wait(t);
    if (turn_ == kNobody - 1) throw Died{};  // nothing goes on
  }

  void live(size_t self) {
    RankOf& r = ranks_[self];
    const auto& calls = plan_.calls[self];
    try {
      wait(self);
      act(self, calls);
    } catch (const Died&) {
    }
    r.dead = r.way.empty() || (plan_.dies == self && r.accesses == plan_.at_access);
    if (turn_ == kNobody - 1) return;
    r.over = true;
    try {
      go_on(self);
    } catch (const Died&) {
    }
  }

  void act(size_t self, const std::vector<LaneCall>& calls) {
    RankOf& r = ranks_[self];
    const uint64_t first = begins(self);
    for (uint64_t use = 0; use < first; ++use) r.way[use] = LaneWay::messages, r.called_at[use] = clock_;
    LaneWords<Words> lane({this, self}, first);
    if (first) access(self);
    r.made = true;
    std::vector<LaneWords<Words>::Decided> decided;
    const auto note = [&] {
      for (const auto& [use, way] : decided)
        if (r.way[use] == LaneWay::open) r.way[use] = way;
      decided.clear();
    };
    const auto take = [&](uint64_t use) {
      for (size_t x = 0; x < ranks_.size(); ++x) {
        access(self);
        if (ranks_[x].elements[use % kLaneSlots] != element(x, use))
          wrong_ += "rank " + std::to_string(self) + " took other elements of operation " +
                    std::to_string(use) + "; ";
      }
    };
    const auto tell = [&](size_t to) { ranks_[to].rung = true; };
    const auto is_over = [&](uint64_t use) { return r.way[use] != LaneWay::open || r.failed_at[use] >= 0; };
    const auto await = [&](uint64_t use) {
      lane.advance(decided, take, tell, false);
      note();
      while (!is_over(use)) {
        lane.sleep(use, decided, take);
        note();
        if (is_over(use)) break;
        r.sleeps = true;
        go_on(self);
        r.sleeps = r.rung = false;
        lane.advance(decided, take, tell, false);
        note();
      }
    };
    for (uint64_t use = first; use < calls.size(); ++use) {
      bool all_made = true;
      for (size_t x = 0; x < ranks_.size(); ++x)
        if (begins(x)) access(self), all_made &= ranks_[x].made;
      const LaneCall& call = calls[use];
      r.called_at[use] = clock_;
      if (call.by_memory && all_made && lane.has_room()) {
        r.in_slot[use] = true;
        lane.by_memory(call.what,
                       [&](uint64_t slot) { access(self), r.elements[slot] = element(self, use); });
      } else {
        lane.by_messages(tell);
        r.way[use] = LaneWay::messages;
      }
      lane.advance(decided, take, tell);
      note();
      if (call.then == LaneCall::gives_up && r.way[use] == LaneWay::open) {
        lane.failed(use);
        r.failed_at[use] = clock_;
        for (size_t x = 0; x < ranks_.size(); ++x) tell(x);  // the message that says so
      }
      if (call.then == LaneCall::awaits) await(use);
    }
    for (uint64_t use = first; use < calls.size(); ++use) await(use);
  }

  void check() {
    const size_t n = plan_.calls[0].size();
    for (uint64_t use = 0; use < n; ++use) {
      bool all_called = true, all_in_slot = true, one_failed = false;
      int failed = -1;
      for (const RankOf& r : ranks_) {
        all_called &= r.called_at[use] >= 0 && !(r.dead && r.way[use] == LaneWay::open);
        all_in_slot &= r.in_slot[use];
        one_failed |= r.failed_at[use] >= 0;
        failed = std::max(failed, r.failed_at[use]);
      }
      bool same = true;
      for (const auto& calls : plan_.calls) same &= calls[use].what == plan_.calls[0][use].what;
      const std::string op = "operation " + std::to_string(use);
      for (size_t self = 0; self < ranks_.size(); ++self) {
        const RankOf& r = ranks_[self];
        const std::string who = "rank " + std::to_string(self) + ": " + op;
        if (r.way[use] == LaneWay::memory && !(all_in_slot && same)) wrong_ += who + " went by memory; ";
        if (r.way[use] == LaneWay::messages && all_in_slot && same && !one_failed)
          wrong_ += who + " went by messages; ";
        if (r.way[use] == LaneWay::memory && failed >= 0 && r.called_at[use] > failed)
          wrong_ += who + " is complete, though it had failed; ";
        if (r.way[use] == LaneWay::open && r.failed_at[use] < 0 && all_called && !r.dead)
          wrong_ += who + " was never decided; ";
      }
    }
  }

  const Plan plan_;
  const Choose choose_;
  std::vector<RankOf> ranks_;
  std::atomic<size_t> turn_{kNobody};
  int clock_ = 0;
  std::string wrong_;
};

/// All orders in which ranks are interrupted at most `most` times, one after the other.
class AllOrders {
 public:
  explicit AllOrders(size_t most) : most_(most) {}
  size_t choose(const std::vector<size_t>& ranks, std::optional<size_t> now) {
    if (ranks.size() == 1 || (now && interrupted_ == most_)) return now.value_or(ranks[0]);
    std::vector<size_t> options = ranks;
    if (now) std::iter_swap(options.begin(), std::ranges::find(options, *now));
    if (at_ == path_.size()) path_.push_back({0, options.size()});
    const size_t next = options[path_[at_++].chosen];
    if (now && next != *now) ++interrupted_;
    return next;
  }
  /// The next one. False: that was all.
  bool next() {
    path_.resize(at_);
    at_ = interrupted_ = 0;
    while (!path_.empty() && path_.back().chosen + 1 == path_.back().of) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().chosen;
    return true;
  }

 private:
  struct Choice {
    size_t chosen, of;
  };
  const size_t most_;
  std::vector<Choice> path_;
  size_t at_ = 0, interrupted_ = 0;
};

}  // namespace troupe::testing
