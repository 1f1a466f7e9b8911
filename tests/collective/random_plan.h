// Operations of many kinds for the ranks of a RankWorld, in orders of their own.
#pragma once
#include "tests/collective/rank_world.h"

namespace troupe::testing {

inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Whether the ranks have told each other what they bring before, and need not hear of all once more.
inline bool has_told_sizes(Collective c) {
  return c == Collective::scatter || c == Collective::gather || c == Collective::all_to_all;
}

inline Signature random_signature(Generator& random, size_t ranks) {
  Signature s;
  Problem& p = s.problem;
  p.ranks = ranks;
  p.collective = static_cast<Collective>(random.below(kCollectiveCount));
  do s.way = static_cast<Way>(random.below(kWayCount));
  while (!offers(p.collective, s.way));
  if (p.has_root()) p.root = random.below(ranks);
  if (s.way == Way::hierarchical) {
    for (size_t r = 0; r < ranks; ++r) p.hosts.push_back(static_cast<uint32_t>(random.below(3)));
    p.hosts = counted(p.hosts);
  }
  size_t sizes = ranks;
  if (p.collective == Collective::all_reduce || p.collective == Collective::reduce ||
      p.collective == Collective::broadcast)
    sizes = 1;
  if (p.collective == Collective::all_to_all) sizes = ranks * ranks;
  if (p.collective == Collective::barrier) sizes = 0;
  for (size_t i = 0; i < sizes; ++i) p.counts.push_back(random.below(3) ? random.below(25) : 0);
  if (p.adds()) s.reduction = "sum";
  s.shapes = {Shape{static_cast<int64_t>(p.elements())}};
  s.piece = random.below(2) ? kOnePiece : 1 + random.below(6);
  if (ranks > 1 && random.below(4) == 0) {
    s.on_devices = true;
    s.way = random.below(2) ? Way::whole : Way::doubling;
    s.piece = kOnePiece;
  }
  return s;
}

// `jobs` operations for each of some groups, which every rank calls in an order of its own (those of one tag
// in one).
inline void plan(RankWorld& world, uint64_t groups, size_t workers, size_t jobs) {
  Generator& random = world.random();
  uint64_t number = 0;
  for (uint64_t g = 1; g <= groups; ++g) {
    std::vector<size_t> where;
    for (size_t i = 0, n = 2 + random.below(workers + 1); i < n; ++i) where.push_back(random.below(workers));
    world.add_group(g, where);
    std::vector<RankCall> all;
    for (size_t j = 0; j < jobs; ++j) {
      const OperationTag tag = random.below(3) ? OperationTag("t" + std::to_string(random.below(4)))
                                               : OperationTag("single " + std::to_string(j), true);
      all.push_back({g, tag, random_signature(random, where.size()), ++number});
    }
    for (size_t r = 0; r < where.size(); ++r) {
      std::map<std::string, std::deque<RankCall>> by_tag;
      for (const RankCall& j : all) by_tag[j.tag.name].push_back(j);
      std::vector<RankCall>& own = world.rank(g, r).jobs;
      while (!by_tag.empty()) {
        const auto tag = std::next(by_tag.begin(), static_cast<ptrdiff_t>(random.below(by_tag.size())));
        own.push_back(tag->second.front());
        tag->second.pop_front();
        if (tag->second.empty()) by_tag.erase(tag);
      }
      std::ranges::reverse(own);  // the last is called first
    }
  }
}

// Calls and everything else in random order, until all is called and nothing happens any more.
template <class F>
void run(RankWorld& world, F trouble) {
  for (;;) {
    std::vector<std::pair<uint64_t, size_t>> callers;
    for (const auto& [at, rank] : world.ranks())
      if (world.alive(rank.worker) && !rank.jobs.empty()) callers.push_back(at);
    trouble();
    if (!callers.empty() && world.random().below(3) == 0) {
      const auto [group, rank] = callers[world.random().below(callers.size())];
      const Rank& caller = world.rank(group, rank);  // it may have met trouble
      if (world.alive(caller.worker) && !caller.jobs.empty()) world.call(group, rank);
    } else if (!world.step() && callers.empty()) {
      return;
    }
  }
}

// Deadlines of what goes on, as they would pass.
inline void let_time_pass(RankWorld& world) {
  for (int i = 0; i < 100; ++i) {
    const std::vector<OperationId> open = world.open();
    if (open.empty()) return;
    for (const OperationId& id : open) {
      world.overdue(id);
      if (world.random().below(2)) world.step();
    }
    world.settle();
    for (const OperationId& id : world.open()) world.unanswered(id);
    world.settle();
  }
  FAIL("operations go on for ever");
}

inline bool no_errors(const RankWorld& world) {
  for (const auto& [id, c] : world.called())
    if (c.error) UNSCOPED_INFO(c.error->what());
  return std::ranges::none_of(world.called(), [](const auto& x) { return x.second.error.has_value(); });
}

inline void check_nothing_open(RankWorld& world, size_t workers) {
  for (size_t w = 0; w < workers; ++w) {
    const auto c = world.table(w).counts();
    if (c.running || c.early || c.given_up || c.broken) FAIL("something is left on worker " << w);
  }
}

// Errors name one of these workers as lost, or are of deadlines.
inline void check_named(const RankWorld& world, const std::vector<size_t>& lost) {
  for (const auto& [id, c] : world.called()) {
    if (!c.error || c.error->kind() == ErrorKind::deadline) continue;
    const std::string text = c.error->what();
    if (c.error->kind() != ErrorKind::disconnected || std::ranges::none_of(lost, [&](size_t w) {
          return c.error->worker() == "w" + std::to_string(w) &&
                 says(text, "(w" + std::to_string(w) + ") was lost");
        }))
      FAIL(text);
  }
}

// Who dies, or loses its link to the other one, at a random moment.
struct RandomLoss {
  RandomLoss(RankWorld& world, size_t workers, bool breaks)
      : breaks(breaks),
        dead(world.random().below(workers)),
        other((dead + 1 + world.random().below(workers - 1)) % workers) {}
  void happens(RankWorld& world) const { breaks ? world.cut(dead, other) : world.kill(dead); }
  // Within the calls, or behind them.
  void in(RankWorld& world, size_t at) const {
    run(world, [&] {
      if (at-- == 0) happens(world);
    });
    if (at < 1000) happens(world);
    world.settle();
    // A rank that knows no more of an operation than that its members have not come waits for its deadline.
    let_time_pass(world);
    world.check_results();
    check_named(world, breaks ? std::vector{dead, other} : std::vector{dead});
  }
  bool breaks;
  size_t dead, other;
};

}  // namespace troupe::testing
