// Ranks of groups on simulated workers: what they call, messages between them in any order, work that takes
// time, workers that die and links that break; and what their operations should have given.
#pragma once
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collective/lane_words.h"
#include "collective/matching/operations.h"
#include "core/base/generator.h"

namespace troupe::testing {

using namespace internal::collective;

using Numbers = std::vector<float>;
inline Value to_payload(const float* x, size_t n) {
  Bytes bytes(n * sizeof(float));
  if (n) std::memcpy(bytes.data(), x, bytes.size());
  return Value(std::move(bytes));
}
inline Numbers from_payload(const Value& v) {
  const Bytes& bytes = *v.get_if<Bytes>();
  Numbers x(bytes.size() / sizeof(float));
  if (!x.empty()) std::memcpy(x.data(), bytes.data(), bytes.size());
  return x;
}
// Sums of them are exact in any order.
inline float number(uint64_t job, size_t rank, size_t i) {
  return static_cast<float>(splitmix64(job * 1009 + rank * 31 + i) % 100);
}

// An operation that a group is to do.
struct RankCall {
  uint64_t group;
  OperationTag tag;
  Signature signature;
  uint64_t number;
  bool by_memory = false;
};
struct Rank {
  size_t worker;
  std::vector<RankCall> jobs;  // that it has not called yet, in its own order
};
struct Called {
  RankCall job;
  Numbers work;
  int ended = 0;
  std::optional<Error> error;
};

class RankWorld {
 public:
  RankWorld(uint64_t seed, size_t workers) : random_(seed), alive_(workers, true) {
    for (size_t w = 0; w < workers; ++w) tables_.push_back(std::make_unique<Operations>());
  }

  // Ranks of a group, by worker.
  void add_group(uint64_t group, const std::vector<size_t>& workers) {
    std::vector<GroupMember>& all = members_[group];
    for (size_t r = 0; r < workers.size(); ++r) {
      ranks_[{group, r}] = {workers[r], {}};
      all.push_back({static_cast<WorkerId>(workers[r]), "w" + std::to_string(workers[r])});
    }
  }
  size_t size(uint64_t group) const { return members(group).size(); }
  Rank& rank(uint64_t group, size_t r) { return ranks_.at({group, r}); }
  const std::vector<GroupMember>& members(uint64_t group) const { return members_.at(group); }

  void call(uint64_t group, size_t r) {
    Rank& rank = ranks_.at({group, r});
    const RankCall job = rank.jobs.back();
    rank.jobs.pop_back();
    Operations::Out out;
    const Problem& p = job.signature.problem;
    Called called{job, Numbers(p.elements(), -1)};
    for (const Range& x : p.brings(r))
      for (size_t i = x.from; i < x.end(); ++i) called.work[i] = number(job.number, p.adds() ? r : 0, i);
    if (with_lanes_ && !job.tag.single_use) return call_with_lane(rank.worker, group, r, std::move(called));
    const OperationId id = tables_[rank.worker]->enter(group, members(group), r, job.tag, job.signature, out);
    called_[id] = std::move(called);
    take(rank.worker, std::move(out));
  }
  // From the first call on, each tag of a group that is not of a single use has a lane.
  void use_lanes() { with_lanes_ = true; }
  size_t went_by_memory() const { return by_memory_; }

  void refuse(uint64_t group, size_t r, const OperationTag& tag, Collective what, const Error& why) {
    Operations::Out out;
    const size_t w = ranks_.at({group, r}).worker;
    tables_[w]->refuse(group, members(group), r, tag, what, why, out);
    if (with_lanes_ && !tag.single_use) lane_by_messages(w, {group, r, tag.name, 0});
    take(w, std::move(out));
  }

