#include "core/async/future.h"

#include <algorithm>
#include <chrono>

#include "core/async/waiting.h"
#include "core/base/call_frame.h"
#include "core/base/fork.h"

namespace troupe {

FutureBase::FutureBase(std::shared_ptr<FutureCore> core) : core_(std::move(core)) {
  if (core_) core_->add_reader();
}

FutureBase::FutureBase(const FutureBase& o) : core_(o.core_) {
  if (core_) core_->add_reader();
}

void FutureBase::let_go() {
  core_->drop_reader();
  std::destroy_at(&core_);
}

FutureCore& FutureBase::wait_ready() const {
  FutureCore& core = state("get()");
  const bool ready = core.ready.is_set();
  check_may_block("Future::get");
  if (ready) return core;
  check_process("Future::get");
  wait_until(core.ready, TimePoint::max());
  return core;
}

bool FutureBase::wait_for(Duration timeout) const {
  FutureCore& core = state("wait_for()");
  const bool ready = core.ready.is_set();
  check_may_block("Future::wait_for");
  if (ready) return true;
  check_process("Future::wait_for");
  timeout = std::min<Duration>(timeout, std::chrono::hours(24 * 365 * 100));  // now + timeout must be a time
  return wait_until(core.ready, clock_of_waits().now() + timeout);
}

namespace {

void cancel_core(const std::shared_ptr<FutureCore>& core) {
  core->give_up();
  core->fail(Error(ErrorKind::cancelled, "[future] was cancelled by one who waited for it"));
}

}  // namespace

void FutureBase::cancel() const {
  state("cancel()");
  cancel_core(std::shared_ptr(core_));
}

std::function<void()> FutureBase::canceller() const {
  state("canceller()");
  return [weak = weak_core()] {
    if (const auto core = weak.lock()) cancel_core(core);
  };
}

Source FutureBase::as_source(uint64_t number) const {
  state("as_source()").add_reader();
  return {core_, number, &FutureCore::drop_reader_of};
}

FutureBase FutureBase::take_origin_base() {
  if (!state("take_origin()").has_one_asker()) return {};
  const Source source = core_->source();
  if (source.let_go != &FutureCore::drop_reader_of || source.number != kOtherForm) return {};
  auto origin = std::static_pointer_cast<FutureCore>(source.what);
  if (origin->askers() != 1) return {};
  FutureBase taken(std::move(origin));
  core_->goes_elsewhere();
  *this = FutureBase();
  return taken;
}

PromiseBase::PromiseBase(const PromiseBase& o) : core_(o.core_) {
  if (core_) ++core_->writers;
}

// An error costs more than a small call, so none is made for nobody: a call's value in another form, say,
// which who waits took from the call itself.
void PromiseBase::let_go() {
  if (--core_->writers == 0 && !core_->ready.is_set() && (core_.use_count() > 1 || core_->has_callbacks()))
    core_->fail(Error(ErrorKind::cancelled, "[future] whoever should have given the value has gone"));
  std::destroy_at(&core_);
}

bool PromiseBase::fail(Error error) const {
  state("fail()");
  const auto shared = core_;  // whoever waits may let go of this promise once the lock is free
  return shared->fail(std::move(error));
}

bool PromiseBase::fail_with_current() const { return fail(current_error()); }

void PromiseBase::waits_for(Source source) const { state("waits_for()").wait_for_source(std::move(source)); }

void PromiseBase::waits_unless_ready(const FutureBase& future, uint64_t number) const {
  if (!future.is_ready()) waits_for(future.as_source(number));
}

}  // namespace troupe
