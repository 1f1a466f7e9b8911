// A map from the stages of a pipeline to its workers.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe::parallel {

/// Each worker has the same number of stages, its chunks. A micro-batch passes stages 0, 1, ... wherever they
/// are.
class StageMap {
 public:
  StageMap() : StageMap(loop(1, 1)) {}
  /// The stages by worker, then by chunk. `invalid` unless each is there once, and each worker has as many.
  explicit StageMap(std::vector<std::vector<int64_t>> stages);
  /// Chunk c of worker w is stage c * workers + w: a micro-batch passes all workers, then all again.
  static StageMap loop(int workers, int chunks);
  /// There and back: worker w has stages w and 2 * workers - 1 - w, and so the first has the loss, too. Qi
  /// and others, "Pipeline parallelism with controllable memory" (2024).
  static StageMap v(int workers);

  int workers() const { return static_cast<int>(stages_.size()); }
  int chunks() const { return static_cast<int>(stages_[0].size()); }
  int stages() const { return workers() * chunks(); }
  int stage(int worker, int chunk) const {
    return static_cast<int>(stages_[static_cast<size_t>(worker)][static_cast<size_t>(chunk)]);
  }
  int worker(int64_t stage) const { return at_[static_cast<size_t>(stage)].first; }
  int chunk(int64_t stage) const { return at_[static_cast<size_t>(stage)].second; }
  const std::vector<std::vector<int64_t>>& by_worker() const { return stages_; }
  bool is_loop() const { return *this == loop(workers(), chunks()); }
  bool operator==(const StageMap& o) const { return stages_ == o.stages_; }

 private:
  std::vector<std::vector<int64_t>> stages_;  // by worker and chunk
  std::vector<std::pair<int, int>> at_;       // worker and chunk, by stage
};

}  // namespace troupe::parallel
