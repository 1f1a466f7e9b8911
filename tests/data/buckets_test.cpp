// Batches of samples of similar length.
#include "data/streams/buckets.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/tensor/creation.h"
#include "data/streams/feed.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::datasets;
using Catch::Contains;
using testing::invalid_text;

namespace {

// Sample i has the number n and i * 7919 % 50 ids.
class Lengths final : public datasets::Source {
 public:
  explicit Lengths(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  Sample read(int64_t i) const override { return {{"n", i}, {"ids", full({i * 7919 % 50}, i)}}; }

 private:
  const int64_t size_;
};

Pipeline bucketed(int64_t samples, int64_t rows, bool filters = false) {
  Pipeline out(std::make_shared<const Lengths>(samples));
  out.shuffle({.seed = 1, .block = 1}).bucket("ids", {10, 20, 35}, 8);
  if (filters) out.filter([](const Sample& s) { return *s.at("n").get_if<int64_t>() % 7 != 0; });
  return out.batch(rows, {.pad = {{"ids", 0}}}).repeat(2);
}

using Numbers = std::vector<int64_t>;

Numbers numbers_of(const FedBatch& batch) {
  return batch.rows ? batch.tensor("n").to_vector<int64_t>() : Numbers{};
}

std::vector<Numbers> all_of(Feed& feed) {
  std::vector<Numbers> out;
  while (const auto batch = feed.next()) out.push_back(numbers_of(*batch));
  return out;
}

}  // namespace

TEST_CASE("batches are of one bucket as far as it goes, and each sample comes once", "[data]") {
  const bool filters = GENERATE(false, true);
  const int64_t samples = GENERATE(int64_t{1}, 203, 640);
  Feed feed(bucketed(samples, 4, filters));
  const auto batches = all_of(feed);
  Numbers expected;
  for (int64_t i = 0; i < samples; ++i)
    if (!filters || i % 7) expected.insert(expected.end(), 2, i);
  Numbers got;
  int64_t mixed = 0;
  for (const Numbers& batch : batches) {
    std::set<int64_t> buckets;
    for (const int64_t n : batch) {
      const int64_t length = n * 7919 % 50;
      buckets.insert((length > 10) + (length > 20) + (length > 35));
      got.push_back(n);
    }
    mixed += buckets.size() > 1;
  }
  std::ranges::sort(got);
  CHECK(got == expected);
  // In 8 batches at most 4 x 3 samples fill none of their own: 3 batches.
  CHECK(mixed <= 3 * (2 * samples / 32 + 2));
  if (samples == 640) CHECK(mixed < std::ssize(batches) / 2);
}

TEST_CASE("a feed of buckets goes on from any batch with other ranks and threads", "[data]") {
  const bool filters = GENERATE(false, true);
  const auto pipeline = bucketed(203, 4, filters);
  Feed whole(pipeline);
  const auto batches = all_of(whole);
  for (size_t stop = 0; stop <= batches.size(); stop += 5) {
    Feed before(pipeline);
    for (size_t i = 0; i < stop; ++i) REQUIRE(before.next());
    std::vector<std::unique_ptr<Feed>> ranks;
    const int64_t count = 1 + static_cast<int64_t>(stop) % 3;
    for (int64_t r = 0; r < count; ++r) {
      ranks.push_back(std::make_unique<Feed>(
          pipeline, FeedOptions{.ahead = {.threads = 1 + r}, .rank = r, .ranks = count}));
      ranks.back()->load_state(before.state());
    }
    for (size_t i = stop; i < batches.size(); ++i) {
      Numbers got;
      for (auto& rank : ranks) {
        const auto part = rank->next();
        REQUIRE(part);
        CHECK(part->index == static_cast<int64_t>(i));
        for (const int64_t n : numbers_of(*part)) got.push_back(n);
      }
      CHECK(got == batches[i]);
    }
    for (auto& rank : ranks) CHECK_FALSE(rank->next());
  }
}

TEST_CASE("at its end a feed says how many samples were broken", "[data]") {
  static std::string said;
  said.clear();
  internal::log::set_sink([](internal::log::Level, const std::string& text) { said += text; });
  const auto breaks = [](Sample s) {
    if (*s.at("n").get_if<int64_t>() % 7 == 0) throw_invalid("[mine] broken");
    return s;
  };
  Feed feed(bucketed(70, 4).map(breaks).skip_broken());
  const auto first = feed.next();
  const std::string before = said;
  while (feed.next()) continue;
  internal::log::set_sink(nullptr);
  CHECK((first && before.empty()));
  CHECK_THAT(said, Contains("[stream] 20 broken samples were left out"));
}

TEST_CASE("buckets that cannot be are refused, and so are places of others", "[data]") {
  const auto source = std::make_shared<const Lengths>(20);
  CHECK_THAT(invalid_text([&] { Pipeline(source).bucket("ids", {20, 10}); }), Contains("lengths that rise"));
  CHECK_THAT(invalid_text([&] { Pipeline(source).bucket("ids", {}); }), Contains("lengths that rise"));
  CHECK_THAT(invalid_text([&] { Pipeline(source).pack("ids", 8).bucket("ids", {4}); }),
             Contains("one length"));
  CHECK_THAT(invalid_text([&] { Pipeline(source).bucket("ids", {4}).pack("ids", 8); }),
             Contains("one length"));
  Feed wrong(Pipeline(source).bucket("n", {4}).batch(4));
  CHECK_THAT(
      invalid_text([&] { (void)wrong.next(); }),
      Contains("the field \"n\" of a sample is int64, expected a tensor with a first dimension, or text"));
  Feed feed(bucketed(20, 4)), other(bucketed(20, 5));
  CHECK_THAT(
      invalid_text([&] { other.load_state(feed.state()); }),
      Contains("how buckets are made, were 20, 1, 1, 64, 0, 4, 8, 10, 20, 35, and are 20, 1, 1, 64, 0, 5"));
  for (const auto& place : {std::vector<int64_t>{0, 4, 0, 0}, {0, 0, 8, 0}}) {
    StateDict state = feed.state();
    state["place"] = tensor(place, int64);
    CHECK_THAT(invalid_text([&] { feed.load_state(state); }),
               Contains("expected a batch below 8 behind a multiple of 32 samples"));
  }
  Feed drops(bucketed(203, 4).batch(4, {.drop_last = true, .pad = {{"ids", 0}}}));
  for (const auto& batch : all_of(drops)) CHECK(batch.size() == 4);
}
