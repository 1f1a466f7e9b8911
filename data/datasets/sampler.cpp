// Orders are plain lists, so each step is a function from list to list.
#include "data/datasets/sampler.h"

#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "core/base/generator.h"

namespace troupe::datasets {
namespace {

void check_least(const char* who, const char* what, int64_t got, int64_t least) {
  if (got < least)
    throw_invalid("[" + std::string(who) + "] " + what + " " + std::to_string(got) + ", expected at least " +
                  std::to_string(least));
}

Generator stream(uint64_t seed, int64_t epoch) { return Generator(seed).split(static_cast<uint64_t>(epoch)); }

}  // namespace

Order sequential(int64_t n) {
  check_least("sampler", "number of samples", n, 0);
  Order order(static_cast<size_t>(n));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  return order;
}

Order shuffled(int64_t n, uint64_t seed, int64_t epoch) {
  check_least("sampler", "number of samples", n, 0);
  check_least("sampler", "epoch", epoch, 0);
  return stream(seed, epoch).permutation(n);
}

void detail::check_rank(int64_t rank, int64_t ranks) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    throw_invalid("[shard] rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                  ", expected 0 <= rank < ranks");
}

int64_t part_size(int64_t count, int64_t rank, int64_t ranks) {
  detail::check_rank(rank, ranks);
  return internal::even_size(count, rank, ranks);
}

std::vector<Order> batches(const Order& order, int64_t batch_size, bool drop_last) {
  check_least("batches", "batch size", batch_size, 1);
  const size_t step = static_cast<size_t>(batch_size);
  std::vector<Order> out;
  for (size_t from = 0; from < order.size(); from += std::min(step, order.size() - from)) {
    const size_t count = std::min(step, order.size() - from);
    if (drop_last && count < step) break;
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(from);
    out.emplace_back(first, first + static_cast<std::ptrdiff_t>(count));
  }
  return out;
}

std::vector<Order> length_buckets(const Order& order, const std::vector<int64_t>& lengths,
                                  const BucketOptions& options, int64_t epoch) {
  check_least("length_buckets", "batch size", options.batch_size, 1);
  check_least("length_buckets", "pool", options.pool, 1);
  check_least("length_buckets", "group", options.group, 1);
  check_least("length_buckets", "epoch", epoch, 0);
  for (const int64_t row : order)
    if (row < 0 || row >= static_cast<int64_t>(lengths.size()))
      throw_invalid("[length_buckets] row " + std::to_string(row) + " has no length: there are " +
                    std::to_string(lengths.size()));
  Order kept = order;
  if (options.drop_last) kept.resize(kept.size() - kept.size() % static_cast<size_t>(options.batch_size));

  std::vector<Order> sorted;
  int64_t pooled;
  if (__builtin_mul_overflow(options.batch_size, options.pool, &pooled)) pooled = INT64_MAX;
  for (Order& pool : batches(kept, pooled)) {
    std::stable_sort(pool.begin(), pool.end(), [&](int64_t a, int64_t b) {
      return lengths[static_cast<size_t>(a)] < lengths[static_cast<size_t>(b)];
    });
    for (Order& batch : batches(pool, options.batch_size)) sorted.push_back(std::move(batch));
  }
  // Groups in random order; one that is not full stays at the end, where shard() pads or drops.
  const size_t group =
      static_cast<size_t>(std::min<int64_t>(options.group, static_cast<int64_t>(sorted.size()) + 1));
  const size_t whole = sorted.size() / group;
  std::vector<Order> out;
  out.reserve(sorted.size());
  for (const int64_t g : stream(options.seed, epoch).split(1).permutation(static_cast<int64_t>(whole)))
    for (size_t i = 0; i < group; ++i) out.push_back(std::move(sorted[static_cast<size_t>(g) * group + i]));
  for (size_t i = whole * group; i < sorted.size(); ++i) out.push_back(std::move(sorted[i]));
  return out;
}

}  // namespace troupe::datasets
