// Samplers: disjoint covers of the set, the same for the same seed, of similar lengths where asked for.
#include "data/datasets/sampler.h"
#include "core/tensor/creation.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <set>

#include "core/base/generator.h"
#include "data/datasets/loader.h"
#include "tests/support/error_of.h"

using namespace troupe;
using datasets::Order;
using datasets::Uneven;
using troupe::testing::invalid_text;

namespace {

void has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}
Order sorted(Order order) {
  std::sort(order.begin(), order.end());
  return order;
}
Order flat(const std::vector<Order>& batches) {
  Order all;
  for (const Order& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}
datasets::Dataset counting(int64_t n) {
  std::vector<float> x(static_cast<size_t>(n));
  std::iota(x.begin(), x.end(), 0.0f);
  return {tensor(x).reshape({n, 1}), tensor(datasets::sequential(n))};
}
Order labels(const datasets::Epoch& epoch) {
  Order all;
  for (const datasets::Batch& batch : epoch)
    for (int64_t v : batch.y.to_vector<int64_t>()) all.push_back(v);
  return all;
}

}  // namespace

TEST_CASE("a shuffled order has every row, differs by epoch and seed, and repeats", "[data][sampler]") {
  CHECK(datasets::sequential(4) == Order{0, 1, 2, 3});
  const Order a = datasets::shuffled(50, 3, 0);
  CHECK(sorted(a) == datasets::sequential(50));
  CHECK(a == datasets::shuffled(50, 3, 0));
  CHECK(a != datasets::shuffled(50, 3, 1));
  CHECK(a != datasets::shuffled(50, 4, 0));
  CHECK(datasets::shuffled(0, 3, 0).empty());
  has(invalid_text([] { datasets::sequential(-1); }), "number of samples -1");
  has(invalid_text([] { datasets::shuffled(3, 0, -1); }), "epoch -1");
}

TEST_CASE("shards are disjoint, cover the whole and are of one length", "[data][sampler]") {
  for (int64_t n : {0, 1, 2, 5, 6, 7, 23})
    for (int64_t ranks : {1, 2, 3, 7, 10}) {
      INFO(n << " samples, " << ranks << " ranks");
      const Order whole = datasets::shuffled(n, 1, 0);
      std::map<int64_t, int> padded, dropped;
      for (int64_t r = 0; r < ranks; ++r) {
        const Order pad = datasets::shard(whole, r, ranks),
                    drop = datasets::shard(whole, r, ranks, Uneven::drop);
        CHECK(static_cast<int64_t>(pad.size()) == (n + ranks - 1) / ranks);
        CHECK(static_cast<int64_t>(drop.size()) == n / ranks);
        for (int64_t row : pad) ++padded[row];
        for (int64_t row : drop) ++dropped[row];
      }
      CHECK(static_cast<int64_t>(padded.size()) == n);
      const int64_t extra = n == 0 ? 0 : (n + ranks - 1) / ranks * ranks - n;
      int64_t repeats = 0;
      for (const auto& [row, times] : padded) repeats += times - 1;
      CHECK(repeats == extra);
      CHECK(static_cast<int64_t>(dropped.size()) == n / ranks * ranks);
      for (const auto& [row, times] : dropped) CHECK(times == 1);
    }
  CHECK(datasets::shard(Order{5, 6, 7, 8, 9}, 1, 2) == Order{6, 8, 5});
  has(invalid_text([] { datasets::shard(Order{1}, 2, 2); }), "rank 2 of 2, expected 0 <= rank < ranks");
  has(invalid_text([] { datasets::shard(Order{1}, 0, 0); }), "rank 0 of 0");
}

TEST_CASE("batches cut an order", "[data][sampler]") {
  CHECK(datasets::batches({3, 1, 2}, 2) == std::vector<Order>{{3, 1}, {2}});
  CHECK(datasets::batches({3, 1, 2}, 2, true) == std::vector<Order>{{3, 1}});
  CHECK(datasets::batches({3, 1}, INT64_MAX) == std::vector<Order>{{3, 1}});
  CHECK(datasets::batches({}, 2).empty());
  has(invalid_text([] { datasets::batches({1}, 0); }), "batch size 0, expected at least 1");
}

