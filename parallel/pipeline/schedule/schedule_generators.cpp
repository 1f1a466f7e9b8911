// The known schedules. Micro-batches run backward in ascending order in all of them, so that gradients are
// summed in the same order.
#include <algorithm>

#include "core/base/error.h"
#include "parallel/pipeline/schedule/schedule.h"

namespace troupe::parallel {
namespace {

void check_counts(int workers, int micro_batches) {
  if (workers < 1 || micro_batches < 1)
    throw_invalid("[schedule] " + std::to_string(workers) + " workers and " + std::to_string(micro_batches) +
                  " micro-batches: expected at least 1 of each");
}

Schedule empty_schedule(const char* name, int workers, int micro_batches, int chunks = 1) {
  check_counts(workers, micro_batches);
  return {name, micro_batches, chunks, std::vector<Actions>(static_cast<size_t>(workers))};
}

// Worker i starts with `depth` (p - 1 - i) forwards and puts weight gradients off by `depth` i micro-batches,
// until nothing is left to fill.
Schedule zero_bubble(const char* name, int workers, int micro_batches, int depth) {
  Schedule schedule = empty_schedule(name, workers, micro_batches);
  for (int i = 0; i < workers; ++i) {
    Actions& row = schedule.rows[static_cast<size_t>(i)];
    int forward = 0, input = 0, weight = 0;
    while (forward < std::min(micro_batches, depth * (workers - 1 - i)))
      row.push_back({Work::forward, forward++});
    while (input < micro_batches) {
      const bool steady = forward < micro_batches;
      if (steady) row.push_back({Work::forward, forward++});
      row.push_back({Work::input, input++});
      if (!steady || input - weight > depth * i) row.push_back({Work::weight, weight++});
    }
    while (weight < micro_batches) row.push_back({Work::weight, weight++});
  }
  return schedule;
}

}  // namespace

Schedule gpipe(int workers, int micro_batches) {
  Schedule schedule = empty_schedule("gpipe", workers, micro_batches);
  for (Actions& row : schedule.rows)
    for (const Work work : {Work::forward, Work::backward})
      for (int m = 0; m < micro_batches; ++m) row.push_back({work, m});
  return schedule;
}

Schedule one_f_one_b(int workers, int micro_batches) {
  Schedule schedule = interleaved(workers, micro_batches, 1);
  schedule.name = "1f1b";
  return schedule;
}

Schedule interleaved(int workers, int micro_batches, int chunks) {
  Schedule schedule = empty_schedule("interleaved", workers, micro_batches, chunks);
  if (chunks < 1) throw_invalid("[schedule] " + std::to_string(chunks) + " chunks: expected at least 1");
  if (chunks > 1 && micro_batches % workers != 0)
    throw_invalid("[schedule] interleaved: " + std::to_string(micro_batches) +
                  " micro-batches are no multiple of " + std::to_string(workers) + " workers");
  const int all = micro_batches * chunks, round = workers * chunks;
  // The k-th forward (or backward) of each worker: `workers` micro-batches through one chunk, then through
  // the next.
  const auto nth = [&](Work work, int k) -> Action {
    if (chunks == 1) return {work, k, 0};
    const int chunk = k % round / workers;
    return {work, k / round * workers + k % workers, work == Work::forward ? chunk : chunks - 1 - chunk};
  };
  for (int i = 0; i < workers; ++i) {
    Actions& row = schedule.rows[static_cast<size_t>(i)];
    const int ahead =
        std::min(all, chunks == 1 ? workers - 1 - i : 2 * (workers - 1 - i) + (chunks - 1) * workers);
    int forward = 0, backward = 0;
    while (forward < ahead) row.push_back(nth(Work::forward, forward++));
    while (backward < all) {
      if (forward < all) row.push_back(nth(Work::forward, forward++));
      row.push_back(nth(Work::backward, backward++));
    }
  }
  return schedule;
}

Schedule zb_h1(int workers, int micro_batches) { return zero_bubble("zb-h1", workers, micro_batches, 1); }
Schedule zb_h2(int workers, int micro_batches) { return zero_bubble("zb-h2", workers, micro_batches, 2); }

}  // namespace troupe::parallel
