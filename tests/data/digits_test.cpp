// Digits that the program draws: the same for a seed, balanced, in range, each different.
#include "data/datasets/digits.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "data/datasets/glyphs.h"

using namespace troupe;

TEST_CASE("drawn digits are the same for a seed, and a smaller set begins a larger one", "[data]") {
  const datasets::Dataset a = datasets::generated_digits(130, 3), b = datasets::generated_digits(130, 3);
  const datasets::Dataset other = datasets::generated_digits(130, 4),
                          fewer = datasets::generated_digits(25, 3);
  CHECK(a.x.summary() == "float32 [130, 784]");
  CHECK(a.y.summary() == "int64 [130]");
  CHECK(bit_equal(a.x, b.x));
  CHECK(bit_equal(a.y, b.y));
  CHECK_FALSE(bit_equal(a.x, other.x));
  CHECK(bit_equal(datasets::rows(a, 0, 25).x, fewer.x));
  CHECK(bit_equal(datasets::rows(a, 0, 25).y, fewer.y));
  CHECK_THROWS_AS(datasets::generated_digits(0, 1), Error);
}

TEST_CASE("every ten drawn digits hold each digit once", "[data]") {
  const std::vector<int64_t> y = datasets::generated_digits(200, 9).y.to_vector<int64_t>();
  bool same_order = true;
  for (size_t i = 0; i < y.size(); i += 10) {
    std::vector<int64_t> ten(y.begin() + static_cast<long>(i), y.begin() + static_cast<long>(i) + 10);
    same_order &= std::equal(ten.begin(), ten.end(), y.begin());
    std::sort(ten.begin(), ten.end());
    CHECK(ten == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  }
  CHECK_FALSE(same_order);
}

TEST_CASE("drawn pixels are in [0, 1], with ink in the middle and little at the border", "[data]") {
  const datasets::Dataset set = datasets::generated_digits(500, 1);
  const float* x = set.x.data<float>();
  double border = 0;
  for (int64_t n = 0; n < set.size(); ++n) {
    double ink = 0;
    for (int i = 0; i < 28; ++i)
      for (int j = 0; j < 28; ++j) {
        const float v = x[n * 784 + i * 28 + j];
        REQUIRE((v >= 0 && v <= 1));
        ink += v;
        if (i == 0 || j == 0 || i == 27 || j == 27) border += v;
      }
    CHECK(ink > 20);   // something is drawn
    CHECK(ink < 350);  // and it is no blot
  }
  CHECK(border / (500 * 108) < 0.05);
}

TEST_CASE("no two drawn digits are alike, and the same digit differs less than others do", "[data]") {
  const datasets::Dataset set = datasets::generated_digits(300, 2);
  const float* x = set.x.data<float>();
  const int64_t* y = set.y.data<int64_t>();
  double same = 0, other = 0, nearest = 1e9;
  int64_t same_count = 0, other_count = 0;
  for (int64_t a = 0; a < set.size(); ++a)
    for (int64_t b = 0; b < a; ++b) {
      double d = 0;
      for (int64_t k = 0; k < 784; ++k) d += std::pow(x[a * 784 + k] - x[b * 784 + k], 2);
      nearest = std::min(nearest, d);
      (y[a] == y[b] ? same : other) += d;
      ++(y[a] == y[b] ? same_count : other_count);
    }
  CHECK(nearest > 1);
  CHECK(same / static_cast<double>(same_count) < other / static_cast<double>(other_count));
}

TEST_CASE("every digit has several ways of being written, inside its box", "[data]") {
  for (int digit = 0; digit < 10; ++digit) {
    CHECK(datasets::glyphs(digit).size() >= 3);
    for (const datasets::Glyph& glyph : datasets::glyphs(digit))
      for (const datasets::Stroke& stroke : glyph) {
        CHECK(stroke.points.size() >= 2);
        for (const datasets::Point& p : stroke.points)
          CHECK((p.x > 0.1f && p.x < 0.9f && p.y >= 0 && p.y <= 1));
      }
  }
}