  // One thing that can happen, but for calls. False: there is none.
  bool step() {
    std::vector<std::pair<size_t, size_t>>
        told;  // who, of whom: what came before the end of a connection comes first
    for (const auto& x : losses_)
      if (links_[{x.second, x.first}].empty()) told.push_back(x);
    const size_t n = full_.size() + told.size() + work_.size();
    if (!n) return false;
    size_t pick = random_.below(n);
    if (pick < full_.size()) {
      const auto [from, to] = full_[pick];
      auto& queue = links_[full_[pick]];
      Packet p = std::move(queue.front());
      queue.pop_front();
      if (queue.empty()) {
        full_[pick] = full_.back();
        full_.pop_back();
      }
      Operations::Out out;
      const auto sender = static_cast<WorkerId>(from);
      if (p.notice && p.notice->error && p.notice->error->kind() == ErrorKind::disconnected)
        give_up_lanes(to, [&](uint64_t group) { return group == p.notice->to.group; });
      if (p.wakes) return wake(to, *p.wakes), true;
      if (p.part)
        tables_[to]->part(sender, *p.part, std::move(p.elements), out);
      else
        tables_[to]->notice(sender, *p.notice, out);
      if (out.refused) FAIL(out.refused->what());
      take(to, std::move(out));
    } else if ((pick -= full_.size()) < told.size()) {
      const auto [who, whom] = told[pick];
      losses_.erase(std::ranges::find(losses_, told[pick]));
      give_up_lanes(who, [&, of = whom](uint64_t group) {
        return std::ranges::any_of(members(group), [&](const GroupMember& m) { return m.worker == of; });
      });
      Operations::Out out;
      tables_[who]->lost(
          static_cast<WorkerId>(whom),
          Error(ErrorKind::disconnected, "the connection ended").with_worker("w" + std::to_string(whom)),
          out);
      take(who, std::move(out));
    } else {
      pick -= told.size();
      std::swap(work_[pick], work_.back());
      auto [worker, work] = std::move(work_.back());
      work_.pop_back();
      Operations::Out out;
      do_work(worker, work);
      tables_[worker]->done(work.id, work.chunk, out);
      take(worker, std::move(out));
    }
    return true;
  }
  void settle() {
    while (step()) {
    }
  }

  void kill(size_t w) {
    alive_[w] = false;
    std::erase_if(work_, [w](const auto& x) { return x.first == w; });
    std::erase_if(losses_, [w](const auto& x) { return x.first == w; });
    for (size_t other = 0; other < alive_.size(); ++other)
      if (alive_[other]) cut_off(other, w);
    links_[{w, w}].clear();
    note_full();
    std::erase_if(called_,
                  [&](const auto& x) { return ranks_.at({x.first.group, x.first.rank}).worker == w; });
  }
  // A connection between two that live on.
  void cut(size_t a, size_t b) {
    cut_off(a, b);
    cut_off(b, a);
    note_full();
  }
  bool alive(size_t w) const { return alive_[w]; }

  void overdue(const OperationId& id) {
    Operations::Out out;
    const size_t w = worker_of(id);
    tables_[w]->overdue(id, "5 s", out);
    take(w, std::move(out));
  }
  void unanswered(const OperationId& id) {
    Operations::Out out;
    for (size_t r = 0; r < size(id.group); ++r) tables_[worker_of(id)]->unanswered(id, r, out);
    take(worker_of(id), std::move(out));
  }
  void cancel(const OperationId& id) {
    Operations::Out out;
    tables_[worker_of(id)]->cancel(id, out);
    take(worker_of(id), std::move(out));
  }
  void give_up(const OperationId& id, const Error& why) {
    Operations::Out out;
    tables_[worker_of(id)]->give_up(id, members(id.group), why, out);
    take(worker_of(id), std::move(out));
  }
  std::vector<OperationId> open() const {
    std::vector<OperationId> all;
    for (const auto& [id, c] : called_)
      if (!c.ended) all.push_back(id);
    return all;
  }
  Operations& table(size_t w) { return *tables_[w]; }
  const std::map<OperationId, Called>& called() const { return called_; }
  std::map<std::pair<uint64_t, size_t>, Rank>& ranks() { return ranks_; }
  Generator& random() { return random_; }