TEST_CASE("buckets hold similar lengths, cover the order and repeat", "[data][sampler]") {
  Generator random(2);
  std::vector<int64_t> lengths;
  for (int i = 0; i < 1000; ++i) lengths.push_back(1 + static_cast<int64_t>(random.below(100)));
  const Order order = datasets::shuffled(1000, 9, 0);
  const datasets::BucketOptions options{.batch_size = 16, .pool = 20, .seed = 9};
  const auto buckets = datasets::length_buckets(order, lengths, options, 0);
  CHECK(sorted(flat(buckets)) == datasets::sequential(1000));
  CHECK(buckets == datasets::length_buckets(order, lengths, options, 0));
  CHECK(buckets != datasets::length_buckets(order, lengths, options, 1));
  const auto padding = [&](const std::vector<Order>& batches) {
    int64_t sum = 0;
    for (const Order& batch : batches) {
      int64_t longest = 0;
      for (int64_t row : batch) longest = std::max(longest, lengths[static_cast<size_t>(row)]);
      for (int64_t row : batch) sum += longest - lengths[static_cast<size_t>(row)];
    }
    return sum;
  };
  CHECK(padding(buckets) * 5 < padding(datasets::batches(order, 16)));
  // The first batches are not all short: their order is drawn.
  std::vector<int64_t> firsts;
  for (const Order& batch : buckets) firsts.push_back(lengths[static_cast<size_t>(batch[0])]);
  CHECK(!std::is_sorted(firsts.begin(), firsts.end()));

  CHECK(datasets::length_buckets({}, {}, options, 0).empty());
  const auto dropped =
      datasets::length_buckets(order, lengths, {.batch_size = 16, .pool = 20, .drop_last = true}, 0);
  CHECK(dropped.size() == 1000 / 16);
  for (const Order& batch : dropped) CHECK(batch.size() == 16);
  has(invalid_text([&] {
        datasets::length_buckets({0, 3}, {1, 2}, options, 0);
      }),
      "row 3 has no length: there are 2");
  has(invalid_text([&] { datasets::length_buckets({-1}, {1}, options, 0); }), "row -1");
  has(invalid_text([&] { datasets::length_buckets({0}, {1}, {.pool = 0}, 0); }),
      "pool 0, expected at least 1");
}

TEST_CASE("in every round all ranks have batches of about the same length", "[data][sampler]") {
  std::vector<int64_t> lengths(256);
  std::iota(lengths.begin(), lengths.end(), 0);
  const datasets::BucketOptions options{.batch_size = 8, .group = 4, .seed = 1};
  const auto buckets = datasets::length_buckets(datasets::shuffled(256, 1, 0), lengths, options, 0);
  REQUIRE(buckets.size() == 32);
  for (size_t round = 0; round < 8; ++round) {
    Order all;
    for (int64_t r = 0; r < 4; ++r) {
      const Order batch = datasets::shard(buckets, r, 4)[round];
      all.insert(all.end(), batch.begin(), batch.end());
    }
    all = sorted(all);  // rows are lengths here: 32 in a row
    CHECK(all.back() - all.front() == 31);
  }
}

TEST_CASE("parts of a batch follow each other, each at most one longer than another", "[data][sampler]") {
  for (int64_t n : {0, 1, 2, 5, 6, 7, 23})
    for (int64_t ranks : {1, 2, 3, 7, 10}) {
      INFO(n << " items, " << ranks << " ranks");
      const Order whole = datasets::shuffled(n, 1, 0);
      std::vector<Order> parts;
      for (int64_t r = 0; r < ranks; ++r) {
        parts.push_back(datasets::part(whole, r, ranks));
        CHECK(static_cast<int64_t>(parts.back().size()) == datasets::part_size(n, r, ranks));
        CHECK(parts.back().size() <= parts.front().size());
        CHECK(parts.back().size() + 1 >= parts.front().size());
      }
      CHECK(flat(parts) == whole);
    }
  CHECK(datasets::part(Order{5, 6, 7, 8, 9}, 1, 3) == Order{7, 8});
  has(invalid_text([] { datasets::part(Order{1}, 2, 2); }), "rank 2 of 2, expected 0 <= rank < ranks");
  has(invalid_text([] { datasets::part_size(1, 0, 0); }), "rank 0 of 0");
}

