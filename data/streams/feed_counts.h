// What the feeds of a process have given, for whoever watches it.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "core/base/clock.h"

namespace troupe::datasets::detail {

/// Thread-safe.
class FeedCounts {
 public:
  /// Counts for a feed that this thread makes.
  static std::shared_ptr<FeedCounts> make();
  void given(int64_t rows) { rows_ += rows; }
  void waited(Duration time) { waited_ns_ += time.count(); }

  struct Sum {
    int64_t feeds = 0, rows = 0;
    Duration waited{};
  };
  /// Adds up the feeds that are there, and that threads of the worker (CallFrame::worker) have made, or of no
  /// worker.
  static Sum of(const void* worker, bool others_too);

 private:
  FeedCounts() = default;
  const void* worker_ = nullptr;
  std::atomic<int64_t> rows_{0}, waited_ns_{0};
};

}  // namespace troupe::datasets::detail
