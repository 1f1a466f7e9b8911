#include "parallel/pipeline/delayed_updates.h"

#include "rref/ref_table.h"

namespace troupe::parallel {

DelayedUpdates::DelayedUpdates(const Here& here, Pipeline& pipeline, optim::DistributedOptimizer& optimizer)
    : here_(here), pipeline_(pipeline), optimizer_(optimizer), ready_(pipeline.keep_versions()) {}

DelayedUpdates::~DelayedUpdates() { drop(); }

Future<StepResult> DelayedUpdates::step(const Value& batch, const Value& targets,
                                        const StepOptions& options) {
  try {
    ready_.get();
    if (!flights_.empty()) wait_for_forwards(flights_.back());
    if (flights_.size() == 2) update_oldest();
    const CallFrameScope frame_of_before(
        frame());  // contexts of this thread end in another order than they began
    Flight next;
    next.context = std::make_unique<autograd::Context>(here_.table().worker());
    next.result = pipeline_.step_async(batch, targets, options);
    next.forwards = pipeline_.forwards_done();
    flights_.push_back(std::move(next));
    return flights_.back().result;
  } catch (...) {
    drop();
    throw;
  }
}

void DelayedUpdates::wait_for_forwards(const Flight& flight) {
  const Result<void>& done = flight.forwards.wait();
  if (done.ok()) return;
  flight.result.get();  // says why
  throw done.error();
}

void DelayedUpdates::finish() {
  try {
    while (!flights_.empty()) update_oldest();
  } catch (...) {
    drop();
    throw;
  }
}

// Of a step whose successor has done all its forwards, if there is one.
void DelayedUpdates::update_oldest() {
  if (flights_.size() > 1) wait_for_forwards(flights_[1]);
  flights_.front().result.get();
  optimizer_.step(*flights_.front().context);
  const CallFrameScope frame_of_before(frame());
  flights_.pop_front();
}

void DelayedUpdates::drop() {
  const CallFrameScope frame_of_before(frame());
  flights_.clear();
}

}  // namespace troupe::parallel