  // What ended well is right.
  void check_results() const {
    for (const auto& [id, c] : called_) {
      if (c.ended != 1)
        FAIL("rank " << id.rank << ", group " << id.group << ", tag " << id.tag << " ended " << c.ended
                     << " times");
      if (c.error) continue;
      for (const Range& x : c.job.signature.problem.gets(id.rank))
        for (size_t i = x.from; i < x.end(); ++i)
          if (const float e = expected(c.job, i); c.work[i] != e)
            FAIL(c.job.signature.str() << ", rank " << id.rank << ": " << c.work[i] << ", not " << e);
    }
  }
  // Nothing is left where the groups are used no more.
  void check_empty() {
    std::set<uint64_t> groups;
    for (const auto& [at, rank] : ranks_) groups.insert(at.first);
    for (size_t w = 0; w < tables_.size(); ++w)
      if (alive_[w])
        for (const uint64_t g : groups) {
          Operations::Out out;
          tables_[w]->forget(g, out);
          take(w, std::move(out));
        }
    for (auto& [link, queue] : links_) queue.clear();
    full_.clear();
    for (size_t w = 0; w < tables_.size(); ++w)
      if (alive_[w]) CHECK(tables_[w]->counts() == Operations::Counts{});
  }

 private:
  static float expected(const RankCall& job, size_t i) {
    const Problem& p = job.signature.problem;
    if (!p.adds()) return number(job.number, 0, i);
    float sum = 0;
    for (size_t r = 0; r < p.ranks; ++r) sum += number(job.number, r, i);
    return sum;
  }
  struct Packet {
    std::optional<Part> part;
    Value elements;
    std::optional<Notice> notice;
    std::optional<OperationId> wakes = {};  // a rank that sleeps in the lane of that tag
  };
  // What a rank shows the others of a tag, and its own side.
  struct LaneRank {
    std::array<uint64_t, kLaneSlots> state{}, what{};
    std::array<Numbers, kLaneSlots> elements;
    uint64_t called = 0, done = 0, asleep = 0;
    struct Words {
      RankWorld* world;
      OperationId self;
      size_t rank() const { return self.rank; }
      size_t ranks() const { return world->size(self.group); }
      static constexpr bool keeps(LaneRule) { return true; }
      LaneRank& at(size_t r) const { return world->lanes_[{self.group, r, self.tag, 0}]; }
      uint64_t state(size_t r, uint64_t slot) const { return at(r).state[slot]; }
      uint64_t what(size_t r, uint64_t slot) const { return at(r).what[slot]; }
      uint64_t called(size_t r) const { return at(r).called; }
      uint64_t done(size_t r) const { return at(r).done; }
      uint64_t asleep(size_t r) const { return at(r).asleep; }
      void set_state(uint64_t slot, uint64_t x) const { at(rank()).state[slot] = x; }
      void set_what(uint64_t slot, uint64_t x) const { at(rank()).what[slot] = x; }
      void set_called(uint64_t x) const { at(rank()).called = x; }
      void set_done(uint64_t x) const { at(rank()).done = x; }
      void set_asleep(uint64_t x) const { at(rank()).asleep = x; }
    };
    std::optional<LaneWords<Words>> words;
    std::vector<LaneWords<Words>::Decided> decided;
    std::map<uint64_t, Numbers> sums;
    bool gave_up = false;
  };

