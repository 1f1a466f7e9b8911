// Loaders: every row once per epoch, in an order that can be had again.
#include "data/datasets/loader.h"
#include "core/tensor/creation.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "core/base/error.h"
#include "core/graph/node.h"

using namespace troupe;

namespace {

// Row i of x is [i, -i], y is i.
datasets::Dataset counting(int64_t n) {
  std::vector<float> x;
  std::vector<int64_t> y;
  for (int64_t i = 0; i < n; ++i)
    x.push_back(static_cast<float>(i)), x.push_back(static_cast<float>(-i)), y.push_back(i);
  return {tensor(x).reshape({n, 2}), tensor(y)};
}

std::vector<int64_t> labels(const datasets::Epoch& epoch) {
  std::vector<int64_t> all;
  for (const datasets::Batch& batch : epoch)
    for (int64_t v : batch.y.to_vector<int64_t>()) all.push_back(v);
  return all;
}

std::string refusal(datasets::Dataset set, datasets::LoaderOptions options) {
  try {
    datasets::Loader loader(std::move(set), options);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::invalid);
    return e.message();
  }
  return {};
}

}  // namespace

TEST_CASE("an epoch gives every row once, x beside its y, in batches", "[data]") {
  const datasets::Loader loader(counting(10), {.batch_size = 4, .seed = 7});
  CHECK(loader.batches() == 3);
  std::set<int64_t> seen;
  int64_t index = 0;
  for (const datasets::Batch& batch : loader.epoch(0)) {
    CHECK(batch.index == index++);
    CHECK(batch.x.shape() == Shape{batch.index < 2 ? 4 : 2, 2});
    CHECK(batch.x.is_contiguous());
    for (int64_t i = 0; i < batch.y.size(0); ++i) {
      const int64_t y = batch.y.data<int64_t>()[i];
      seen.insert(y);
      CHECK(batch.x.data<float>()[2 * i] == static_cast<float>(y));
      CHECK(batch.x.data<float>()[2 * i + 1] == static_cast<float>(-y));
    }
  }
  CHECK(index == 3);
  CHECK(seen.size() == 10);
}

TEST_CASE("each epoch has an order of its own, the same for the same seed", "[data]") {
  const datasets::Loader a(counting(100), {.batch_size = 7, .seed = 1}),
      b(counting(100), {.batch_size = 7, .seed = 1});
  const datasets::Loader other(counting(100), {.batch_size = 7, .seed = 2});
  CHECK(labels(a.epoch(3)) == labels(b.epoch(3)));
  CHECK(labels(a.epoch(3)) == a.epoch(3).order());
  CHECK(labels(a.epoch(0)) != labels(a.epoch(1)));
  CHECK(labels(a.epoch(0)) != labels(other.epoch(0)));
  auto sorted = labels(a.epoch(5));
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == labels(datasets::Loader(counting(100), {.shuffle = false}).epoch(0)));
}

TEST_CASE("a last batch that is not full can be left out", "[data]") {
  const datasets::Loader loader(counting(10), {.batch_size = 4, .shuffle = false, .drop_last = true});
  CHECK(loader.batches() == 2);
  CHECK(labels(loader.epoch(0)) == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(datasets::Loader(counting(10), {.batch_size = 1'000}).batches() == 1);
}

TEST_CASE("batches are copies, of views too, and outlive their loader", "[data]") {
  const datasets::Dataset whole = counting(6);
  const datasets::Batch batch =
      datasets::Loader(datasets::rows(whole, 2, 3), {.batch_size = 2, .shuffle = false}).epoch(0).batch(1);
  CHECK(batch.y.to_vector<int64_t>() == std::vector<int64_t>{4});
  whole.x.fill_(0);
  CHECK(batch.x.to_vector<float>() == std::vector<float>{4, -4});
  CHECK_THROWS_AS(datasets::rows(whole, 4, 3), Error);
}

TEST_CASE("a loader that could give nothing sensible is refused", "[data]") {
  CHECK(refusal(counting(5), {.batch_size = 0}) == "[loader] batch size 0, expected at least 1");
  CHECK(refusal(counting(5), {.batch_size = 6, .drop_last = true}) ==
        "[loader] batch size 6 with drop_last leaves no batch of 5 samples");
  CHECK(refusal(counting(0), {}).find("empty") != std::string::npos);
  CHECK(refusal({counting(4).x, counting(5).y}, {}).find("float32 [4, 2] and int64 [5]") !=
        std::string::npos);
  CHECK(refusal({}, {}).find("undefined tensor") != std::string::npos);
  const datasets::Loader loader(counting(5), {});
  CHECK_THROWS_AS(loader.epoch(-1), Error);
  CHECK_THROWS_AS(loader.epoch(0).batch(1), Error);
}

TEST_CASE("accuracy is the share of labels that have the largest score, and records nothing", "[data]") {
  const datasets::Dataset set{tensor(std::vector<float>{1, 0, 0, 1, 3, 2}).reshape({3, 2}),
                              tensor(std::vector<int64_t>{0, 1, 1})};
  int64_t batches = 0;
  const auto scores = [&](const Tensor& x) {
    CHECK_FALSE(grad_enabled());
    return ++batches, x;
  };
  CHECK(datasets::accuracy(set, scores, 2) == 2.0 / 3);
  CHECK(batches == 2);
}
