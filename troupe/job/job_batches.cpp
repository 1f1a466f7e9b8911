// A loop over the batches of all epochs.
#include "troupe/job/job.h"

namespace troupe {

Job::Batch Job::Batches::batch(int64_t step) const {
  const int64_t n = loader_.batches(), epoch = step / n;
  if (!epoch_ || number_ != epoch) epoch_ = std::make_unique<datasets::Epoch>(loader_.epoch(epoch));
  number_ = epoch;
  auto [x, y, index] = epoch_->batch(step % n);
  return {std::move(x), std::move(y), epoch, index == n - 1};
}

}  // namespace troupe
