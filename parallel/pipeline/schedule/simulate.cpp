#include "parallel/pipeline/schedule/simulate.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <set>

#include "core/base/error.h"

namespace troupe::parallel {
namespace {

struct Happening {
  double time;
  uint64_t order;  // of those at the same time
  int worker;
  Action action;
  enum { arrival, end } kind;
  uint64_t forecast = 0;  // an end counts if nothing has changed since
  bool operator>(const Happening& o) const { return time != o.time ? time > o.time : order > o.order; }
};

// What a worker is at.
struct Doing {
  Action action;
  double begin = 0;
  double alone = 0, beside_all = 0;  // the time of the whole
  double left = 1;                   // of the whole, at `since`
  double since = 0;
  double takes = 0;  // the whole, from `since` on
  uint64_t forecast = 0;
};

class Simulator {
 public:
  Simulator(const Policy& policy, const std::vector<StageTimes>& times, int steps, const Hop& hop,
            const SharedProcessors& shared)
      : map_(map_of(policy)),
        workers_(map_.workers()),
        stages_(map_.stages()),
        micro_batches_(micro_batches_of(policy)),
        steps_(steps),
        hop_(hop),
        times_(times),
        shared_(shared) {
    expect_times(times);
    if (!shared.alone.empty()) {
      expect_times(shared.alone);
      if (shared.machine.size() != static_cast<size_t>(workers_))
        throw_invalid("[simulate] machines of " + std::to_string(shared.machine.size()) +
                      " workers, expected " + std::to_string(workers_));
    }
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
        else if (at(next.worker) && at(next.worker)->forecast == next.forecast)
          end(next.worker);
      }
      begin_all();
    }
    for (int w = 0; w < workers_; ++w)
      if (!plan(w).finished())
        throw_invalid("[simulate] the workers wait for each other: w" + std::to_string(w) +
                      " has not done all");
    for (const auto& e : result_.events) result_.makespan = std::max(result_.makespan, e.end);
    return std::move(result_);
  }

 private:
  Plan& plan(int worker) { return *plans_[static_cast<size_t>(worker)]; }

  std::optional<Doing>& at(int worker) { return working_[static_cast<size_t>(worker)]; }
  void expect_times(const std::vector<StageTimes>& times) const {
    if (times.size() != 1 && times.size() != static_cast<size_t>(stages_))
      throw_invalid("[simulate] times of " + std::to_string(times.size()) + " stages, expected 1 or " +
                    std::to_string(stages_));
  }
  static double of(const std::vector<StageTimes>& times, int stage, Work work) {
    return times[times.size() == 1 ? 0 : static_cast<size_t>(stage)].of(work);
  }

  void begin_all() {
    std::set<int> changed;
    for (int w = 0; w < workers_; ++w) {
      const auto i = static_cast<size_t>(w);
      if (working_[i]) continue;
      const auto action = plan(w).next();
      if (!action) continue;
      if (action->work == Work::forward) result_.peak_live[i] = std::max(result_.peak_live[i], ++live_[i]);
      const int stage = map_.stage(w, action->chunk);
      const double took = of(times_, stage, action->work);
      const double alone = shared_.alone.empty() ? took : of(shared_.alone, stage, action->work);
      working_[i] =
          Doing{.action = *action, .begin = now_, .alone = alone, .beside_all = took, .since = now_};
      if (shared_.alone.empty())
        forecast(w, took);
      else
        ++busy_[shared_.machine[i]], changed.insert(shared_.machine[i]);
    }
    for (const int machine : ended_) changed.insert(machine);
    ended_.clear();
    for (const int machine : changed) share(machine);
  }
  void forecast(int worker, double takes) {
    Doing& task = *at(worker);
    task.takes = takes, task.forecast = ++order_;
    open_.push({now_ + task.left * takes, order_, worker, task.action, Happening::end, task.forecast});
  }
  // Others have begun or ended: who works there is slower or faster from now on.
  void share(int machine) {
    const double part = shared_.all > 1 ? (busy_[machine] * shared_.like - 1) / (shared_.all - 1) : 1;
    for (int w = 0; w < workers_; ++w) {
      if (!at(w) || shared_.machine[static_cast<size_t>(w)] != machine) continue;
      Doing& task = *at(w);
      if (task.takes > 0) task.left = std::max(0.0, task.left - (now_ - task.since) / task.takes);
      task.since = now_;
      forecast(w, task.alone + (task.beside_all - task.alone) * std::clamp(part, 0.0, 1.0));
    }
  }

  void end(int worker) {
    const auto i = static_cast<size_t>(worker);
    const Action a = working_[i]->action;
    const double begin = working_[i]->begin;
    result_.busy[i] += shared_.alone.empty() ? working_[i]->beside_all : now_ - begin;
    working_[i].reset();
    if (!shared_.alone.empty()) --busy_[shared_.machine[i]], ended_.push_back(shared_.machine[i]);
    result_.events.push_back({worker, a, begin, now_});
    double& step = result_.step_end[static_cast<size_t>(a.micro_batch / micro_batches_)];
    step = std::max(step, now_);
    if (a.work == Work::backward || a.work == Work::weight) --live_[i];
    if (a.work == Work::input) plan(worker).arrived(Work::weight, a.micro_batch, a.chunk);
    const int stage = map_.stage(worker, a.chunk);
    if (a.work == Work::forward && stage == stages_ - 1)
      plan(worker).arrived(Work::backward, a.micro_batch, a.chunk);
    else if (a.work == Work::forward)
      send(worker, Work::forward, a.micro_batch, stage + 1);
    else if (a.work != Work::weight && stage > 0)
      send(worker, Work::backward, a.micro_batch, stage - 1);
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
  const SharedProcessors& shared_;
  std::vector<std::unique_ptr<Plan>> plans_;
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> open_;
  std::vector<int> live_;
  std::vector<std::optional<Doing>> working_;
  std::map<int, int> busy_;                          // workers of each machine
  std::vector<int> ended_;                           // machines on which one has ended just now
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

Simulation simulate(const Policy& policy, const std::vector<StageTimes>& times, int steps, const Hop& hop,
                    const SharedProcessors& shared) {
  if (steps < 1) throw_invalid("[simulate] " + std::to_string(steps) + " steps: expected at least 1");
  return Simulator(policy, times, steps, hop, shared).run();
}

}  // namespace troupe::parallel
