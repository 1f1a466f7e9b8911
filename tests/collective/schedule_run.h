// Schedules, run over an interpreter in memory: what each rank has at the end, and what it has sent.
#pragma once
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "collective/schedule/schedule.h"
#include "core/base/generator.h"

namespace troupe::testing::schedules {

using namespace internal::collective;

// What ranks have, element by element: nothing where they were given nothing and got nothing.
using Elements = std::vector<std::optional<float>>;

struct Sent {
  size_t messages = 0, elements = 0;
  size_t to_other_hosts = 0;  // of the elements
};
struct Outcome {
  std::vector<Elements> work;
  std::vector<Sent> sent;
  size_t rounds = 0;
  bool over = true;
};

// Messages are delivered in an order that a seed decides, within a connection as they were sent. A rank sends
// what it has, and never what it has not.
class Interpreter {
 public:
  Interpreter(const Problem& p, Way way, size_t piece, std::vector<Elements> work, uint64_t seed)
      : random_(seed), hosts_(p.hosts), out_{std::move(work), std::vector<Sent>(p.ranks)} {
    const size_t n = chunks(p, way, piece);
    for (size_t r = 0; r < p.ranks; ++r)
      for (size_t c = 0; c < n; ++c) runs_[{r, c}].steps = steps(p, way, r, piece, c);
  }

  Outcome run() {
    for (auto& [at, run] : runs_) begin(at, run);
    while (!links_.empty()) {
      auto link = links_.lower_bound({random_.below(out_.sent.size()), random_.below(out_.sent.size())});
      if (link == links_.end()) link = links_.begin();
      const auto [from, to] = link->first;
      Message m = std::move(link->second.front());
      link->second.pop_front();
      if (link->second.empty()) links_.erase(link);
      Run& run = runs_.at({to, m.chunk});
      const At at{to, m.chunk};
      const std::pair slot(from, m.slot);
      if (!run.came.emplace(slot, std::move(m)).second) FAIL("slot " << slot.second << " comes twice");
      go_on(at, run);
    }
    for (const auto& [at, run] : runs_) out_.over &= run.at == run.steps.size() && run.came.empty();
    return std::move(out_);
  }

 private:
  using At = std::pair<size_t, size_t>;  // rank, chunk
  struct Message {
    size_t chunk;
    uint32_t slot;
    std::vector<float> data;
    size_t depth;
  };
  struct Run {
    Schedule steps;
    size_t at = 0, depth = 0;
    std::map<std::pair<size_t, uint32_t>, Message> came;
  };

  void begin(At at, Run& run) {
    if (run.at < run.steps.size())
      for (const Send& s : run.steps[run.at].sends) {
        if (s.to == at.first) FAIL("rank " << s.to << " sends to itself");
        Message m{at.second, s.slot, {}, run.depth + 1};
        for (size_t i = s.range.from; i < s.range.end(); ++i) {
          if (!out_.work[at.first][i])
            FAIL("rank " << at.first << " sends element " << i << ", which it has not");
          m.data.push_back(*out_.work[at.first][i]);
        }
        ++out_.sent[at.first].messages;
        out_.sent[at.first].elements += m.data.size();
        if (!hosts_.empty() && hosts_[at.first] != hosts_[s.to])
          out_.sent[at.first].to_other_hosts += m.data.size();
        links_[{at.first, s.to}].push_back(std::move(m));
      }
    go_on(at, run);
  }

  void go_on(At at, Run& run) {
    if (run.at == run.steps.size()) return;
    const Step& step = run.steps[run.at];
    const auto come = [&](const Receive& r) { return run.came.contains({r.from, r.slot}); };
    if (!std::ranges::all_of(step.receives, come)) return;
    Elements& work = out_.work[at.first];
    std::map<size_t, std::vector<float>> summands;
    Range of_sum;
    for (const Receive& r : step.receives) {
      const Message m = std::move(run.came.extract({r.from, r.slot}).mapped());
      if (m.data.size() != r.range.size) FAIL(m.data.size() << " elements come for " << r.range.size);
      run.depth = std::max(run.depth, m.depth);
      if (r.take == Take::put) {
        std::ranges::copy(m.data, work.begin() + static_cast<ptrdiff_t>(r.range.from));
      } else {
        if (!summands.empty() && of_sum != r.range) FAIL("summands of one step have several ranges");
        of_sum = r.range;
        summands.emplace(r.from, m.data);
      }
    }
    if (!summands.empty()) {
      std::vector<float>& own = summands[at.first];
      for (size_t i = of_sum.from; i < of_sum.end(); ++i) own.push_back(work[i].value());
      std::vector<std::vector<float>*> all;
      for (auto& [rank, data] : summands) all.push_back(&data);
      order_of_sum(all.size(), [&](size_t i, size_t j) {
        for (size_t k = 0; k < of_sum.size; ++k) (*all[i])[k] += (*all[j])[k];
      });
      std::ranges::copy(*all[0], work.begin() + static_cast<ptrdiff_t>(of_sum.from));
    }
    out_.rounds = std::max(out_.rounds, run.depth);
    ++run.at;
    begin(at, run);
  }

