#include "data/streams/feed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/tensor/creation.h"
#include "data/streams/permutation.h"
#include "ops/index.h"

namespace troupe::datasets {
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

// The orders of the epochs that are being read.
class Feed::Orders {
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

Feed::Feed(Pipeline pipeline, FeedOptions options)
    : pipeline_(std::move(pipeline)),
      options_(std::move(options)),
      orders_(std::make_shared<Orders>(pipeline_.source_->size(), pipeline_.shuffle_)) {
  detail::check_rank(options_.rank, options_.ranks);
  begin_reading();
}
Feed::~Feed() = default;

// ---- threads of the feed: they read a chunk at a time

// Rows of other ranks need not be read where batches are known before.
bool Feed::divides_early() const {
  const Pipeline& p = pipeline_;
  return options_.ranks > 1 && !p.filters_ && !p.skips_broken_ && p.packed_.empty() && p.batch_.pad.empty();
}

int64_t Feed::chunk_size() const {
  constexpr int64_t kLeast = 16, kMost = 256;
  return divides_early() ? pipeline_.rows_ : std::clamp(pipeline_.rows_, kLeast, kMost);
}

void Feed::begin_reading() {
  reading_.reset();
  ready_.clear(), ids_.clear(), segments_.clear();
  epoch_ends_ = false;
  const int64_t size = chunk_size(), of_epoch = (pipeline_.taken_ + size - 1) / size;
  const Place from = place_;
  const int64_t first = (std::max<int64_t>(pipeline_.taken_ - from.position, 0) + size - 1) / size;
  const auto make = [this, size, of_epoch, from, first](int64_t index) -> std::optional<Chunk> {
    if (index < first) return read(from.epoch, from.position + index * size);
    index -= first;
    return read(from.epoch + 1 + index / of_epoch, index % of_epoch * size);
  };
  const auto bytes = [](const Chunk& chunk) {
    size_t all = sizeof chunk;
    for (const Row& row : chunk.rows)
      for (const auto& [name, value] : row.sample) all += bytes_of(value);
    return all;
  };
  reading_ =
      std::make_unique<Prefetch<Chunk>>(make, options_.ahead, std::numeric_limits<int64_t>::max(), bytes);
}

std::optional<Feed::Chunk> Feed::read(int64_t epoch, int64_t first) const {
  if (epoch >= pipeline_.epochs_) return {};
  const int64_t end = std::min(first + chunk_size(), pipeline_.taken_);
  const bool last = end == pipeline_.taken_;
  Chunk out{.rows = {}, .epoch = epoch, .size = end - first, .last = last};
  out.next = last ? Place{epoch + 1, 0, 0} : Place{epoch, end, 0};
  int64_t begin = first, stop = end;
  if (divides_early()) {
    begin = first + internal::even_begin(out.size, options_.rank, options_.ranks);
    stop = begin + part_size(out.size, options_.rank, options_.ranks);
  }
  for (int64_t at = begin; at < stop; ++at) try {
      if (auto row = make(epoch, at)) out.rows.push_back(std::move(*row));
    } catch (const Error& e) {
      if (!pipeline_.skips_broken_ || e.kind() != ErrorKind::invalid) throw;
      ++out.broken;
    }
  return out;
}

std::optional<Feed::Row> Feed::make(int64_t epoch, int64_t position) const {
  const uint64_t seed = pipeline_.shuffle_ ? pipeline_.shuffle_->seed : 0;
  Generator random =
      Generator(seed).split(static_cast<uint64_t>(epoch)).split(static_cast<uint64_t>(position));
  std::optional<Sample> sample = pipeline_.source_->read(orders_->number(epoch, position));
  for (const auto& step : pipeline_.steps_) {
    sample = step(std::move(*sample), random);
    if (!sample) return {};
  }
  return Row{std::move(*sample), {epoch, position + 1, 0}};
}

// ---- the thread that trains

std::optional<FedBatch> Feed::next() {
  if (divides_early()) return divided();
  const auto rows = static_cast<size_t>(pipeline_.rows_);
  for (;;) {
    if (ready_.size() >= rows || (epoch_ends_ && !ready_.empty() && !pipeline_.batch_.drop_last)) {
      const auto end = ready_.begin() + static_cast<std::ptrdiff_t>(std::min(rows, ready_.size()));
      std::vector<Row> all(std::make_move_iterator(ready_.begin()), std::make_move_iterator(end));
      ready_.erase(ready_.begin(), end);
      return emit(all);
    }
    if (std::exchange(epoch_ends_, false)) {  // what is left fills nothing
      ready_.clear(), ids_.clear(), segments_.clear();
      place_ = {epoch_ + 1, 0, 0};
    }
    auto chunk = more();
    if (!chunk) return {};
    epoch_ = chunk->epoch, epoch_ends_ = chunk->last;
    for (Row& row : chunk->rows)
      if (pipeline_.packed_.empty())
        ready_.push_back(std::move(row));
      else
        pack(std::move(row));
  }
}

std::optional<Feed::Chunk> Feed::more() {
  const auto start = std::chrono::steady_clock::now();
  auto chunk = reading_->next();
  report_.waited += std::chrono::steady_clock::now() - start;
  if (chunk) report_.broken += chunk->broken;
  return chunk;
}

// A chunk is a batch, of which this rank has its rows alone.
std::optional<FedBatch> Feed::divided() {
  auto chunk = more();
  if (chunk && pipeline_.batch_.drop_last && chunk->size < pipeline_.rows_) chunk = more();
  if (!chunk || (pipeline_.batch_.drop_last && chunk->size < pipeline_.rows_)) return {};
  epoch_ = chunk->epoch;
  FedBatch out = collate(chunk->rows);
  place_ = chunk->next;
  return out;
}

void Feed::pack(Row row) {
  const auto at = row.sample.find(pipeline_.packed_);
  const auto* ids = at == row.sample.end() ? nullptr : at->second.get_if<Tensor>();
  if (!ids || ids->dtype() != int64 || ids->dim() != 1)
    throw_invalid(
        fmt::format("[stream] pack: the field \"{}\" of a sample is {}, expected a tensor int64 [n]",
                    pipeline_.packed_, at == row.sample.end() ? "not there" : at->second.describe()));
  // A sample whose first ids are in rows that were given before the place was loaded.
  const bool begun = place_.epoch == row.next.epoch && place_.position == row.next.position - 1;
  const auto all = ids->to_vector<int64_t>();
  const auto length = static_cast<size_t>(pipeline_.length_);
  int64_t segment = segments_.empty() ? 0 : segments_.back() + 1;
  for (size_t i = begun ? static_cast<size_t>(place_.used) : 0; i < all.size(); ++i) {
    ids_.push_back(all[i]), segments_.push_back(segment);
    if (ids_.size() < length) continue;
    const bool whole = i + 1 == all.size();
    ready_.push_back(
        {{{pipeline_.packed_, tensor(ids_, int64)}, {"segment", tensor(segments_, int64)}},
         whole ? row.next : Place{row.next.epoch, row.next.position - 1, static_cast<int64_t>(i) + 1}});
    ids_.clear(), segments_.clear();
    segment = 0;
  }
}

FedBatch Feed::emit(const std::vector<Row>& all) {
  FedBatch out = collate(all);
  place_ = all.back().next;
  if (epoch_ends_ && ready_.empty() && ids_.empty()) {
    place_ = {epoch_ + 1, 0, 0};
    epoch_ends_ = false;
  }
  return out;
}

// ---- rows as one

namespace {

using Column = std::vector<const Value*>;

Tensor padded(const Tensor& t, int64_t width, double with) {
  Shape rest = t.shape();
  if (rest.empty()) throw_invalid("[stream] a field of no dimension cannot be padded");
  rest[0] = width - t.size(0);
  return rest[0] == 0 ? t : ops::cat({t, full(rest, with, t.dtype())}, 0);
}

Value joined(const std::string& field, const Column& column) {
  const auto all_are = [&]<class T>(const T*) {
    return std::ranges::all_of(column, [](const Value* v) { return v->get_if<T>() != nullptr; });
  };
  const auto numbers = [&]<class T>(const T*, DType dtype) {
    std::vector<T> out;
    for (const Value* v : column) out.push_back(*v->get_if<T>());
    return tensor(out, dtype);
  };
  if (all_are(static_cast<const int64_t*>(nullptr)))
    return numbers(static_cast<const int64_t*>(nullptr), int64);
  if (all_are(static_cast<const double*>(nullptr)))
    return numbers(static_cast<const double*>(nullptr), float64);
  if (!all_are(static_cast<const Tensor*>(nullptr))) {
    ValueList list;
    for (const Value* v : column) list.push_back(*v);
    return list;
  }
  Tensors tensors;
  for (const Value* v : column) {
    tensors.push_back(*v->get_if<Tensor>());
    if (tensors.back().shape() != tensors.front().shape())
      throw_invalid(
          fmt::format("[stream] the field \"{}\" is {} and {} in one batch: name it in "
                      "BatchOptions::pad, pack() it, or make it equal in map()",
                      field, column.front()->describe(), v->describe()));
  }
  return ops::stack(tensors, 0);
}

}  // namespace

FedBatch Feed::collate(const std::vector<Row>& all) {
  const bool early = divides_early();
  const auto count = static_cast<int64_t>(all.size());
  const int64_t begin = early ? 0 : internal::even_begin(count, options_.rank, options_.ranks),
                rows = early ? count : part_size(count, options_.rank, options_.ranks);
  FedBatch out{.fields = {}, .rows = rows, .epoch = epoch_, .index = batches_++};
  report_.rows += rows;
  if (rows == 0) return out;
  for (const auto& [field, first] : all[static_cast<size_t>(begin)].sample) {
    const auto pad = pipeline_.batch_.pad.find(field);
    int64_t width = 0;
    std::vector<Value> values;
    std::vector<int64_t> lengths;
    for (int64_t r = 0; r < count; ++r) {
      const auto at = all[static_cast<size_t>(r)].sample.find(field);
      if (at == all[static_cast<size_t>(r)].sample.end())
        throw_invalid("[stream] one sample of a batch has the field \"" + field + "\", another one has not");
      const auto* t = at->second.get_if<Tensor>();
      if (pad != pipeline_.batch_.pad.end() && t && t->dim() > 0) width = std::max(width, t->size(0));
      if (r < begin || r >= begin + rows) continue;
      values.push_back(at->second);
      if (t && t->dim() > 0) lengths.push_back(t->size(0));
    }
    if (pad != pipeline_.batch_.pad.end()) {
      const int64_t to = pipeline_.batch_.pad_to;
      width = (width + to - 1) / to * to;
      for (Value& v : values)
        if (auto* t = v.get_if<Tensor>()) *t = padded(*t, width, pad->second);
      out.fields[field + "_length"] = tensor(lengths, int64);
    }
    Column column;
    for (const Value& v : values) column.push_back(&v);
    out.fields[field] = joined(field, column);
  }
  return out;
}

const Tensor& FedBatch::tensor(const std::string& field) const& {
  const auto at = fields.find(field);
  if (at != fields.end())
    if (const auto* t = at->second.get_if<Tensor>()) return *t;
  std::vector<std::string> names;
  for (const auto& [name, value] : fields) names.push_back(name + " (" + value.describe() + ")");
  throw_invalid(
      fmt::format("[stream] a batch has no tensor \"{}\"; it has {}", field, fmt::join(names, ", ")));
}

// ---- the place

StateDict Feed::state() const {
  const auto& shuffle = pipeline_.shuffle_;
  const auto seed = static_cast<int64_t>(shuffle ? shuffle->seed : 0);
  return {{"place", troupe::tensor({place_.epoch, place_.position, place_.used, batches_}, int64)},
          {"order", troupe::tensor({pipeline_.source_->size(), seed, shuffle ? shuffle->block : int64_t{0},
                                    shuffle ? shuffle->together : int64_t{0}, pipeline_.length_},
                                   int64)}};
}

void Feed::load_state(const StateDict& state) {
  const auto numbers = [&](const char* name, size_t count) {
    const auto at = state.find(name);
    if (at == state.end() || at->second.numel() != static_cast<int64_t>(count))
      throw_invalid(std::string("[stream] what is to be loaded has no \"") + name + "\" of a Feed");
    return at->second.to_vector<int64_t>();
  };
  const auto mine = this->state().at("order").to_vector<int64_t>(), order = numbers("order", mine.size());
  if (order != mine)
    throw_invalid(
        fmt::format("[stream] the place is in another order: samples, seed, block, together and packed "
                    "length were {}, and are {}",
                    fmt::join(order, ", "), fmt::join(mine, ", ")));
  const auto place = numbers("place", 4);
  place_ = {place[0], place[1], place[2]};
  batches_ = place[3];
  begin_reading();
}

}  // namespace troupe::datasets
