// Batches of a data set, in a fresh random order every epoch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "data/dataset.h"

namespace troupe::data {

struct LoaderOptions {
  int64_t batch_size = 64;
  bool shuffle = true;
  uint64_t seed = 0;       ///< of the order; epoch e has an order of its own, the same in every run
  bool drop_last = false;  ///< leave out a last batch that is not full
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

  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, batches_}; }
  int64_t batches() const { return batches_; }
  /// Batch number `index`; `invalid` outside [0, batches()).
  Batch batch(int64_t index) const;
  /// Row numbers in the order of this epoch; empty if it is the order of the set.
  const std::vector<int64_t>& order() const { return *order_; }

 private:
  friend class Loader;
  Epoch(Dataset set, std::shared_ptr<const std::vector<int64_t>> order, int64_t batch_size, int64_t batches)
      : set_(std::move(set)), order_(std::move(order)), batch_size_(batch_size), batches_(batches) {}

  Dataset set_;
  std::shared_ptr<const std::vector<int64_t>> order_;
  int64_t batch_size_, batches_;
};

/// `for (const Batch& b : loader.epoch(e))`. A value; const members may be called from several threads.
class Loader {
 public:
  /// `invalid`: x and y of different length, an empty set, a batch size below 1, or above the size of the set
  /// with drop_last (there would be no batch).
  explicit Loader(Dataset set, LoaderOptions options = {});

  /// Batches per epoch.
  int64_t batches() const;
  int64_t size() const { return set_.size(); }
  const LoaderOptions& options() const { return options_; }
  /// Pass number e (from 0), always with the same order for the same seed.
  Epoch epoch(int64_t e) const;

 private:
  Dataset set_;
  LoaderOptions options_;
};

}  // namespace troupe::data
