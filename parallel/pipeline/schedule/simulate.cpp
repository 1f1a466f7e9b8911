#include "parallel/pipeline/schedule/simulate.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>

#include "core/base/error.h"

namespace troupe::parallel {
namespace {

struct Happening {
  double time;
  uint64_t order;  // of those at the same time
  int worker;
  Action action;
  enum { arrival, end } kind;
  double begin = 0;
  bool operator>(const Happening& o) const { return time != o.time ? time > o.time : order > o.order; }
};

class Simulator {
 public:
  Simulator(const Policy& policy, const std::vector<StageTimes>& times, int steps, const Hop& hop)
      : map_(map_of(policy)),
        workers_(map_.workers()),
        stages_(map_.stages()),
        micro_batches_(micro_batches_of(policy)),
        steps_(steps),
        hop_(hop),
        times_(times) {
    if (times.size() != 1 && times.size() != static_cast<size_t>(stages_))
      throw_invalid("[simulate] times of " + std::to_string(times.size()) + " stages, expected 1 or " +
                    std::to_string(stages_));
    for (int w = 0; w < workers_; ++w) plans_.push_back(make_plan(policy, w, steps));
    const auto count = static_cast<size_t>(workers_);
    live_.resize(count), working_.resize(count), result_.busy.resize(count), result_.peak_live.resize(count);
    result_.step_end.resize(static_cast<size_t>(steps));
  }

  Simulation run() {
    for (int m = 0; m < micro_batches_ * steps_; ++m)
      plan(map_.worker(0)).arrived(Work::forward, m, map_.chunk(0));
    begin_all();
    while (!open_.empty()) {
      now_ = open_.top().time;
      while (!open_.empty() && open_.top().time == now_) {
        const Happening next = open_.top();
        open_.pop();
        if (next.kind == Happening::arrival)
          plan(next.worker).arrived(next.action.work, next.action.micro_batch, next.action.chunk);
        else
          end(next);
      }
      begin_all();
    }
    for (int w = 0; w < workers_; ++w)
      if (!plan(w).finished())
        throw_invalid("[simulate] the workers wait for each other: w" + std::to_string(w) +
                      " has not done all");
    result_.makespan = now_;
    return std::move(result_);
  }

 private:
  Plan& plan(int worker) { return *plans_[static_cast<size_t>(worker)]; }

  void begin_all() {
    for (int w = 0; w < workers_; ++w) {
      const auto i = static_cast<size_t>(w);
      if (working_[i]) continue;
      const auto action = plan(w).next();
      if (!action) continue;
      working_[i] = true;
      if (action->work == Work::forward) result_.peak_live[i] = std::max(result_.peak_live[i], ++live_[i]);
      const int stage = map_.stage(w, action->chunk);
      const double took = times_[times_.size() == 1 ? 0 : static_cast<size_t>(stage)].of(action->work);
      result_.busy[i] += took;
      open_.push({now_ + took, ++order_, w, *action, Happening::end, now_});
    }
  }

  void end(const Happening& ended) {
    const auto i = static_cast<size_t>(ended.worker);
    const Action& a = ended.action;
    working_[i] = false;
    result_.events.push_back({ended.worker, a, ended.begin, now_});
    double& step = result_.step_end[static_cast<size_t>(a.micro_batch / micro_batches_)];
    step = std::max(step, now_);
    if (a.work == Work::backward || a.work == Work::weight) --live_[i];
    if (a.work == Work::input) plan(ended.worker).arrived(Work::weight, a.micro_batch, a.chunk);
    const int stage = map_.stage(ended.worker, a.chunk);
    if (a.work == Work::forward && stage == stages_ - 1)
      plan(ended.worker).arrived(Work::backward, a.micro_batch, a.chunk);
    else if (a.work == Work::forward)
      send(ended.worker, Work::forward, a.micro_batch, stage + 1);
    else if (a.work != Work::weight && stage > 0)
      send(ended.worker, Work::backward, a.micro_batch, stage - 1);
  }
  void send(int from, Work work, int micro_batch, int stage) {
    const int worker = map_.worker(stage);
    double there = now_;
    if (worker != from) {
      double& free = link_free_[{from, worker}];
      free = std::max(free, now_) + hop_.busy;
      there = free + hop_.latency;
    }
    open_.push({there, ++order_, worker, {work, micro_batch, map_.chunk(stage)}, Happening::arrival});
  }

  const StageMap map_;
  const int workers_, stages_, micro_batches_, steps_;
  const Hop hop_;
  const std::vector<StageTimes>& times_;
  std::vector<std::unique_ptr<Plan>> plans_;
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> open_;
  std::vector<int> live_;
  std::vector<char> working_;
  std::map<std::pair<int, int>, double> link_free_;  // when the last message has left, by its ends
  double now_ = 0;
  uint64_t order_ = 0;
  Simulation result_;
};

}  // namespace

double StageTimes::of(Work work) const {
  switch (work) {
    case Work::forward:
      return forward;
    case Work::backward:
      return input + weight;
    case Work::input:
      return input;
    case Work::weight:
      return weight;
  }
  return 0;
}

double Simulation::bubble() const {
  const double all = makespan * static_cast<double>(busy.size());
  return all > 0 ? 1 - std::accumulate(busy.begin(), busy.end(), 0.0) / all : 0;
}

double Simulation::period() const {
  if (step_end.size() < 2)
    throw_invalid("[simulate] a period needs at least 2 steps, got " + std::to_string(step_end.size()));
  return step_end.back() - step_end[step_end.size() - 2];
}

Simulation simulate(const Policy& policy, const std::vector<StageTimes>& times, int steps, const Hop& hop) {
  if (steps < 1) throw_invalid("[simulate] " + std::to_string(steps) + " steps: expected at least 1");
  return Simulator(policy, times, steps, hop).run();
}

}  // namespace troupe::parallel