  LaneRank& lane_of(const OperationId& id) {
    LaneRank& lane = lanes_[{id.group, id.rank, id.tag, 0}];
    if (!lane.words) lane.words.emplace(LaneRank::Words{this, {id.group, id.rank, id.tag, 0}}, 0);
    return lane;
  }
  auto tells(size_t w, const OperationId& id) {
    return [this, w, id](size_t r) {
      const OperationId to{id.group, r, id.tag, 0};
      send(w, worker_of(to), {{}, {}, {}, to});
    };
  }
  auto taker(const OperationId& id) {
    return [this, id](uint64_t use) {
      Numbers sum = lane_of(id).elements[use % kLaneSlots];
      for (size_t r = 0; r < size(id.group); ++r) {
        if (r == id.rank) continue;
        const Numbers& x = lanes_.at({id.group, r, id.tag, 0}).elements[use % kLaneSlots];
        if (x.size() != sum.size()) FAIL("elements of another operation are taken");
        for (size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
      }
      lane_of(id).sums[use] = std::move(sum);
    };
  }
  void call_with_lane(size_t w, uint64_t group, size_t r, Called called) {
    OperationId id{group, r, called.job.tag.name, 0};
    LaneRank& lane = lane_of(id);
    const Signature& s = called.job.signature;
    const bool in_slot = called.job.by_memory && s.problem.collective == Collective::all_reduce &&
                         !s.on_devices && !lane.gave_up && lane.words->has_room();
    LaneWay way = LaneWay::messages;
    const auto told = tells(w, id);
    if (in_slot) {
      id.use = lane.words->by_memory(std::hash<std::string>()(s.str()),
                                     [&](uint64_t slot) { lane.elements[slot] = called.work; });
      way = LaneWay::open;
    } else {
      id.use = lane.words->by_messages(told);
    }
    lane.words->advance(lane.decided, taker(id), told);
    std::erase_if(lane.decided, [&](const auto& d) { return d.use == id.use && (way = d.way, true); });
    Operations::Out out;
    if (way == LaneWay::memory) {
      if (tables_[w]->done_at_once(group, r, id.tag) != id.use)
        FAIL("the lane and the table count differently");
      called.work = std::move(lane.sums.at(id.use));
      called.ended = 1;
      ++by_memory_;
      called_[id] = std::move(called);
    } else {
      Operations::Missing held;
      if (way == LaneWay::open) held = [this, id] { return missing_in(LaneRank::Words{this, id}, id.use); };
      const Signature signature = s;
      const OperationId entered =
          tables_[w]->enter(group, members(group), r, called.job.tag, signature, out, {}, std::move(held));
      if (entered != id) FAIL("the lane and the table count differently");
      called_[id] = std::move(called);
      if (way == LaneWay::open) lane.words->sleep(id.use, lane.decided, taker(id));
      take(w, std::move(out));
    }
    settle_lane(w, id);
  }
  void lane_by_messages(size_t w, const OperationId& id) {
    LaneRank& lane = lane_of(id);
    const auto told = tells(w, id);
    lane.words->by_messages(told);
    lane.words->advance(lane.decided, taker(id), told);
    settle_lane(w, id);
  }
  void wake(size_t w, const OperationId& id) {
    LaneRank& lane = lane_of(id);
    lane.words->advance(lane.decided, taker(id), [](size_t) {}, false);
    settle_lane(w, id);
  }
  void settle_lane(size_t w, const OperationId& at) {
    LaneRank& lane = lane_of(at);
    for (const auto& [use, way] : std::exchange(lane.decided, {})) {
      const OperationId id{at.group, at.rank, at.tag, use};
      Operations::Out out;
      if (way == LaneWay::messages)
        tables_[w]->release(id, out);
      else if (tables_[w]->done_without(id, out))
        called_.at(id).work = std::move(lane.sums.at(use)), ++by_memory_;
      take(w, std::move(out));
    }
  }
  void lane_failed(size_t w, const OperationId& id) {
    if (!with_lanes_ || id.use == OperationId::kSingleUse) return;
    LaneRank& lane = lane_of(id);
    lane.words->failed(id.use);
    lane.words->advance(lane.decided, taker(id), [](size_t) {}, false);
    settle_lane(w, id);
  }
  template <class F>
  void give_up_lanes(size_t w, F of_group) {
    for (auto& [id, lane] : lanes_)
      if (ranks_.at({id.group, id.rank}).worker == w && of_group(id.group)) lane.gave_up = true;
  }

  size_t worker_of(const OperationId& id) const { return ranks_.at({id.group, id.rank}).worker; }
  // What was on its way to `who` arrives in part, and then `who` is told.
  void cut_off(size_t who, size_t whom) {
    auto& queue = links_[{whom, who}];
    queue.resize(random_.below(queue.size() + 1));
    links_[{who, whom}].clear();
    broken_.insert({who, whom});
    losses_.push_back({who, whom});
  }
  void note_full() {
    full_.clear();
    for (const auto& [link, queue] : links_)
      if (!queue.empty()) full_.push_back(link);
  }
  void send(size_t from, size_t to, Packet p) {
    if (!alive_[to] || broken_.contains({from, to})) return;
    auto& queue = links_[{from, to}];
    if (queue.empty()) full_.emplace_back(from, to);
    queue.push_back(std::move(p));
  }
  void take(size_t w, Operations::Out out) {
    for (const auto& x : out.finished)
      if (x.error) lane_failed(w, x.id);
    for (auto& x : out.work) work_.push_back({w, std::move(x)});
    for (const auto& x : out.unwanted)
      if (std::ranges::none_of(work_,
                               [&](const auto& y) { return y.second.on_devices && y.second.id == x.id; }))
        FAIL("devices are to stop what they do not do");
    for (Notice& x : out.notices) {
      const size_t to = x.worker;
      send(w, to, {{}, {}, std::move(x)});
    }
    for (const auto& x : out.finished) finished_.push_back(x);
    for (auto f = finished_.begin(); f != finished_.end();) {
      const auto at = called_.find(f->id);
      if (at == called_.end()) {  // it ended before enter() had returned
        ++f;
        continue;
      }
      ++at->second.ended;
      at->second.error = f->error;
      f = finished_.erase(f);
    }
  }
  void do_work(size_t w, const Operations::Work& work) {
    Called& c = called_.at(work.id);
    if (c.ended) FAIL("elements of an operation that is over are touched");
    if (work.on_devices) {
      for (size_t r = 0; r < size(work.id.group); ++r) {
        const OperationId other{work.id.group, r, work.id.tag, work.id.use};
        if (alive_[worker_of(other)] && !called_.contains(other))
          FAIL("devices begin before all have called");
      }
      for (const Range& x : c.job.signature.problem.gets(work.id.rank))
        for (size_t i = x.from; i < x.end(); ++i) c.work[i] = expected(c.job, i);
      return;
    }
    std::map<size_t, Numbers> summands;
    Range of_sum;
    for (const auto& [receive, value] : work.takes) {
      Numbers x = from_payload(value);
      if (receive.take == Take::add) {
        of_sum = receive.range;
        summands.emplace(receive.from, std::move(x));
      } else {
        std::ranges::copy(x, c.work.begin() + static_cast<ptrdiff_t>(receive.range.from));
      }
    }
    for (const auto& [from, x] : summands)
      for (size_t i = 0; i < x.size(); ++i) c.work[of_sum.from + i] += x[i];
    const auto& all = members(work.id.group);
    for (const Send& s : work.sends)
      send(w, all[s.to].worker,
           {Part{{work.id.group, s.to, work.id.tag, work.id.use},
                 work.id.rank,
                 work.chunk,
                 s.slot,
                 s.range.size,
                 c.job.signature},
            to_payload(c.work.data() + s.range.from, s.range.size),
            {}});
  }

  Generator random_;
  std::vector<bool> alive_;
  std::vector<std::unique_ptr<Operations>> tables_;
  std::map<std::pair<uint64_t, size_t>, Rank> ranks_;
  std::map<uint64_t, std::vector<GroupMember>> members_;  // by group
  std::map<std::pair<size_t, size_t>, std::deque<Packet>> links_;
  std::vector<std::pair<size_t, size_t>> full_;  // links with messages
  std::set<std::pair<size_t, size_t>> broken_;
  std::vector<std::pair<size_t, size_t>> losses_;
  std::vector<std::pair<size_t, Operations::Work>> work_;
  std::map<OperationId, Called> called_;
  std::vector<Operations::Finished> finished_;
  std::map<OperationId, LaneRank> lanes_;  // of use 0
  bool with_lanes_ = false;
  size_t by_memory_ = 0;
};

}  // namespace troupe::testing
