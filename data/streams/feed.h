// The batches of a pipeline, made ahead, and a place among them that a checkpoint keeps.
#pragma once
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/async/future.h"
#include "core/base/clock.h"
#include "core/graph/stateful.h"
#include "core/memory/device.h"
#include "data/streams/feed_counts.h"
#include "data/streams/reading.h"

namespace troupe::datasets {

struct FeedOptions {
  PrefetchOptions ahead = {};  ///< threads that read and run functions, and how far ahead
  /// This rank's rows of each batch, which `ranks` divide as evenly as they can be: together they are the
  /// batches of a feed without ranks.
  int64_t rank = 0, ranks = 1;
  /// Tensors of batches are there. A GPU copies them through pinned memory, while the host goes on.
  Device device = cpu;
  /// Other workers that read: readers() of <troupe/data.h>, for a pipeline made by recipe(). Without, threads
  /// of this process do.
  detail::MakeReading readers = {};
};

/// Some samples as one: tensors stacked, numbers as int64 or float64 [rows], truths as bool [rows], the rest
/// as lists.
struct FedBatch {
  Sample fields;
  int64_t rows = 0;   ///< of this rank; with none, there are no fields
  int64_t epoch = 0;  ///< from 0
  int64_t index = 0;  ///< over all epochs, from 0
  /// `invalid`, naming the fields that are there, for another one, or one that is no tensor.
  const Tensor& tensor(const std::string& field) const&;
  Tensor tensor(const std::string& field) const&& { return tensor(field); }
};

struct FeedReport {
  int64_t rows = 0, broken = 0;
  Duration waited{};  ///< by next(), or later(), for rows to be there
  Duration spent{};   ///< from the first call of next() to the last batch: steps, and what they waited
  double rows_per_second() const;
};

/// Made before the loop of a Job, it is where it was when that goes on from a checkpoint, whatever the number
/// of ranks, readers and threads and the rows of a batch are then: each sample of an epoch is given once. Of
/// one thread.
class Feed final : public Stateful {
 public:
  /// `invalid` for a rank outside [0, ranks), and options of Prefetch.
  explicit Feed(Pipeline pipeline, FeedOptions options = {});
  ~Feed() override;

  /// The next batch; nothing behind the last epoch. Throws what reading or a function has thrown, again at
  /// each call.
  std::optional<FedBatch> next();
  /// Nothing if next() need not wait for readers; else what is ready once something has arrived, when this is
  /// to be asked again: later() does so.
  std::optional<Future<void>> arrival();
  const FeedReport& report() const& { return report_; }
  FeedReport report() const&& { return report_; }

  StateDict state() const override;
  /// `invalid` for a place in a source of another size, in another order, or outside the source.
  void load_state(const StateDict& state) override;
  std::string state_name() const override { return "Feed"; }

 private:
  struct Row {
    Sample sample;
    detail::FeedPlace next;  // of who goes on behind it
  };
  const Pipeline& pipeline() const { return reader_->pipeline(); }
  void begin_reading();
  bool has_batch() const;
  void take_chunk();
  void take_rows(detail::Chunk& chunk);
  void check(const detail::FeedPlace& place) const;
  std::optional<detail::Chunk> more();
  void pack(Row row);
  void take_buckets(detail::Chunk& chunk);
  FedBatch emit();
  FedBatch counted(Sample fields, int64_t rows);
  void waited(std::chrono::steady_clock::time_point since);

  const std::shared_ptr<const detail::ChunkReader> reader_;
  const std::unique_ptr<detail::Reading> reading_;
  const Device device_;
  detail::FeedPlace place_;
  int64_t batches_ = 0;
  // ---- what was read, and is not given yet
  std::optional<detail::Chunk> batch_;  // whole
  std::vector<Row> rows_;
  std::vector<int64_t> ids_, segments_;  // of a row that is being packed
  int64_t epoch_ = 0;
  bool epoch_ends_ = false, over_ = false;
  std::exception_ptr failed_;  // of rows that were taken: next() throws it behind those before them
  FeedReport report_;
  std::optional<std::chrono::steady_clock::time_point> begun_, waits_since_;  // the latter by arrival()
  const std::shared_ptr<detail::FeedCounts> counts_ = detail::FeedCounts::make();
};

}  // namespace troupe::datasets
