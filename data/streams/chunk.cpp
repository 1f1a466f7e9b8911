#include "data/streams/chunk.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/base/error.h"
#include "core/base/even_sizes.h"
#include "core/base/mutex.h"
#include "data/datasets/sampler.h"
#include "data/streams/buckets.h"
#include "data/streams/permutation.h"

namespace troupe::datasets::detail {
namespace {

size_t bytes_of(const Value& value) {
  if (const auto* t = value.get_if<Tensor>()) return t->defined() ? t->nbytes() : 0;
  if (const auto* s = value.get_if<std::string>()) return s->size();
  if (const auto* b = value.get_if<Bytes>()) return b->size();
  size_t all = sizeof value;
  if (const auto* list = value.get_if<ValueList>())
    for (const Value& v : *list) all += bytes_of(v);
  if (const auto* map = value.get_if<ValueMap>())
    for (const auto& [name, v] : *map) all += bytes_of(v);
  return all;
}

}  // namespace

size_t bytes_of(const ReadChunk& chunk) {
  size_t all = sizeof chunk;
  for (const auto& [name, value] : chunk.batch) all += bytes_of(value);
  for (const Sample& row : chunk.rows)
    for (const auto& [name, value] : row) all += bytes_of(value);
  return all;
}

// The orders of the epochs that are being read.
class ChunkReader::Orders {
 public:
  Orders(int64_t size, const std::optional<ShuffleOptions>& shuffle) : size_(size), shuffle_(shuffle) {}
  /// The number in the source of the sample at a place of the epoch's order.
  int64_t number(int64_t epoch, int64_t position) { return shuffle_ ? (*order(epoch))(position) : position; }

 private:
  std::shared_ptr<const internal::BlockOrder> order(int64_t epoch) {
    const internal::Lock lock(mutex_);
    auto& found = orders_[epoch];
    if (!found)
      found = std::make_shared<const internal::BlockOrder>(
          size_, shuffle_->block, shuffle_->together,
          splitmix64(shuffle_->seed) + splitmix64(static_cast<uint64_t>(epoch)));
    const auto out = found;
    if (orders_.size() > 2) orders_.erase(orders_.begin());
    return out;
  }
  const int64_t size_;
  const std::optional<ShuffleOptions> shuffle_;
  internal::Mutex mutex_;
  std::map<int64_t, std::shared_ptr<const internal::BlockOrder>> orders_ TROUPE_GUARDED_BY(mutex_);
};

ChunkReader::ChunkReader(Pipeline pipeline, int64_t rank, int64_t ranks)
    : pipeline_(std::move(pipeline)),
      rank_(rank),
      ranks_(ranks),
      orders_(std::make_unique<Orders>(pipeline_.source_->size(), pipeline_.shuffle_)) {
  check_rank(rank, ranks);
  // The width of fields that are padded is that of rows of all ranks.
  whole_batches_ = !pipeline_.filters_ && !pipeline_.skips_broken_ && pipeline_.packed_.empty() &&
                   pipeline_.bucketed_.empty() && (ranks == 1 || pipeline_.batch_.pad.empty());
  constexpr int64_t kLeast = 16, kMost = 256;
  size_ = whole_batches_ ? pipeline_.rows_ : std::clamp(pipeline_.rows_, kLeast, kMost);
  if (!pipeline_.bucketed_.empty() && __builtin_mul_overflow(pipeline_.rows_, pipeline_.window_, &size_))
    throw_invalid("[stream] bucket: more samples than can be counted are put into buckets together");
  size_ = std::min(size_, pipeline_.taken_);
}
ChunkReader::~ChunkReader() = default;

std::pair<int64_t, int64_t> ChunkReader::begin_of(const FeedPlace& from, int64_t index) const {
  if (!has(from.epoch)) return {from.epoch, from.position};
  const int64_t of_epoch = chunks_of(pipeline_.taken_), first = chunks_behind(from);
  if (index < first) return {from.epoch, from.position + index * size_};
  index -= first;
  return {from.epoch + 1 + index / of_epoch, index % of_epoch * size_};
}

int64_t ChunkReader::count(const FeedPlace& from) const {
  if (!has(from.epoch)) return 0;
  const int64_t of_epoch = chunks_of(pipeline_.taken_), epochs = pipeline_.epochs_ - from.epoch - 1;
  const int64_t first = chunks_behind(from);
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  return epochs > (kAll - first) / of_epoch ? kAll : first + epochs * of_epoch;
}

Chunk ChunkReader::placed(int64_t epoch, int64_t first, ReadChunk read) const {
  const int64_t end = first + std::min(size_, pipeline_.taken_ - first);
  const bool last = end == pipeline_.taken_;
  return {std::move(read),
          epoch,
          end - first,
          last,
          last ? FeedPlace{epoch + 1, 0, 0} : FeedPlace{epoch, end, 0},
          first};
}

ReadChunk ChunkReader::read(int64_t epoch, int64_t first) const {
  int64_t size = std::min(size_, pipeline_.taken_ - first), begin = first;
  if (whole_batches_) {
    begin += internal::even_begin(size, rank_, ranks_);
    size = part_size(size, rank_, ranks_);
  }
  ReadChunk out;
  for (int64_t at = begin; at < begin + size; ++at) try {
      if (auto sample = make(epoch, at)) {
        out.rows.push_back(std::move(*sample));
        if (!whole_batches_) out.positions.push_back(at);
      }
    } catch (const Error& e) {
      if (!pipeline_.skips_broken_ || e.kind() != ErrorKind::invalid) throw;
      ++out.broken;
    }
  if (!pipeline_.bucketed_.empty())
    put_in_buckets(out.rows, pipeline_.bucketed_, pipeline_.boundaries_, pipeline_.rows_);
  if (!whole_batches_) return out;
  std::vector<const Sample*> all;
  for (const Sample& row : out.rows) all.push_back(&row);
  out.count = std::ssize(all);
  out.batch = collate(all, 0, out.count, pipeline_.batch_);
  out.rows.clear();
  return out;
}

std::optional<Sample> ChunkReader::make(int64_t epoch, int64_t position) const {
  const uint64_t seed = pipeline_.shuffle_ ? pipeline_.shuffle_->seed : 0;
  Generator random =
      Generator(seed).split(static_cast<uint64_t>(epoch)).split(static_cast<uint64_t>(position));
  std::optional<Sample> sample = pipeline_.source_->read(orders_->number(epoch, position));
  for (const auto& step : pipeline_.steps_) {
    sample = step(std::move(*sample), random);
    if (!sample) return {};
  }
  return sample;
}

std::vector<int64_t> ChunkReader::order() const {
  const auto& shuffle = pipeline_.shuffle_;
  std::vector<int64_t> out{pipeline_.source_->size(), static_cast<int64_t>(shuffle ? shuffle->seed : 0),
                           shuffle ? shuffle->block : 0, shuffle ? shuffle->together : 0, pipeline_.length_};
  if (pipeline_.bucketed_.empty()) return out;
  out.insert(out.end(), {pipeline_.rows_, pipeline_.window_});
  out.insert(out.end(), pipeline_.boundaries_.begin(), pipeline_.boundaries_.end());
  return out;
}

}  // namespace troupe::datasets::detail
