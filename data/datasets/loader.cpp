// Gathers rows into batches by an order drawn per epoch.
#include "data/datasets/loader.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "ops/ops.h"

namespace troupe::datasets {
namespace {

// Rows [from, from + count) of the order, or of the tensor itself where no order is given. `t` is contiguous.
Tensor gather(const Tensor& t, const Order& order, int64_t from, int64_t count) {
  Shape shape = t.shape();
  const size_t row = t.nbytes() / static_cast<size_t>(shape[0]);
  shape[0] = count;
  Tensor out = empty(shape, t.dtype());
  if (row == 0) return out;
  if (order.empty()) {
    std::memcpy(out.bytes(), t.bytes() + static_cast<size_t>(from) * row, static_cast<size_t>(count) * row);
    return out;
  }
  std::byte* to = out.bytes();
  for (int64_t i = 0; i < count; ++i, to += row)
    std::memcpy(to, t.bytes() + static_cast<size_t>(order[static_cast<size_t>(from + i)]) * row, row);
  return out;
}

// Of the rank that the options name.
Order part_of(const Order& order, const LoaderOptions& options) {
  if (options.shard) return shard(order, options.rank, options.ranks, *options.shard);
  Order mine;
  for (const Order& batch : batches(order, options.batch_size))
    for (const int64_t row : part(batch, options.rank, options.ranks)) mine.push_back(row);
  return mine;
}

}  // namespace

const Order& Epoch::order() const& {
  if (!order_) throw_invalid("[loader] an empty epoch was used: it was moved from");
  return *order_;
}

Batch Epoch::batch(int64_t index) const {
  if (index < 0 || index >= batches_)
    throw_invalid("[loader] batch " + std::to_string(index) + " asked for, the epoch has " +
                  std::to_string(batches_));
  const int64_t from = index * batch_rows_, count = std::min(batch_rows_, rows_ - from);
  return {gather(set_.x, order(), from, count), gather(set_.y, order(), from, count), index};
}

Loader::Loader(Dataset set, LoaderOptions options) : set_(std::move(set)), options_(options) {
  const auto& [x, y] = set_;
  if (!x.defined() || !y.defined() || x.dim() == 0 || y.dim() == 0 || x.size(0) != y.size(0))
    throw_invalid("[loader] x and y need as many rows as each other, got " + x.summary() + " and " +
                  y.summary());
  if (size() == 0) throw_invalid("[loader] the set is empty: x is " + x.summary());
  if (options_.batch_size < 1)
    throw_invalid("[loader] batch size " + std::to_string(options_.batch_size) + ", expected at least 1");
  detail::check_rank(options_.rank, options_.ranks);
  const bool up = options_.shard == Uneven::pad && size() % options_.ranks != 0;
  const int64_t cut =
      options_.shard ? size() / options_.ranks + up : size();  // rows that are cut into batches
  if (cut == 0)
    throw_invalid("[loader] " + std::to_string(size()) + " samples leave none for each of " +
                  std::to_string(options_.ranks) + " ranks");
  if (options_.drop_last && options_.batch_size > cut)
    throw_invalid("[loader] batch size " + std::to_string(options_.batch_size) +
                  " with drop_last leaves no batch of " + std::to_string(cut) + " samples");
  options_.batch_size = std::min(options_.batch_size, cut);
  const int64_t full = cut / options_.batch_size, last = cut % options_.batch_size;
  const auto mine = [&](int64_t rows) {
    return options_.shard ? rows : part_size(rows, options_.rank, options_.ranks);
  };
  batches_ = full + (!options_.drop_last && last != 0);
  batch_rows_ = mine(options_.batch_size);
  rows_ = full * batch_rows_ + mine(last);
  set_ = {x.detach().contiguous_data(), y.detach().contiguous_data()};
}

Epoch Loader::epoch(int64_t e) const {
  if (e < 0) throw_invalid("[loader] epoch " + std::to_string(e) + ", expected 0 or more");
  Order order;
  if (options_.shuffle) {
    order = shuffled(size(), options_.seed, e);
  } else if (options_.ranks > 1) {
    order = sequential(size());
  }
  if (options_.ranks > 1) order = part_of(order, options_);
  return {set_, std::make_shared<const Order>(std::move(order)), rows_, batch_rows_, batches_};
}

double accuracy(const Dataset& set, const std::function<Tensor(const Tensor& x)>& scores,
                int64_t batch_size) {
  NoGradGuard no_grad;
  double right = 0;
  for (const Batch& batch : Loader(set, {.batch_size = batch_size, .shuffle = false}).epoch(0))
    right += ops::eq(ops::argmax(scores(batch.x), 1), batch.y).to(float32).sum().item();
  return right / static_cast<double>(set.size());
}

}  // namespace troupe::datasets