  Generator random_;
  const HostOfRank hosts_;
  Outcome out_;
  std::map<At, Run> runs_;
  std::map<std::pair<size_t, size_t>, std::deque<Message>> links_;
};

// Numbers whose sums are rounded, so that another order has other bits.
inline float number(size_t rank, size_t i) {
  return static_cast<float>(static_cast<double>(splitmix64(rank * 1'000'003 + i) >> 11) * 0x1p-53 - 0.5) *
         (i % 3 ? 1.0f : 1000.0f);
}

inline std::vector<Elements> given_to(const Problem& p) {
  std::vector<Elements> all(p.ranks, Elements(p.elements()));
  for (size_t r = 0; r < p.ranks; ++r)
    for (const Range& x : p.brings(r))
      for (size_t i = x.from; i < x.end(); ++i) all[r][i] = number(p.adds() ? r : 0, i);
  return all;
}

struct Sum {
  std::optional<float> in_order = {};  // of ranks, as order_of_sum() says, unless ways differ
  double plain = 0;
};
inline Sum sum_of(size_t ranks, size_t i) {
  std::vector<float> x;
  Sum sum;
  for (size_t r = 0; r < ranks; ++r) x.push_back(number(r, i)), sum.plain += static_cast<double>(x.back());
  order_of_sum(ranks, [&](size_t a, size_t b) { x[a] += x[b]; });
  sum.in_order = x[0];
  return sum;
}

inline uint32_t bits(float x) {
  uint32_t b;
  std::memcpy(&b, &x, sizeof b);
  return b;
}

// Everybody has what it is to get: sums are near a plain sum in double, with the same bits everywhere; those
// of the one order unless they went round a ring, or of `in_order` if it is given.
using SumOf = std::function<Sum(size_t element)>;
inline Outcome check_run(const Problem& p, Way way, size_t piece, uint64_t seed, const SumOf& sum = {}) {
  CAPTURE(name(p.collective), name(way), p.ranks, p.root, piece, seed);
  Outcome out = Interpreter(p, way, piece, given_to(p), seed).run();
  REQUIRE(out.over);
  std::vector<Sum> sums;
  if (p.adds())
    for (size_t i = 0; i < p.elements(); ++i) sums.push_back(sum ? sum(i) : sum_of(p.ranks, i));
  std::vector<std::optional<uint32_t>> first(p.elements());
  for (size_t r = 0; r < p.ranks; ++r)
    for (const Range& x : p.gets(r))
      for (size_t i = x.from; i < x.end(); ++i) {
        if (!out.work[r][i]) FAIL("rank " << r << " has no element " << i);
        const float got = *out.work[r][i];
        if (!p.adds()) {
          if (bits(got) != bits(number(0, i))) FAIL("rank " << r << ", element " << i << ": " << got);
          continue;
        }
        bool right = std::abs(static_cast<double>(got) - sums[i].plain) < 1e-3 * static_cast<double>(p.ranks);
        if (way != Way::ring && sums[i].in_order) right &= bits(got) == bits(*sums[i].in_order);
        if (first[i]) right &= bits(got) == *first[i];
        first[i] = bits(got);
        if (!right)
          FAIL("rank " << r << ", element " << i << ": " << got << ", a plain sum is " << sums[i].plain);
      }
  return out;
}

// Whether each rank has heard of all, directly or by others, when it is done with its first chunk.
inline bool all_heard_of_all(const Problem& p, Way way) {
  std::vector<std::set<size_t>> heard(p.ranks);
  std::vector<Schedule> left;
  std::map<std::tuple<size_t, size_t, uint32_t>, std::set<size_t>> sent;
  std::vector<std::pair<size_t, bool>> at(p.ranks);  // step, whether it has sent
  for (size_t r = 0; r < p.ranks; ++r) heard[r] = {r}, left.push_back(steps(p, way, r));
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (size_t r = 0; r < p.ranks; ++r) {
      auto& [number, has_sent] = at[r];
      if (number == left[r].size()) continue;
      const Step& step = left[r][number];
      if (!has_sent)
        for (const Send& s : step.sends) sent[{r, s.to, s.slot}] = heard[r];
      has_sent = true;
      if (!std::ranges::all_of(step.receives,
                               [&](const Receive& x) { return sent.contains({x.from, r, x.slot}); }))
        continue;
      for (const Receive& x : step.receives) heard[r].merge(std::set(sent.at({x.from, r, x.slot})));
      ++number, has_sent = false, goes_on = true;
    }
  }
  return std::ranges::all_of(heard, [&](const auto& of) { return of.size() == p.ranks; });
}

}  // namespace troupe::testing::schedules
