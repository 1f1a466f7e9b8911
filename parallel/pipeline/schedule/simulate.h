// A pipeline on a virtual clock: what a policy costs, before anything has run.
#pragma once
#include "parallel/pipeline/schedule/plan.h"

namespace troupe::parallel {

/// How long a stage works for one micro-batch, in any unit. Backward as a whole is input + weight.
struct StageTimes {
  double forward = 1, input = 1, weight = 1;
  double of(Work work) const;
};

/// A message from one worker to another takes that, while both may work.
struct Hop {
  double latency = 0;
  double busy = 0;  ///< the time that the link takes for one message; the next one waits for it
  Hop(double latency = 0, double busy = 0) : latency(latency), busy(busy) {}
};

/// Workers of one machine share its processors: each works faster while others do not.
struct SharedProcessors {
  /// The times of each stage, or one for all, while no other worker of the machine works. Empty: as the times
  /// are.
  std::vector<StageTimes> alone = {};
  std::vector<int> machine = {};  ///< of each worker
  double like = 1;                ///< workers that do at all times what one of these does: replicas, ranks
  double all = 1;                 ///< the times of the stages are those while so many of a machine work
};

struct Simulation {
  struct Event {
    int worker = 0;
    Action action;  ///< micro-batches are numbered through all steps
    double begin = 0, end = 0;
  };
  std::vector<Event> events;  ///< in order of their ends
  double makespan = 0;
  std::vector<double> busy;      ///< of each worker
  std::vector<int> peak_live;    ///< of each worker: micro-batches (times chunks) whose backward was not over
  std::vector<double> step_end;  ///< when the last worker was done with each step
  /// The part of the time of all workers in which they did nothing.
  double bubble() const;
  /// From one step to the next, at the end of the run. `invalid` for fewer than two steps.
  double period() const;
};

/// Runs `steps` steps one after the other, without a barrier between them: a worker goes on to the next step
/// when it has done its part of this one. `times`: of each stage, or one for all. `invalid` if the workers
/// come to wait for each other (check() says more).
Simulation simulate(const Policy& policy, const std::vector<StageTimes>& times = {{}}, int steps = 1,
                    const Hop& hop = {}, const SharedProcessors& shared = {});

}  // namespace troupe::parallel
