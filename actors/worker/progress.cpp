#include "actors/worker/progress.h"

#include <algorithm>
#include <vector>

namespace troupe::internal::actors {
namespace {

double in_seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

void Progress::begun(TimePoint now) {
  Lock lock(mutex_);
  if (open_++ == 0) since_ = now;
}

void Progress::ended(TimePoint now) {
  Lock lock(mutex_);
  if (open_ > 0) --open_;
  const size_t place = static_cast<size_t>(steps_++) % kLast;
  took_[place] = now - since_;
  ends_[place] = since_ = now;
}

void Progress::guess_loss(double loss) {
  Lock lock(mutex_);
  if (!stated_) loss_ = loss;
}

void Progress::state_loss(double loss) {
  Lock lock(mutex_);
  loss_ = loss;
  stated_ = true;
}

Progress::State Progress::state(TimePoint now) const {
  Lock lock(mutex_);
  State out{.steps = steps_, .loss = loss_};
  if (open_ > 0) out.age = in_seconds(now - since_);
  const auto count = static_cast<size_t>(std::min<int64_t>(steps_, kLast));
  if (count == 0) return out;
  std::vector<Duration> took(took_.begin(), took_.begin() + static_cast<std::ptrdiff_t>(count));
  std::nth_element(took.begin(), took.begin() + static_cast<std::ptrdiff_t>(count / 2), took.end());
  out.median = in_seconds(took[count / 2]);
  // From the first of them to the last, or to now, if that is longer than a step usually takes.
  const size_t last = static_cast<size_t>(steps_ - 1) % kLast, first = static_cast<size_t>(steps_) % kLast;
  const TimePoint from = steps_ > static_cast<int64_t>(kLast) ? ends_[first] : ends_[0] - took_[0];
  const auto whole = static_cast<double>(steps_ > static_cast<int64_t>(kLast) ? count - 1 : count);
  const double silent = in_seconds(now - ends_[last]);
  const double time = in_seconds(ends_[last] - from) + (silent > 2 * out.median ? silent : 0);
  if (time > 0) out.per_second = whole / time;
  return out;
}

}  // namespace troupe::internal::actors
