// Shapes: lists of sizes in place, their product, strides, axes and broadcasting.
#include "core/tensor/shape.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::testing;

namespace {
constexpr int64_t kHuge = int64_t{1} << 40;
}

TEST_CASE("a shape holds up to eight sizes and says so beyond") {
  CHECK(Shape{}.rank() == 0);
  CHECK(Shape{}.empty());
  CHECK(Shape{}.str() == "[]");
  const Shape s{3, 0, 5};
  CHECK(s.rank() == 3);
  CHECK(s[2] == 5);
  CHECK(s.back() == 5);
  CHECK(s.str() == "[3, 0, 5]");
  CHECK(Shape::filled(8, 2) == Shape{2, 2, 2, 2, 2, 2, 2, 2});
  const std::vector<int64_t> nine(9, 1);
  CHECK(invalid_text([&] { Shape{std::span<const int64_t>(nine)}; }) ==
        "[shape] 9 dimensions; a tensor has at most 8");
  CHECK(invalid_text([] { Shape::filled(9, 1); }) == "[shape] a tensor has at most 8 dimensions");
}

TEST_CASE("sizes can be added and taken away anywhere") {
  Shape s{3, 4};
  s.push_back(5);
  s.insert(0, 2);
  s.insert(2, 9);
  CHECK(s == Shape{2, 3, 9, 4, 5});
  s.erase(4);
  s.erase(0);
  s.erase(1);
  CHECK(s == Shape{3, 4});
  CHECK(s != Shape{3});
  CHECK(s != Shape{3, 5});
  CHECK(s != Shape{3, 4, 1});
}

TEST_CASE("the number of elements is the product of the sizes, and never wraps around") {
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{2, 3, 4}.numel() == 24);
  CHECK(Shape{2, 0, 4}.numel() == 0);
  CHECK(Shape{kHuge, kHuge, 0}.numel() == 0);
  CHECK(Shape{0, kHuge, kHuge}.numel() == 0);
  CHECK(invalid_text([] {
          Shape{kHuge, kHuge}.numel();
        }) == "[shape] [1099511627776, 1099511627776] has more elements than can be counted");
}

TEST_CASE("contiguous strides are row-major and treat a size of zero as one") {
  CHECK(Shape{}.contiguous_strides() == Shape{});
  CHECK(Shape{2, 3, 4}.contiguous_strides() == Shape{12, 4, 1});
  CHECK(Shape{2, 0, 4}.contiguous_strides() == Shape{4, 4, 1});
}

TEST_CASE("an axis counts from either end") {
  const Shape s{2, 3, 4};
  CHECK(s.axis(0, "op") == 0);
  CHECK(s.axis(2, "op") == 2);
  CHECK(s.axis(-1, "op") == 2);
  CHECK(s.axis(-3, "op") == 0);
  CHECK(Shape{}.axis(-1, "op") == 0);
  for (const int64_t bad : {int64_t{3}, int64_t{-4}, INT64_MIN, INT64_MAX})
    CHECK(invalid_text([&] { s.axis(bad, "softmax"); }) ==
          "[softmax] dimension " + std::to_string(bad) + " is out of range for shape [2, 3, 4]");
}

TEST_CASE("broadcasting stretches sizes of one, from the right") {
  CHECK(broadcast({2, 3}, {3}, "add") == Shape{2, 3});
  CHECK(broadcast({3}, {2, 1}, "add") == Shape{2, 3});
  CHECK(broadcast({}, {2, 3}, "add") == Shape{2, 3});
  CHECK(broadcast({1, 3}, {0, 1}, "add") == Shape{0, 3});
  CHECK(broadcast({5, 1, 4}, {6, 1}, "add") == Shape{5, 6, 4});
  CHECK(invalid_text([] {
          broadcast({2, 3}, {4}, "add");
        }) == "[add] shapes do not broadcast: [2, 3] and [4]");
  CHECK(invalid_text([] { broadcast({0}, {2}, "add"); }) == "[add] shapes do not broadcast: [0] and [2]");
}
