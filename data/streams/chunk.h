// Chunks: what the samples of a pipeline are read in, by threads of a feed or by its readers elsewhere.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/streams/pipeline.h"

namespace troupe::datasets::detail {

/// The next batch begins there: `used` ids of the sample at `position` are in rows before, or, with buckets,
/// so many batches of the chunk that begins there were given.
struct FeedPlace {
  int64_t epoch = 0, position = 0, used = 0;
};

/// The samples of a chunk have become this. It travels.
struct ReadChunk {
  std::vector<Sample> rows;        ///< empty where the chunk is a batch
  std::vector<int64_t> positions;  ///< of the rows in the epoch
  Sample batch;                    ///< this rank's rows as one
  int64_t count = 0;               ///< of the rows of `batch`
  int64_t broken = 0;              ///< samples that were left out
};
size_t bytes_of(const ReadChunk& chunk);

struct Chunk {
  ReadChunk read;
  int64_t epoch = 0, size = 0;  ///< samples, with those of other ranks
  bool last = false;            ///< of the epoch
  FeedPlace next = {};          ///< behind it
  int64_t first = 0;            ///< position of its first sample
};

/// This rank's rows of samples as one batch; `begin` and `count`: of `all`, where the others give fields that
/// are padded the same width.
Sample collate(const std::vector<const Sample*>& all, int64_t begin, int64_t count,
               const BatchOptions& options);

/// The chunks of a pipeline, as one rank needs them. Thread-safe.
class ChunkReader {
 public:
  /// `invalid` for a rank outside [0, ranks).
  ChunkReader(Pipeline pipeline, int64_t rank, int64_t ranks);
  ~ChunkReader();

  const Pipeline& pipeline() const& { return pipeline_; }
  const Pipeline& pipeline() const&& = delete;
  int64_t rank() const { return rank_; }
  int64_t ranks() const { return ranks_; }
  /// Batches are known before samples are read: each is a chunk, of which a rank reads its rows alone.
  bool has_whole_batches() const { return whole_batches_; }
  /// Chunk `index` of those that follow a place: its epoch, and the position of its first sample.
  std::pair<int64_t, int64_t> begin_of(const FeedPlace& from, int64_t index) const;
  /// How many follow it.
  int64_t count(const FeedPlace& from) const;
  /// Whether there is a chunk that begins there.
  bool has(int64_t epoch) const { return epoch < pipeline_.epochs_; }
  ReadChunk read(int64_t epoch, int64_t first) const;
  /// What was read there, with its place.
  Chunk placed(int64_t epoch, int64_t first, ReadChunk read) const;
  /// Samples, seed, block, together and packed length, and how buckets are made: what a place is one of.
  std::vector<int64_t> order() const;

 private:
  class Orders;
  std::optional<Sample> make(int64_t epoch, int64_t position) const;
  int64_t chunks_of(int64_t samples) const { return samples / size_ + (samples % size_ != 0); }
  int64_t chunks_behind(const FeedPlace& from) const {
    return chunks_of(std::max<int64_t>(pipeline_.taken_ - from.position, 0));
  }
  const Pipeline pipeline_;
  const int64_t rank_, ranks_;
  bool whole_batches_;
  int64_t size_;
  const std::unique_ptr<Orders> orders_;
};

}  // namespace troupe::datasets::detail
