// Feeds of pipelines, places and readers that are out of the ordinary.
#include <catch2/catch.hpp>
#include <limits>
#include <memory>
#include <utility>

#include "core/tensor/creation.h"
#include "data/streams/feed.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::datasets;
using Catch::Contains;
using troupe::testing::invalid_text;

namespace {

// Sample i has the number n and i % 5 + 1 ids.
class Counted final : public datasets::Source {
 public:
  explicit Counted(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  Sample read(int64_t i) const override { return {{"n", i}, {"ids", full({i % 5 + 1}, i)}}; }

 private:
  const int64_t size_;
};

Pipeline counted(int64_t n) { return Pipeline(std::make_shared<const Counted>(n)); }

int64_t number(const Sample& s) { return *s.at("n").get_if<int64_t>(); }

// Its first answers come between the question and whoever looks whether they are there.
class ComesAtOnce final : public datasets::detail::Reading {
 public:
  explicit ComesAtOnce(std::unique_ptr<datasets::detail::Reading> from) : from_(std::move(from)) {}
  void begin(const datasets::detail::FeedPlace& from) override { from_->begin(from); }
  std::optional<datasets::detail::Chunk> next() override {
    if (!std::exchange(waited_, false)) throw_invalid("[mine] it would wait");
    return from_->next();
  }
  std::optional<Future<void>> ready() override {
    if (waited_) return {};
    waited_ = true;
    return Future<void>::ready({});
  }

 private:
  const std::unique_ptr<datasets::detail::Reading> from_;
  bool waited_ = false;
};

}  // namespace

TEST_CASE("a place that is none is refused", "[data]") {
  Feed feed(counted(8).shuffle({.seed = 1}));
  const auto loading = [&](const std::vector<int64_t>& place) {
    StateDict state = feed.state();
    state["place"] = tensor(place, int64);
    return invalid_text([&] { feed.load_state(state); });
  };
  for (const auto& place : {std::vector<int64_t>{-1, 0, 0, 0}, {0, -4, 0, 0}, {0, 9, 0, 0}, {0, 0, -1, 0}})
    CHECK_THAT(loading(place), Contains("expected 0 or more, and at most sample 8; load what state()"));
  CHECK_THAT(loading({0, 0, 0, -1}), Contains("the place is batch -1: expected 0 or more"));
  for (int i = 0; i < 8; ++i) CHECK(feed.next());  // it is where it was
  CHECK_FALSE(feed.next());
  StateDict behind = feed.state();
  behind["place"] = tensor(std::vector<int64_t>{std::numeric_limits<int64_t>::max(), 8, 0, 0}, int64);
  feed.load_state(behind);
  CHECK_FALSE(feed.next());
}

TEST_CASE("batches may be larger than all that can be counted", "[data]") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const bool drops = GENERATE(false, true);
  const auto named = [](Sample s) { return Sample{{"n", s.at("n")}, {"text", std::string("abc")}}; };
  const auto all = counted(8).map(named);
  for (Pipeline pipeline : {all, Pipeline(all).filter([](const Sample&) { return true; }),
                            Pipeline(all).bucket("text", {2}, 1)}) {
    Feed feed(pipeline.batch(kMost, {.drop_last = drops}).repeat(2));
    for (int epoch = 0; epoch < (drops ? 0 : 2); ++epoch) {
      const auto batch = feed.next();
      REQUIRE(batch);
      CHECK(batch->rows == 8);
    }
    CHECK_FALSE(feed.next());
  }
}

TEST_CASE("a sample that cannot be packed ends the feed behind the rows before it", "[data]") {
  const auto without = [](Sample s) {
    if (number(s) == 20) s.erase("ids");
    return s;
  };
  const auto pipeline = counted(40).pack("ids", 3);
  Feed whole(pipeline), feed(counted(40).map(without).pack("ids", 3));
  for (int row = 0; row < 20; ++row) {  // of 60 ids of the first 20 samples
    const auto batch = feed.next(), expected = whole.next();
    REQUIRE((batch && expected));
    CHECK(batch->tensor("ids").to_vector<int64_t>() == expected->tensor("ids").to_vector<int64_t>());
  }
  CHECK_FALSE(feed.arrival());
  for (int i = 0; i < 3; ++i)
    CHECK_THAT(invalid_text([&] { (void)feed.next(); }), Contains("a sample is not there"));
  // It goes on from its place, and comes to the sample again.
  Feed again(pipeline);
  again.load_state(feed.state());
  const auto batch = again.next(), expected = whole.next();
  REQUIRE((batch && expected));
  CHECK(batch->tensor("ids").to_vector<int64_t>() == expected->tensor("ids").to_vector<int64_t>());
  feed.load_state(feed.state());
  CHECK_THAT(invalid_text([&] { (void)feed.next(); }), Contains("a sample is not there"));
}

TEST_CASE("next() never waits for readers where arrival() has nothing", "[data]") {
  // Of some chunks nothing is left.
  auto pipeline = counted(100).filter([](const Sample& s) { return number(s) > 40; });
  Feed feed(pipeline, {.readers = [](auto reader, const auto& ahead) {
              return std::make_unique<ComesAtOnce>(datasets::detail::read_here(reader, ahead));
            }});
  std::vector<int64_t> got;
  int arrivals = 0;
  for (;;) {
    while (feed.arrival()) ++arrivals;
    const auto batch = feed.next();
    if (!batch) break;
    got.push_back(batch->tensor("n").item<int64_t>());
  }
  CHECK((got.size() == 59 && got.front() == 41 && got.back() == 99));
  CHECK(arrivals == 8);  // seven chunks of 16, and their end
}
