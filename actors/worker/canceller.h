// The way from a future back to the worker that made its call, for as long as there is a worker.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "core/async/future_state.h"
#include "core/base/mutex.h"

namespace troupe::internal::actors {

/// Thread-safe. Shared by the worker and by the futures of its calls.
class Canceller {
 public:
  explicit Canceller(std::function<void(uint64_t)> give_up) : give_up_(std::move(give_up)) {}
  /// What the future of call `id` waits for: OutgoingCalls::give_up(id), once nobody wants the result.
  static Source source(std::shared_ptr<Canceller> self, uint64_t id) {
    return {std::move(self), id, &let_go};
  }
  /// The call of this worker whose future that is, if it is one and has no result.
  std::optional<uint64_t> call_of(FutureCore& future) const {
    const Source source = future.source();
    if (source.what.get() != this || source.let_go != &let_go) return {};
    return source.number;
  }
  /// Waits for calls that are being given up right now; no others from now on.
  void close();

 private:
  static void let_go(void* self, uint64_t id, bool done) {
    if (!done) static_cast<Canceller*>(self)->give_up(id);
  }
  void give_up(uint64_t id);

  Mutex mutex_;
  std::condition_variable left_;
  const std::function<void(uint64_t)> give_up_;
  bool closed_ TROUPE_GUARDED_BY(mutex_) = false;
  int inside_ TROUPE_GUARDED_BY(mutex_) = 0;
};

}  // namespace troupe::internal::actors
