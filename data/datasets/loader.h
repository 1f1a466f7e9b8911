// Batches of a data set, in a fresh random order every epoch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/datasets/sampler.h"

namespace troupe::datasets {

struct LoaderOptions {
  int64_t batch_size = 64;  ///< rows of a batch, over all ranks; with `shard` those of one rank
  bool shuffle = true;
  uint64_t seed = 0;       ///< of the order; epoch e has an order of its own, the same in every run
  bool drop_last = false;  ///< leave out a last batch that is not full
  /// This worker's number among `ranks`, which divide the rows of each batch: together they have the batches
  /// of a loader without ranks. No row is repeated nor left out; in a batch with fewer rows than ranks some
  /// have none: x is [0, ...].
  int64_t rank = 0;
  int64_t ranks = 1;
  /// If given, every rank has its shard() of the order and cuts that into batches of its own, all with rows,
  /// as with PyTorch's DistributedSampler; it says what happens where that does not come out even.
  std::optional<Uneven> shard = {};
};

/// Some rows of a set, copied: x [rows, ...], y [rows, ...], both contiguous. Of several ranks those of one.
struct Batch {
  Tensor x, y;
  int64_t index = 0;  ///< 0 for the first batch of the epoch
};

/// One pass over the set, for range-for. Holds what it needs; outlives its loader. Each batch is gathered
/// when the iterator is read, so nothing is kept between steps.
class Epoch {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = const Batch*;
    using reference = Batch;

    Iterator(const Epoch* epoch, int64_t index) : epoch_(epoch), index_(index) {}
    Batch operator*() const { return epoch_->batch(index_); }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator& o) const { return index_ == o.index_; }

   private:
    const Epoch* epoch_;
    int64_t index_;
  };

  Iterator begin() const& { return {this, 0}; }
  Iterator begin() const&& = delete;  // name the epoch: its iterators end with it
  Iterator end() const& { return {this, batches_}; }
  Iterator end() const&& = delete;  // name the epoch: its iterators end with it
  int64_t batches() const { return batches_; }
  /// Batch number `index`; `invalid` outside [0, batches()).
  Batch batch(int64_t index) const;
  /// This rank's row numbers in the order of this epoch; empty if it is the order of the set.
  const Order& order() const&;
  Order order() const&& { return order(); }

 private:
  friend class Loader;
  Epoch(Dataset set, std::shared_ptr<const Order> order, int64_t rows, int64_t batch_rows, int64_t batches)
      : set_(std::move(set)),
        order_(std::move(order)),
        rows_(rows),
        batch_rows_(batch_rows),
        batches_(batches) {}

  Dataset set_;
  std::shared_ptr<const Order> order_;
  int64_t rows_, batch_rows_, batches_;
};

/// `for (const Batch& b : loader.epoch(e))`. A value; const members may be called from several threads.
class Loader {
 public:
  /// `invalid`: x and y of different length, an empty set, a batch size below 1, a rank outside [0, ranks),
  /// drop_last without a full batch, or `shard` with a rank without rows.
  explicit Loader(Dataset set, LoaderOptions options = {});

  /// Batches per epoch; the same on every rank.
  int64_t batches() const { return batches_; }
  /// This rank's rows per epoch, with those that `drop_last` leaves out.
  int64_t rows() const { return rows_; }
  /// Rows of the whole set.
  int64_t size() const { return set_.size(); }
  const LoaderOptions& options() const& { return options_; }
  LoaderOptions options() const&& { return options_; }
  /// Pass number e (from 0), always with the same order for the same seed.
  Epoch epoch(int64_t e) const;

 private:
  Dataset set_;
  LoaderOptions options_;
  int64_t rows_, batch_rows_, batches_;  // batch_rows_: of a full batch
};

/// The share of a labelled set whose labels are where the model's scores [batch, classes] are largest. Batch
/// by batch; nothing is recorded.
double accuracy(const Dataset& set, const std::function<Tensor(const Tensor& x)>& scores,
                int64_t batch_size = 500);

}  // namespace troupe::datasets
