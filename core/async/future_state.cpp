#include "core/async/future_state.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "core/base/fork.h"
#include "core/base/log.h"
#include "core/base/mutex.h"

namespace troupe {

void throw_result(const Error& error) { throw Error(error); }

void throw_no_error() { throw_invalid("[future] the error of a result was asked for, which has a value"); }

void throw_gave_empty_future() { throw_invalid("[future] the function gave an empty future"); }

namespace {

// The exception in flight: a callback threw it, and nobody else would hear of it.
void log_thrown_by_callback() {
  internal::log::error(
      std::string("[future] a callback of on_ready() threw, which nobody sees; use then(): ") +
      current_error().what());
}

}  // namespace

void throw_empty_future(const char* use) {
  throw_invalid(
      "[future] " + std::string(use) +
      " of an empty future: it was made by default, or moved from; a copy refers to the same value");
}

void throw_empty_promise(const char* use) {
  throw_invalid("[future] " + std::string(use) + " of an empty promise: it was moved from");
}

namespace {

// A call that is given up gives up what it waits for, and so on. A long chain of them needs no more stack
// than a short one: from a depth on, those that follow wait for their turn.
void end_unwanted(Source source) {
  constexpr int kDepth = 32;
  struct OfThread {
    int depth = 0;
    std::vector<Source>* waiting = nullptr;
  };
  static constinit thread_local OfThread here;
  if (here.waiting) return here.waiting->push_back(std::move(source));
  ++here.depth;
  if (here.depth < kDepth) {
    source.end(false);
  } else {
    std::vector<Source> chain;
    here.waiting = &chain;
    chain.push_back(std::move(source));
    while (!chain.empty()) {
      Source next = std::move(chain.back());
      chain.pop_back();
      next.end(false);
    }
    here.waiting = nullptr;
  }
  --here.depth;
}

}  // namespace

FutureCallback& FutureCallback::operator=(FutureCallback&& o) noexcept {
  if (drop_) drop_(function());
  run_ = o.run_;
  drop_ = std::exchange(o.drop_, nullptr);
  std::memcpy(room_, o.room_, kRoom);
  return *this;
}

void* FutureCallback::function() const {
  if (!drop_) return room_;
  void* kept;
  std::memcpy(&kept, room_, sizeof kept);
  return kept;
}

void FutureCore::add(FutureCallback callback, Asks asks) {
  {
    std::lock_guard lock(mutex);
    if (!ready.is_set()) {
      callbacks_.push_back({std::move(callback), frame().for_later(), asks});
      return;
    }
  }
  try {
    callback(*this);
  } catch (...) {
    log_thrown_by_callback();
  }
}

void FutureCore::run_now(void* function, FutureCallback::Run run) {
  try {
    run(function, *this);
  } catch (...) {
    log_thrown_by_callback();
  }
}

std::unique_lock<internal::Mutex> FutureCore::begin_completion() {
  std::unique_lock lock(mutex);
  if (ready.is_set()) lock.unlock();
  return lock;
}

void FutureCore::completed(std::unique_lock<internal::Mutex> lock) {
  ready.set();
  const auto waiting = std::exchange(callbacks_, {});
  Source done = std::exchange(source_, {});
  lock.unlock();
  run(waiting);
  done.end(true);
}

void FutureCore::run(const std::vector<Callback>& callbacks) {
  for (const Callback& callback : callbacks) {
    CallFrameScope scope(callback.at);
    try {
      callback.run(*this);
    } catch (...) {
      log_thrown_by_callback();
    }
    end_refused_child("a callback of a future");  // one that it forked, and that comes back from it
  }
}

uint32_t FutureCore::asking(Asks what) const {
  return static_cast<uint32_t>(std::ranges::count(callbacks_, what, &Callback::asks));
}

uint32_t FutureCore::askers() {
  std::lock_guard lock(mutex);
  return readers - asking(Asks::end);
}

bool FutureCore::has_callbacks() {
  std::lock_guard lock(mutex);
  return !callbacks_.empty();
}

void FutureCore::goes_elsewhere() {
  std::vector<Callback> hear;
  {
    std::lock_guard lock(mutex);
    const auto end =
        std::ranges::stable_partition(callbacks_, [](const Callback& c) { return c.asks == Asks::result; });
    std::ranges::move(end, std::back_inserter(hear));
    callbacks_.erase(end.begin(), end.end());
  }
  run(hear);
  for (const Callback& c : hear)
    if (c.asks == Asks::end) drop_reader();
}

void FutureCore::wait_for_source(Source next) {
  bool late;
  {
    std::lock_guard lock(mutex);
    late = given_up_;
    if (!late && !ready.is_set()) std::swap(next, source_);
  }
  next.end(!late);
}

Source FutureCore::source() {
  std::lock_guard lock(mutex);
  return source_;
}

bool FutureCore::has_one_asker() {
  std::lock_guard lock(mutex);
  return !ready.is_set() && readers <= 1 + asking(Asks::end) && !asking(Asks::result);
}

void FutureCore::give_up() {
  if (in_refused_child()) return;  // the call is the parent's
  Source unwanted;
  {
    std::lock_guard lock(mutex);
    if (ready.is_set() || !source_.let_go) return;
    given_up_ = true;
    unwanted = std::exchange(source_, {});
  }
  end_unwanted(std::move(unwanted));
}

template std::shared_ptr<FutureCore> make_future_state<void>();

}  // namespace troupe
