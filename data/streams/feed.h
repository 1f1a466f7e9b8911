// The batches of a pipeline, made ahead, and a place among them that a checkpoint keeps.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/graph/stateful.h"
#include "data/datasets/prefetch.h"
#include "data/streams/pipeline.h"

namespace troupe::datasets {

struct FeedOptions {
  PrefetchOptions ahead = {};  ///< threads that read and run functions, and how far ahead
  /// This rank's rows of each batch, which `ranks` divide as evenly as they can be: together they are the
  /// batches of a feed without ranks.
  int64_t rank = 0, ranks = 1;
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
  Duration waited{};  ///< by next(), for rows to be there
};

/// Made before the loop of a Job, it is where it was when that goes on from a checkpoint, whatever the number
/// of ranks and threads and the rows of a batch are then: each sample of an epoch is given once. Of one
/// thread.
class Feed final : public Stateful {
 public:
  /// `invalid` for a rank outside [0, ranks), and options of Prefetch.
  explicit Feed(Pipeline pipeline, FeedOptions options = {});
  ~Feed() override;

  /// The next batch; nothing behind the last epoch. Throws what reading or a function has thrown.
  std::optional<FedBatch> next();
  const FeedReport& report() const& { return report_; }
  FeedReport report() const&& { return report_; }

  StateDict state() const override;
  /// `invalid` for a place in a source of another size, or in another order.
  void load_state(const StateDict& state) override;
  std::string state_name() const override { return "Feed"; }

 private:
  // It is where the next batch begins: `used` ids of the sample at `position` are in rows before.
  struct Place {
    int64_t epoch = 0, position = 0, used = 0;
  };
  struct Row {
    Sample sample;
    Place next;  // of who goes on behind it
  };
  struct Chunk {
    std::vector<Row> rows;
    int64_t epoch = 0, size = 0, broken = 0;  // size: with rows of other ranks
    bool last = false;                        // of the epoch
    Place next = {};                          // behind it
  };
  class Orders;
  bool divides_early() const;
  int64_t chunk_size() const;
  void begin_reading();
  std::optional<Chunk> read(int64_t epoch, int64_t first) const;
  std::optional<Row> make(int64_t epoch, int64_t position) const;
  std::optional<Chunk> more();
  void pack(Row row);
  std::optional<FedBatch> divided();
  FedBatch emit(const std::vector<Row>& all);
  FedBatch collate(const std::vector<Row>& all);

  const Pipeline pipeline_;
  const FeedOptions options_;
  const std::shared_ptr<Orders> orders_;
  std::unique_ptr<Prefetch<Chunk>> reading_;
  Place place_;
  int64_t batches_ = 0;
  // ---- what was read, and is not given yet
  std::vector<Row> ready_;
  std::vector<int64_t> ids_, segments_;  // of a row that is being packed
  int64_t epoch_ = 0;
  bool epoch_ends_ = false;
  FeedReport report_;
};

}  // namespace troupe::datasets
