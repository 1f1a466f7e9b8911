// The known schedules. Micro-batches run backward in ascending order in all of them, so that gradients are
// summed in the same order.
#include <algorithm>
#include <deque>

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

// The row of a worker that has two chunks, written in the order of the micro-batches.
class TwoChunks {
 public:
  TwoChunks(Actions& row, int micro_batches) : row_(row), micro_batches_(micro_batches) {}
  void forward(int chunk) { add({Work::forward, forwards_[chunk]++, chunk}); }
  void backward(int chunk) { add({Work::backward, backwards_[chunk]++, chunk}); }
  void input(int chunk) {
    put_off_.push_back({Work::weight, backwards_[chunk], chunk});
    add({Work::input, backwards_[chunk]++, chunk});
  }
  /// The one that was put off last, or first.
  void weight_just_put_off() { add(put_off_.back()), put_off_.pop_back(); }
  void weight() { add(put_off_.front()), put_off_.pop_front(); }
  /// The first of a chunk.
  void weight(int chunk) {
    const auto at = std::ranges::find(put_off_, chunk, &Action::chunk);
    if (at == put_off_.end()) return;
    add(*at);
    put_off_.erase(at);
  }
  bool has_put_off() const { return !put_off_.empty(); }
  int forwards(int chunk) const { return forwards_[chunk]; }

 private:
  // A row for more micro-batches than there are is one for fewer, without the others.
  void add(const Action& a) {
    if (a.micro_batch < micro_batches_) row_.push_back(a);
  }
  Actions& row_;
  const int micro_batches_;
  int forwards_[2] = {}, backwards_[2] = {};
  std::deque<Action> put_off_;
};

Schedule v_shaped(const char* name, int workers, int micro_batches) {
  Schedule schedule = empty_schedule(name, workers, micro_batches, 2);
  schedule.stages_of = StageMap::v(workers).by_worker();
  return schedule;
}

void repeat(int times, const auto& f) {
  for (int i = 0; i < times; ++i) f();
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

Schedule looped_bfs(int workers, int micro_batches, int chunks) {
  Schedule schedule = empty_schedule("looped-bfs", workers, micro_batches, chunks);
  if (chunks < 1) throw_invalid("[schedule] " + std::to_string(chunks) + " chunks: expected at least 1");
  for (Actions& row : schedule.rows)
    for (const Work work : {Work::forward, Work::backward})
      for (int c = 0; c < chunks; ++c)
        for (int m = 0; m < micro_batches; ++m)
          row.push_back({work, m, work == Work::forward ? c : chunks - 1 - c});
  return schedule;
}

Schedule zb_v(int workers, int micro_batches) {
  Schedule schedule = v_shaped("zb-v", workers, micro_batches);
  const int count = std::max(micro_batches, 2 * workers - 1);
  for (int i = 0; i < workers; ++i) {
    const int left = workers - i;  // workers from this one to where the stages turn
    TwoChunks row(schedule.rows[static_cast<size_t>(i)], micro_batches);
    const auto back = [&](int chunk) { row.input(chunk), row.weight_just_put_off(); };
    repeat(2 * left - 1, [&] { row.forward(0); });
    repeat(i, [&] { row.forward(1), row.forward(0); });
    repeat(left, [&] { row.forward(1), back(1); });
    while (row.forwards(1) < count) {
      if (row.forwards(0) < count) row.forward(0);
      back(0), row.forward(1), back(1);
    }
    repeat(i, [&] { row.input(0), row.input(1); });
    repeat(left, [&] { row.input(0), row.weight(0); });
    for (const int chunk : {1, 0}) repeat(count, [&] { row.weight(chunk); });
  }
  return schedule;
}

Schedule dualpipe_v(int workers, int micro_batches) {
  Schedule schedule = v_shaped("dualpipe-v", workers, micro_batches);
  const int count = std::max(micro_batches, 2 * workers);
  for (int i = 0; i < workers; ++i) {
    const int behind = workers - i - 1;  // workers between this one and where the stages turn
    TwoChunks row(schedule.rows[static_cast<size_t>(i)], micro_batches);
    repeat(2 * behind, [&] { row.forward(0); });
    repeat(i + 1, [&] { row.forward(0), row.forward(1); });
    repeat(behind, [&] { row.input(1), row.weight_just_put_off(), row.forward(1); });
    repeat(count - 2 * workers + i + 1,
           [&] { row.forward(0), row.backward(1), row.forward(1), row.backward(0); });
    repeat(behind, [&] { row.backward(1), row.forward(1), row.backward(0); });
    for (int k = 0; k < 2 * (i + 1); ++k)  // half of them leave their weight parts for the end
      k < i + 1 ? row.backward((k + 1) % 2) : row.input((k + 1) % 2);
    repeat(behind, [&] { row.weight(), row.input(0); });
    while (row.has_put_off()) row.weight();
  }
  return schedule;
}

}  // namespace troupe::parallel
