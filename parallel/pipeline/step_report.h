// What a step of a pipeline did, and when.
#pragma once
#include <string>
#include <vector>

#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/schedule/simulate.h"

namespace troupe::parallel {

/// Times in seconds since the step began, on the workers' own clocks: workers on other machines have others.
struct StepReport {
  struct Event {
    int worker = 0, stage = 0;
    Action action;
    double begin = 0, end = 0;
  };
  struct Message {
    int from = 0, to = 0;  ///< stages; `to` below `from`: gradients
    int micro_batch = 0;
    double sent = 0, arrived = 0;
    int64_t bytes = 0;  ///< of its tensors
  };
  std::string schedule;
  int workers = 0, micro_batches = 0;
  StageMap map;  ///< of its stages to its workers
  std::vector<Event> events;
  std::vector<Message> messages;
  double duration = 0;          ///< from the first begin to the last end
  std::vector<double> busy;     ///< of each worker
  std::vector<double> exposed;  ///< of each worker: waiting for something that was on its way already
  std::vector<int> peak_live;   ///< of each worker: micro-batches (times chunks) whose backward was not over

  /// The part of the time of all workers in which they worked at nothing.
  double bubble() const;
  /// The part of it that they waited for messages on their way.
  double exposed_communication() const;
  /// Mean time of each stage for a micro-batch, where one was run; those of a whole backward are cut in
  /// halves.
  std::vector<StageTimes> stage_times(int stages) const;
  /// A few lines for people.
  std::string str() const;
};

}  // namespace troupe::parallel
