#include "parallel/pipeline/delayed_updates.h"

#include "rref/ref_table.h"

namespace troupe::parallel {

namespace {

// What counts as its weight: of a tensor its rows, and of other batches each is one.
double rows_of(const Value& batch) {
  const Tensor* t = batch.get_if<Tensor>();
  return t && t->dim() > 0 ? static_cast<double>(t->size(0)) : 1;
}

}  // namespace

DelayedUpdates::DelayedUpdates(const Here& here, Pipeline& pipeline, optim::DistributedOptimizer& optimizer,
                               const DelayedOptions& options)
    : here_(here),
      pipeline_(pipeline),
      optimizer_(optimizer),
      ready_(pipeline.keep_versions()),
      options_(options),
      entry_(here_.table().worker(), "pipeline") {}

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
    next.version = version_;
    next.rows = rows_of(batch);
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
  const Flight& oldest = flights_.front();
  oldest.result.get();
  const int64_t delay = version_ - oldest.version;
  step_optimizer(*oldest.context, delay);
  ++version_;
  ledger_.note(delay, oldest.rows);
  entry_.write(ledger_);
  const CallFrameScope frame_of_before(frame());
  flights_.pop_front();
}

void DelayedUpdates::step_optimizer(const autograd::Context& context, int64_t delay) {
  std::vector<double> rates;
  for (size_t g = 0; options_.lr_by_delay && delay > 0 && g < optimizer_.group_count(); ++g) {
    rates.push_back(optimizer_.lr(g));
    optimizer_.change_options(g, {{"lr", rate_by_delay(rates[g], static_cast<double>(delay))}});
  }
  const std::shared_ptr<void> as_before(nullptr, [&](void*) {
    for (size_t g = 0; g < rates.size(); ++g) optimizer_.change_options(g, {{"lr", rates[g]}});
  });
  optimizer_.step(context);
}

void DelayedUpdates::drop() {
  const CallFrameScope frame_of_before(frame());
  flights_.clear();
}

}  // namespace troupe::parallel