TEST_CASE("ranks have the rows of each batch between them, as one loader has them", "[data][sampler]") {
  for (const int64_t n : {1, 2, 10, 12, 13})
    for (const int64_t ranks : {2, 3, 5})
      for (const bool shuffle : {false, true})
        for (const bool drop_last : {false, true}) {
          INFO(n << " rows, " << ranks << " ranks" << (shuffle ? ", shuffled" : "")
                 << (drop_last ? ", without a last batch that is not full" : ""));
          datasets::LoaderOptions options{
              .batch_size = std::min<int64_t>(n, 4), .shuffle = shuffle, .seed = 4, .drop_last = drop_last};
          const datasets::Loader one(counting(n), options);
          std::vector<datasets::Epoch> epochs;
          int64_t rows = 0;
          options.ranks = ranks;
          for (options.rank = 0; options.rank < ranks; ++options.rank) {
            const datasets::Loader loader(counting(n), options);
            CHECK(loader.batches() == one.batches());
            rows += loader.rows();
            epochs.push_back(loader.epoch(2));
            CHECK(epochs.back().batches() == one.batches());
            const Order mine = labels(epochs.back());
            CHECK(std::equal(mine.begin(), mine.end(), epochs.back().order().begin()));
          }
          CHECK(rows == one.rows());
          const datasets::Epoch whole = one.epoch(2);
          for (int64_t b = 0; b < one.batches(); ++b) {
            Order together;
            for (int64_t r = 0; r < ranks; ++r) {
              const datasets::Batch batch = epochs[static_cast<size_t>(r)].batch(b);
              const auto y = batch.y.to_vector<int64_t>();
              CHECK(batch.index == b);
              CHECK(batch.x.shape() == Shape{static_cast<int64_t>(y.size()), 1});
              CHECK(static_cast<int64_t>(y.size()) ==
                    datasets::part_size(whole.batch(b).y.numel(), r, ranks));
              for (size_t i = 0; i < y.size(); ++i)
                CHECK(batch.x.to_vector<float>()[i] == static_cast<float>(y[i]));
              together.insert(together.end(), y.begin(), y.end());
            }
            CHECK(together == whole.batch(b).y.to_vector<int64_t>());
          }
        }
}

TEST_CASE("a loader gives each rank a shard, if it is told how", "[data][sampler]") {
  std::set<int64_t> seen;
  for (int64_t r = 0; r < 3; ++r) {
    const datasets::Loader loader(counting(10),
                                  {.batch_size = 3, .seed = 4, .rank = r, .ranks = 3, .shard = Uneven::pad});
    CHECK(loader.batches() == 2);  // four rows, two of them seen elsewhere too
    const Order mine = labels(loader.epoch(2));
    CHECK(mine == datasets::shard(datasets::shuffled(10, 4, 2), r, 3));
    seen.insert(mine.begin(), mine.end());
  }
  CHECK(seen.size() == 10);
  datasets::LoaderOptions options{
      .batch_size = 2, .shuffle = false, .rank = 1, .ranks = 3, .shard = Uneven::drop};
  CHECK(labels(datasets::Loader(counting(11), options).epoch(0)) == Order{1, 4, 7});
  options.drop_last = true;
  CHECK(labels(datasets::Loader(counting(11), options).epoch(0)) == Order{1, 4});
  has(invalid_text([&] { datasets::Loader(counting(2), options); }),
      "2 samples leave none for each of 3 ranks");
  options.batch_size = 4;
  has(invalid_text([&] { datasets::Loader(counting(11), options); }),
      "with drop_last leaves no batch of 3 samples");
  options.rank = 3;
  has(invalid_text([&] { datasets::Loader(counting(11), options); }), "rank 3 of 3");
}
