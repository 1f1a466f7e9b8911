#include "data/streams/feed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/base/even_sizes.h"
#include "core/base/log.h"
#include "core/memory/backend.h"
#include "core/memory/pinned_buffer.h"
#include "core/tensor/creation.h"
#include "data/datasets/sampler.h"

namespace troupe::datasets {
namespace {

using Steady = std::chrono::steady_clock;

// Nobody waits for the copy: what the thread asks of the device later comes behind it.
Tensor copied_to(Device device, const Tensor& from) {
  const size_t bytes = from.defined() ? from.nbytes() : 0;
  const auto pinned = bytes ? backend_of(device).pinned_buffer(bytes, device) : nullptr;
  if (!pinned) return from.defined() ? from.to(device) : from;
  const Tensor whole = from.contiguous(), out = empty(whole.shape(), {whole.dtype(), device});
  std::memcpy(pinned->data(), whole.bytes(), bytes);
  pinned->there = out.storage();
  pinned->forward(bytes);
  return out;
}

}  // namespace

Feed::Feed(Pipeline pipeline, FeedOptions options)
    : reader_(std::make_shared<const detail::ChunkReader>(std::move(pipeline), options.rank, options.ranks)),
      reading_((options.readers ? options.readers : detail::read_here)(reader_, options.ahead)),
      device_(options.device) {}
Feed::~Feed() = default;

void Feed::begin_reading() {
  batch_.reset();
  rows_.clear(), ids_.clear(), segments_.clear();
  epoch_ends_ = over_ = false;
  failed_ = nullptr;
  reading_->begin(place_);
}

bool Feed::has_batch() const {
  if (reader_->has_whole_batches()) return batch_.has_value();
  const bool ends = epoch_ends_ || !pipeline().bucketed_.empty();
  return std::ssize(rows_) >= pipeline().rows_ || (ends && !rows_.empty() && !pipeline().batch_.drop_last);
}

double FeedReport::rows_per_second() const {
  return spent > Duration::zero() ? double(rows) / std::chrono::duration<double>(spent).count() : 0;
}

void Feed::waited(Steady::time_point since) {
  const Duration time = Steady::now() - since;
  report_.waited += time;
  counts_->waited(time);
}

std::optional<FedBatch> Feed::next() {
  if (!begun_) begun_ = Steady::now();
  while (!over_ && !failed_ && !has_batch()) take_chunk();
  if (!has_batch()) {
    if (failed_) std::rethrow_exception(failed_);
    return {};
  }
  if (!batch_) return emit();
  const detail::Chunk chunk = std::move(*std::exchange(batch_, std::nullopt));
  epoch_ = chunk.epoch;
  place_ = chunk.next;
  return counted(std::move(chunk.read.batch), chunk.read.count);
}

std::optional<Future<void>> Feed::arrival() {
  if (!begun_) begun_ = Steady::now();
  if (const auto since = std::exchange(waits_since_, std::nullopt)) waited(*since);
  try {
    while (!over_ && !failed_ && !has_batch()) {
      // The answer may come while this is decided: who has a future waits for it.
      if (auto arrived = reading_->ready()) {
        waits_since_ = Steady::now();
        return arrived;
      }
      take_chunk();
    }
  } catch (const Error&) {  // next() throws it, too: readings throw again
  }
  return {};
}

void Feed::take_chunk() {
  if (std::exchange(epoch_ends_, false)) {  // what is left fills nothing
    rows_.clear(), ids_.clear(), segments_.clear();
    place_ = {epoch_ + 1, 0, 0};
  }
  auto chunk = more();
  if (!chunk) {
    over_ = true;
    if (report_.broken > 0 && reader_->rank() == 0)
      internal::log::warning(fmt::format("[stream] {} broken sample{} left out, as skip_broken() asks",
                                         report_.broken, report_.broken == 1 ? " was" : "s were"));
    return;
  }
  if (reader_->has_whole_batches()) {
    if (!pipeline().batch_.drop_last || chunk->size == pipeline().rows_) batch_ = std::move(chunk);
    return;
  }
  epoch_ = chunk->epoch;
  try {
    take_rows(*chunk);
    epoch_ends_ = chunk->last;
  } catch (...) {
    failed_ = std::current_exception();
  }
}

void Feed::take_rows(detail::Chunk& chunk) {
  if (!pipeline().bucketed_.empty()) return take_buckets(chunk);
  for (size_t i = 0; i < chunk.read.rows.size(); ++i) {
    Row row{std::move(chunk.read.rows[i]), {epoch_, chunk.read.positions[i] + 1, 0}};
    if (pipeline().packed_.empty())
      rows_.push_back(std::move(row));
    else
      pack(std::move(row));
  }
}

// A chunk is whole batches, but for what fills none: that goes before the next chunk is there.
void Feed::take_buckets(detail::Chunk& chunk) {
  rows_.clear();
  auto& all = chunk.read.rows;
  const bool begun = place_.epoch == chunk.epoch && place_.position == chunk.first;
  const int64_t rows = pipeline().rows_, count = std::ssize(all), given = begun ? place_.used * rows : 0;
  for (int64_t i = given; i < count; ++i) {
    const int64_t batch = i / rows + 1;
    rows_.push_back(
        {std::move(all[static_cast<size_t>(i)]),
         batch * rows >= count ? chunk.next : detail::FeedPlace{chunk.epoch, chunk.first, batch}});
  }
}

std::optional<detail::Chunk> Feed::more() {
  const auto start = Steady::now();
  auto chunk = reading_->next();
  waited(start);
  if (chunk) report_.broken += chunk->read.broken;
  return chunk;
}

void Feed::pack(Row row) {
  const auto at = row.sample.find(pipeline().packed_);
  const auto* ids = at == row.sample.end() ? nullptr : at->second.get_if<Tensor>();
  if (!ids || ids->dtype() != int64 || ids->dim() != 1)
    throw_invalid(
        fmt::format("[stream] pack: the field \"{}\" of a sample is {}, expected a tensor int64 [n]",
                    pipeline().packed_, at == row.sample.end() ? "not there" : at->second.describe()));
  // A sample whose first ids are in rows that were given before the place was loaded.
  const bool begun = place_.epoch == row.next.epoch && place_.position == row.next.position - 1;
  const auto all = ids->to_vector<int64_t>();
  const auto length = static_cast<size_t>(pipeline().length_);
  int64_t segment = segments_.empty() ? 0 : segments_.back() + 1;
  for (size_t i = begun ? static_cast<size_t>(place_.used) : 0; i < all.size(); ++i) {
    ids_.push_back(all[i]), segments_.push_back(segment);
    if (ids_.size() < length) continue;
    const bool whole = i + 1 == all.size();
    rows_.push_back(
        {{{pipeline().packed_, tensor(ids_, int64)}, {"segment", tensor(segments_, int64)}},
         whole ? row.next
               : detail::FeedPlace{row.next.epoch, row.next.position - 1, static_cast<int64_t>(i) + 1}});
    ids_.clear(), segments_.clear();
    segment = 0;
  }
}

FedBatch Feed::emit() {
  const auto end = rows_.begin() + std::min<std::ptrdiff_t>(pipeline().rows_, std::ssize(rows_));
  std::vector<const Sample*> all;
  for (auto row = rows_.begin(); row != end; ++row) all.push_back(&row->sample);
  const int64_t rank = reader_->rank(), ranks = reader_->ranks(),
                count = part_size(std::ssize(all), rank, ranks);
  Sample fields =
      detail::collate(all, internal::even_begin(std::ssize(all), rank, ranks), count, pipeline().batch_);
  place_ = (end - 1)->next;
  rows_.erase(rows_.begin(), end);
  FedBatch out = counted(std::move(fields), count);
  if (epoch_ends_ && rows_.empty() && ids_.empty()) {
    place_ = {epoch_ + 1, 0, 0};
    epoch_ends_ = false;
  }
  return out;
}

FedBatch Feed::counted(Sample fields, int64_t rows) {
  report_.rows += rows;
  report_.spent = Steady::now() - *begun_;
  counts_->given(rows);
  if (!device_.is_cpu())
    for (auto& [name, value] : fields) visit_tensors(value, [&](Tensor& t) { t = copied_to(device_, t); });
  return {.fields = std::move(fields), .rows = rows, .epoch = epoch_, .index = batches_++};
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
  return {{"place", troupe::tensor({place_.epoch, place_.position, place_.used, batches_}, int64)},
          {"order", troupe::tensor(reader_->order(), int64)}};
}

void Feed::load_state(const StateDict& state) {
  const auto numbers = [&](const char* name, size_t count) {
    const auto at = state.find(name);
    if (at == state.end() || (count && at->second.numel() != static_cast<int64_t>(count)))
      throw_invalid(std::string("[stream] what is to be loaded has no \"") + name + "\" of a Feed");
    return at->second.to_vector<int64_t>();
  };
  const auto mine = reader_->order(), order = numbers("order", 0);
  if (order != mine)
    throw_invalid(
        fmt::format("[stream] the place is in another order: samples, seed, block, together and packed "
                    "length, and how buckets are made, were {}, and are {}",
                    fmt::join(order, ", "), fmt::join(mine, ", ")));
  const auto place = numbers("place", 4);
  const detail::FeedPlace there{place[0], place[1], place[2]};
  if (place[3] < 0)
    throw_invalid(fmt::format("[stream] the place is batch {}: expected 0 or more", place[3]));
  check(there);
  place_ = there;
  batches_ = place[3];
  begin_reading();
}

void Feed::check(const detail::FeedPlace& place) const {
  const auto& [epoch, position, used] = place;
  const int64_t size = pipeline().source_->size();
  if (epoch < 0 || position < 0 || position > size || used < 0)
    throw_invalid(
        fmt::format("[stream] the place is sample {} of epoch {}, {} of it used: expected 0 or more, and at "
                    "most sample {}; load what state() of a Feed gave",
                    position, epoch, used, size));
  if (pipeline().bucketed_.empty()) return;
  const int64_t batches = pipeline().window_, samples = batches * pipeline().rows_;
  if (position % samples || used >= batches)
    throw_invalid(
        fmt::format("[stream] the place is batch {} behind sample {}: expected a batch below {} behind a "
                    "multiple of {} samples, as buckets are made; load what state() of a Feed gave",
                    used, position, batches, samples));
}

}  // namespace troupe::datasets
