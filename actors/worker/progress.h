// How far the program that a worker drives has come: its steps, how long they take, and its loss.
#pragma once
#include <array>
#include <cstdint>
#include <limits>

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace troupe::internal::actors {

/// A step is what lies between the begin of a context of this worker and its end. Thread-safe.
class Progress {
 public:
  void begun(TimePoint now);
  void ended(TimePoint now);
  /// What a backward pass began with; of no account once the program has stated its loss.
  void guess_loss(double loss);
  void state_loss(double loss);

  struct State {
    int64_t steps = 0;      ///< that have ended
    double median = 0;      ///< of the last ones, in seconds; 0: none yet
    double per_second = 0;  ///< of the last ones
    double age = -1;        ///< of the step that runs, in seconds; -1: none
    double loss = std::numeric_limits<double>::quiet_NaN();
  };
  State state(TimePoint now) const;

  /// Steps that median and rate are of.
  static constexpr size_t kLast = 32;

 private:
  mutable Mutex mutex_;
  int64_t open_ TROUPE_GUARDED_BY(mutex_) = 0;
  int64_t steps_ TROUPE_GUARDED_BY(mutex_) = 0;
  TimePoint since_ TROUPE_GUARDED_BY(mutex_){};  // of the step that runs, or of the last one's end
  std::array<Duration, kLast> took_ TROUPE_GUARDED_BY(mutex_){};
  std::array<TimePoint, kLast> ends_ TROUPE_GUARDED_BY(mutex_){};
  double loss_ TROUPE_GUARDED_BY(mutex_) = std::numeric_limits<double>::quiet_NaN();
  bool stated_ TROUPE_GUARDED_BY(mutex_) = false;
};

}  // namespace troupe::internal::actors
