#include "parallel/pipeline/schedule/schedule_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "core/base/error.h"

namespace troupe::parallel {
namespace {

std::string of_stage(Work work, int micro_batch, int stage) {
  return Action{work, micro_batch}.str() + " of stage " + std::to_string(stage);
}

// Of one stage and micro-batch: at which place of its row each kind of work is, from 1; 0: nowhere.
using Places = std::array<size_t, 4>;

class Checker {
 public:
  explicit Checker(const Schedule& schedule) : schedule_(schedule) {}

  std::optional<std::string> problem() {
    if (schedule_.rows.empty()) return "it has no rows";
    if (schedule_.chunks < 1) return "it has no chunks";
    try {
      map_ = schedule_.map();
    } catch (const Error& e) {
      return e.message();
    }
    if (map_.workers() != schedule_.workers() || map_.chunks() != schedule_.chunks)
      return fmt::format("it has {} rows of {} chunks, and names the stages of {} workers with {}",
                         schedule_.workers(), schedule_.chunks, map_.workers(), map_.chunks());
    for (int w = 0; w < schedule_.workers(); ++w)
      for (size_t i = 0; i < row(w).size(); ++i)
        if (auto wrong = enter(w, row(w)[i], i + 1)) return wrong;
    for (int s = 0; s < schedule_.stages(); ++s)
      for (int m = 0; m < schedule_.micro_batches; ++m)
        if (auto wrong = wrong_order(s, m)) return wrong;
    return deadlock();
  }

 private:
  const Actions& row(int worker) const { return schedule_.rows[static_cast<size_t>(worker)]; }
  int stage(int worker, const Action& a) const { return map_.stage(worker, a.chunk); }
  static std::string on(int worker) { return " in the row of w" + std::to_string(worker); }

  std::optional<std::string> enter(int worker, const Action& a, size_t place) {
    if (a.micro_batch < 0 || a.micro_batch >= schedule_.micro_batches || a.chunk < 0 ||
        a.chunk >= schedule_.chunks)
      return a.str() + on(worker) + " is impossible: there are " + std::to_string(schedule_.micro_batches) +
             " micro-batches and " + std::to_string(schedule_.chunks) + " chunks";
    size_t& at = places_[{stage(worker, a), a.micro_batch}][static_cast<size_t>(a.work)];
    if (at)
      return a.str() + on(worker) + " is there twice, at places " + std::to_string(at) + " and " +
             std::to_string(place);
    at = place;
    return std::nullopt;
  }

  std::optional<std::string> wrong_order(int stage, int m) const {
    const int worker = map_.worker(stage), chunk = map_.chunk(stage);
    const auto found = places_.find({stage, m});
    const auto [f, b, i, w] = found == places_.end() ? Places{} : found->second;
    const auto text = [&](Work work) { return Action{work, m, chunk}.str(); };
    const auto missing = [&](Work work) { return text(work) + " is missing" + on(worker); };
    const auto before = [&](Work late, Work early) {
      return text(late) + on(worker) + " comes before " + text(early) + ", which it needs";
    };
    if (!f) return missing(Work::forward);
    if (b && (i || w))
      return text(i ? Work::input : Work::weight) + on(worker) + " is there besides " + text(Work::backward) +
             ", which has done that part already";
    if (!b && !i && !w) return missing(Work::backward);
    if (!b && !i) return missing(Work::input);
    if (!b && !w) return missing(Work::weight);
    if (b && b < f) return before(Work::backward, Work::forward);
    if (!b && i < f) return before(Work::input, Work::forward);
    if (!b && w < i) return before(Work::weight, Work::input);
    return std::nullopt;
  }

  // Runs all rows as far as they go.
  std::optional<std::string> deadlock() const {
    std::map<std::pair<int, int>, int> forward, backward;  // done: by stage and micro-batch
    std::vector<size_t> at(static_cast<size_t>(schedule_.workers()));
    const auto can_run = [&](int worker, const Action& a) {
      const int s = stage(worker, a);
      if (a.work == Work::forward) return s == 0 || forward.count({s - 1, a.micro_batch}) > 0;
      return a.work == Work::weight || s == schedule_.stages() - 1 ||
             backward.count({s + 1, a.micro_batch}) > 0;
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (int w = 0; w < schedule_.workers(); ++w)
        for (size_t& i = at[static_cast<size_t>(w)]; i < row(w).size() && can_run(w, row(w)[i]);
             ++i, moved = true) {
          const Action& a = row(w)[i];
          if (a.work != Work::weight)
            (a.work == Work::forward ? forward : backward)[{stage(w, a), a.micro_batch}] = 1;
        }
    }
    std::string stuck;
    for (int w = 0; w < schedule_.workers(); ++w)
      if (const size_t i = at[static_cast<size_t>(w)]; i < row(w).size())
        stuck += (stuck.empty() ? "" : "; ") + ("w" + std::to_string(w)) + " is at " + row(w)[i].str() +
                 ", which needs " + needs(schedule_, w, row(w)[i]);
    return stuck.empty() ? std::nullopt : std::optional("its workers wait for each other: " + stuck);
  }

  const Schedule& schedule_;
  StageMap map_;
  std::map<std::pair<int, int>, Places> places_;  // by stage and micro-batch
};

}  // namespace

std::string needs(const Schedule& schedule, int worker, const Action& a) {
  const int stage = schedule.map().stage(worker, a.chunk);
  if (a.work == Work::forward) return stage == 0 ? "" : of_stage(a.work, a.micro_batch, stage - 1);
  if (a.work == Work::weight || stage == schedule.stages() - 1) return "";
  return of_stage(a.work, a.micro_batch, stage + 1);
}

std::optional<std::string> problem_of(const Schedule& schedule) { return Checker(schedule).problem(); }

void check(const Schedule& schedule) {
  if (const auto problem = problem_of(schedule))
    throw_invalid("[schedule] " + schedule.name + ": " + *problem);
}

}  // namespace troupe::parallel
