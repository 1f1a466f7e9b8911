// Numbers are given out in order; results wait in their slots until the consumer comes to them.
#include "data/datasets/prefetch.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/thread.h"

namespace troupe::datasets {
namespace detail {

struct Prefetcher::State {
  struct Slot {
    bool done = false;
    std::shared_ptr<void> item;
    size_t bytes = 0;
    std::exception_ptr error;
  };

  const pid_t process = ::getpid();  // a child of fork() has none of the threads
  Make make;
  PrefetchOptions options;
  std::vector<std::thread> threads;

  internal::Mutex mutex;
  std::condition_variable may_begin, ready;
  std::deque<Slot> slots;  // of the numbers from taken to begun
  int64_t taken = 0, begun = 0, end = 0;
  int64_t being_made = 0;
  size_t held = 0, largest = 0;  // bytes
  bool stopped = false;

  bool over() const { return stopped || begun >= end; }
  bool room() const {
    if (begun == taken) return true;  // the consumer waits for it
    const size_t making = largest * static_cast<size_t>(being_made + 1);
    return begun - taken < options.ahead && held <= options.bytes && making <= options.bytes - held;
  }

  void work() {
    internal::Lock lock(mutex);
    for (;;) {
      may_begin.wait(lock.native(), [&] { return over() || room(); });
      if (over()) return;
      const int64_t index = begun++;
      ++being_made;
      slots.emplace_back();
      lock.unlock();
      Slot made{.done = true};
      try {
        made.item = make(index, made.bytes);
      } catch (...) {
        made.error = std::current_exception();
      }
      lock.lock();
      --being_made;
      held += made.bytes;
      largest = std::max(largest, made.bytes);
      if (!made.item) end = std::min(end, index + 1);  // what was begun beyond is not looked at
      slots[static_cast<size_t>(index - taken)] = std::move(made);
      if (index == taken) ready.notify_one();
      may_begin.notify_all();
    }
  }

  void stop() {
    {
      std::lock_guard lock(mutex);
      stopped = true;
    }
    may_begin.notify_all();
    for (std::thread& t : threads) t.join();
  }
};

Prefetcher::Prefetcher(int64_t count, Make make, const PrefetchOptions& options)
    : state_(std::make_unique<State>()) {
  const auto check = [](const char* what, int64_t got, int64_t least, int64_t most) {
    if (got < least || got > most)
      throw_invalid("[prefetch] " + std::string(what) + " " + std::to_string(got) + ", expected " +
                    std::to_string(least) + " to " + std::to_string(most));
  };
  check("threads", options.threads, 1, 256);
  check("ahead", options.ahead, 1, 1'000'000);
  check("number of items", count, 0, INT64_MAX);
  if (options.bytes < 1) throw_invalid("[prefetch] bytes 0, expected at least 1");
  state_->make = std::move(make);
  state_->options = options;
  state_->end = count;
  try {
    for (int64_t i = 0; i < options.threads; ++i)
      state_->threads.push_back(start_thread("prefetch", [s = state_.get()] { s->work(); }));
  } catch (...) {  // no thread to be had
    state_->stop();
    throw;
  }
}

Prefetcher::~Prefetcher() {
  if (state_->process == ::getpid())
    state_->stop();
  else
    (void)state_.release();  // what its parent's threads were doing stays as it is
}

std::shared_ptr<void> Prefetcher::next() {
  State& s = *state_;
  if (s.process != ::getpid())
    throw_invalid("[prefetch] process " + std::to_string(::getpid()) +
                  " is a child of the one that made it, and has none of its threads: make one here");
  internal::Lock lock(s.mutex);
  if (s.taken >= s.end) return nullptr;
  s.ready.wait(lock.native(), [&] { return !s.slots.empty() && s.slots.front().done; });
  State::Slot& first = s.slots.front();
  if (first.error) std::rethrow_exception(first.error);
  if (!first.item) return nullptr;
  const std::shared_ptr<void> item = std::move(first.item);
  s.held -= first.bytes;
  s.slots.pop_front();
  ++s.taken;
  s.may_begin.notify_all();
  return item;
}

}  // namespace detail

Prefetch<Batch> prefetch(Epoch epoch, PrefetchOptions options) {
  const int64_t count = epoch.batches();
  return Prefetch<Batch>(
      [epoch = std::move(epoch)](int64_t index) { return std::optional(epoch.batch(index)); }, options,
      count);
}

}  // namespace troupe::datasets
