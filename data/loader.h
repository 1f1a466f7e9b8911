// Batches of a data set, in a fresh random order every epoch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <vector>

#include "data/dataset.h"
#include "data/sampler.h"

namespace troupe::datasets {

struct LoaderOptions {
  int64_t batch_size = 64;
  bool shuffle = true;
  uint64_t seed = 0;       ///< of the order; epoch e has an order of its own, the same in every run
  bool drop_last = false;  ///< leave out a last batch that is not full
  int64_t rank = 0;        ///< this worker's number among `ranks`; each gets its part of the order (shard())
  int64_t ranks = 1;
  Uneven uneven = Uneven::pad;
};

/// Some rows of a set, copied: x [rows, ...], y [rows, ...], both contiguous.
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
  /// Row numbers in the order of this epoch; empty if it is the order of the set.
  const Order& order() const&;
  Order order() const&& { return order(); }

 private:
  friend class Loader;
  Epoch(Dataset set, std::shared_ptr<const Order> order, int64_t rows, int64_t batch_size, int64_t batches)
      : set_(std::move(set)),
        order_(std::move(order)),
        rows_(rows),
        batch_size_(batch_size),
        batches_(batches) {}

  Dataset set_;
  std::shared_ptr<const Order> order_;
  int64_t rows_, batch_size_, batches_;
};

/// `for (const Batch& b : loader.epoch(e))`. A value; const members may be called from several threads.
class Loader {
 public:
  /// `invalid`: x and y of different length, an empty set, a batch size below 1, a rank outside [0, ranks),
  /// or options that leave a rank without rows or without a full batch.
  explicit Loader(Dataset set, LoaderOptions options = {});

  /// Batches per epoch; the same on every rank.
  int64_t batches() const;
  /// Rows per epoch; the same on every rank.
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
  int64_t rows_;
};

/// The share of a labelled set whose labels are where the model's scores [batch, classes] are largest. Batch
/// by batch; nothing is recorded.
double accuracy(const Dataset& set, const std::function<Tensor(const Tensor& x)>& scores,
                int64_t batch_size = 500);

}  // namespace troupe::datasets
