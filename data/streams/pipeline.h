// Steps from samples of a source to batches: in an order that is random and known, so that any place in it
// can be gone back to.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/generator.h"
#include "data/streams/source.h"

namespace troupe::datasets {

struct ShuffleOptions {
  uint64_t seed = 0;  ///< each epoch has an order of its own, the same in every run
  /// Samples that lie side by side and are read one after the other; of so many blocks `together` the samples
  /// are mixed. Where reading is as fast anywhere, block 1 mixes them all.
  int64_t block = 1024;
  int64_t together = 64;
};

struct BatchOptions {
  /// Leave out a last batch of an epoch that is not full; with bucket(), of each so many batches.
  bool drop_last = false;
  /// Fields whose first dimension becomes that of the longest in the batch, filled with this number; their
  /// lengths are int64 [rows], by the field's name and "_length". Ranks have the same width.
  std::map<std::string, double> pad = {};
  int64_t pad_to = 1;  ///< that width is rounded up to a multiple of this
};

class Pipeline;

/// A function that makes a pipeline, by its name, and what it is called with: recipe() has it.
struct Recipe {
  std::string name;
  ValueList arguments;
};

namespace detail {
class ChunkReader;
Pipeline with_recipe(Pipeline pipeline, Recipe recipe);
}  // namespace detail

/// A pipeline says what a Feed does, in the order in which samples go through it: the order, the functions of
/// map() and filter() as they were written, pack(), batch().
///
///   auto tokens = datasets::mixed({{datasets::token_windows({"wiki.bin"}), 0.7},
///                                  {datasets::token_windows({"code.bin"}), 0.3}});
///   datasets::Feed feed(datasets::Pipeline(tokens).shuffle({.seed = 1}).batch(32).repeat(2));
///   Job job(cluster);
///   for (int64_t step : job.steps()) {
///     auto batch = feed.next();
///     if (!batch) break;
///     const Tensor x = batch->tensor("x"), y = batch->tensor("y");
///     ...
///   }
///
/// A value. Functions are called by the threads of a feed, several at once.
class Pipeline {
 public:
  explicit Pipeline(SourcePtr source);

  /// `invalid` for a block or a number of blocks below 1.
  Pipeline& shuffle(const ShuffleOptions& options = {});
  Pipeline& map(std::function<Sample(Sample)> f);
  /// The function draws random numbers that are the sample's own: the same wherever and whenever it is made.
  Pipeline& map(std::function<Sample(Sample, Generator&)> f);
  Pipeline& filter(std::function<bool(const Sample&)> keeps);
  /// Does both: gives a sample, or nothing where it goes.
  using Step = std::function<std::optional<Sample>(Sample, Generator&)>;
  Pipeline& step(Step f);
  /// Puts the int64 [n] tensors of one field behind each other and cuts them into rows of `length`: the
  /// field, and "segment", which counts the samples in a row from 0: the mask of attention within samples is
  /// where two are equal. Other fields go. What fills no row at the end of an epoch is left out.
  Pipeline& pack(const std::string& field, int64_t length);
  /// Batches are of samples of similar length, the same batch on all ranks, so that padding is short. Of the
  /// samples of each so many `batches` that follow each other in the order, those come together whose field
  /// has a length (a tensor's first dimension, or the bytes of a text) between two of the boundaries: up to
  /// the first, up to the second, ..., longer. What fills no batch comes at their end, beside its neighbours;
  /// of what functions leave there, `drop_last` leaves out a last batch that is not full, each time. A place
  /// in such a feed is one with the same rows of a batch. `invalid` beside pack().
  Pipeline& bucket(const std::string& field, std::vector<int64_t> boundaries, int64_t batches = 64);
  /// `invalid` for fewer than 1 row.
  Pipeline& batch(int64_t rows, BatchOptions options = {});
  Pipeline& repeat(int64_t epochs);
  /// So many samples of each epoch, in its order, before functions see them.
  Pipeline& take(int64_t samples);
  /// Samples that cannot be read, or whose functions throw `invalid`, are left out and counted, and the
  /// log says at the end how many these were. Without it the feed throws.
  Pipeline& skip_broken(bool skips = true);

  /// What other processes make the same pipeline by: recipe() gives it, and any change takes it away.
  const std::optional<Recipe>& made_by() const& { return recipe_; }
  std::optional<Recipe> made_by() && { return std::move(recipe_); }

 private:
  friend class Feed;
  friend class detail::ChunkReader;
  friend Pipeline detail::with_recipe(Pipeline pipeline, Recipe recipe);
  Pipeline& changed() {
    recipe_.reset();
    return *this;
  }
  SourcePtr source_;
  std::optional<ShuffleOptions> shuffle_;
  std::vector<Step> steps_;
  bool filters_ = false, skips_broken_ = false;
  std::string packed_, bucketed_;  // the fields; empty: none
  std::vector<int64_t> boundaries_;
  int64_t window_ = 0;  // batches whose samples are put into buckets together
  int64_t length_ = 0, rows_ = 1, epochs_ = 1, taken_;
  BatchOptions batch_;
  std::optional<Recipe> recipe_;
};

}  // namespace troupe::datasets
