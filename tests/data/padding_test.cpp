// Sequences of different lengths in one batch.
#include "data/datasets/padding.h"
#include "core/tensor/creation.h"

#include <catch2/catch.hpp>

#include "tests/support/error_of.h"

using namespace troupe;
using troupe::testing::invalid_text;
using Ids = std::vector<int64_t>;

namespace {
void has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}
}  // namespace

TEST_CASE("sequences are filled up to the longest", "[data][padding]") {
  const std::vector<Tensor> sequences{tensor({1, 2}), tensor({3}), zeros({0}, int64), tensor({4, 5, 6})};
  CHECK(datasets::lengths(sequences) == Ids{2, 1, 0, 3});
  datasets::Padded p = datasets::pad(sequences, {.value = -1});
  CHECK(p.values.summary() == "int64 [4, 3]");
  CHECK(p.values.to_vector<int64_t>() == Ids{1, 2, -1, 3, -1, -1, -1, -1, -1, 4, 5, 6});
  CHECK(p.lengths.to_vector<int64_t>() == Ids{2, 1, 0, 3});
  CHECK(p.mask.summary() == "bool [4, 3]");
  CHECK(p.mask.to_vector<int64_t>() == Ids{1, 1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1});
  p = datasets::pad_rows(sequences, datasets::Order{1, 0});
  CHECK(p.values.to_vector<int64_t>() == Ids{3, 0, 1, 2});
  p = datasets::pad_rows(sequences, datasets::Order{3}, {.longest = 5});
  CHECK(p.values.to_vector<int64_t>() == Ids{4, 5, 6, 0, 0});
  p = datasets::pad_rows(sequences, datasets::Order{3, 1}, {.longest = 2, .cut = true});
  CHECK(p.values.to_vector<int64_t>() == Ids{4, 5, 3, 0});
  CHECK(p.lengths.to_vector<int64_t>() == Ids{2, 1});
  CHECK(datasets::pad_rows(sequences, datasets::Order{2}).values.summary() == "int64 [1, 0]");
}

TEST_CASE("sequences of vectors are padded, views too", "[data][padding]") {
  const Tensor a = tensor({{1, 2}, {3, 4}}, float32);
  const Tensor turned = a.alias({2, 2}, {1, 2}, 0);
  const datasets::Padded p = datasets::pad({turned, tensor({{5, 6}}, float32)}, {.value = .5});
  CHECK(p.values.shape() == Shape{2, 2, 2});
  CHECK(p.values.to_vector<float>() == std::vector<float>{1, 3, 2, 4, 5, 6, .5f, .5f});
  CHECK(datasets::pad({zeros({2, 0})}).values.summary() == "float32 [1, 2, 0]");
}

TEST_CASE("what cannot be one batch is refused", "[data][padding]") {
  const std::vector<Tensor> sequences{tensor({1, 2}, float32), tensor({1}), zeros({1, 2}), tensor(1.0),
                                      Tensor()};
  auto text = [&](const datasets::Order& rows, const datasets::PadOptions& options = {}) {
    return invalid_text([&] { datasets::pad_rows(sequences, rows, options); });
  };
  has(text({}), "no sequences");
  has(text({0, 1}), "sequence 1 is int64 [1], expected it to be like float32 [2] but for its length");
  has(text({0, 2}), "sequence 2 is float32 [1, 2]");
  has(text({3}), "sequence 3 is float32 [], expected [length, ...]");
  has(text({4}), "undefined tensor");
  has(text({5}), "row 5 asked for, there are 5");
  has(text({-1}), "row -1");
  has(text({0}, {.longest = 1}), "sequence 0 has the length 2, expected at most 1");
  has(text({0}, {.longest = -1}), "longest -1");
  has(text({1}, {.value = .5}), "cannot fill int64");
}
