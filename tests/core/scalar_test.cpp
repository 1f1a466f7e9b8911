// Numbers as they were written, how elements convert, and which dtype holds two.
#include "core/tensor/scalar.h"
#include "core/tensor/creation.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "core/tensor/elements.h"
#include "tests/support/error_of.h"

using namespace troupe;

namespace {

using Catch::Contains;
using testing::text_of;

TEST_CASE("a Scalar keeps every number exactly, and its kind") {
  CHECK(Scalar(true).dtype() == boolean);
  CHECK(Scalar('a').dtype() == int64);
  CHECK(Scalar(2u).dtype() == int64);
  CHECK(Scalar(2.0f).dtype() == float64);
  constexpr int64_t kLarge = (int64_t{1} << 53) + 1;
  CHECK(Scalar(kLarge).to<int64_t>() == kLarge);
  CHECK((-Scalar(kLarge)).to<int64_t>() == -kLarge);
  CHECK(Scalar(uint64_t{INT64_MAX}).to<int64_t>() == INT64_MAX);
  CHECK(text_of([] { Scalar s(uint64_t{INT64_MAX} + 1); }) ==
        "[scalar] 9223372036854775808 is beyond the largest int64, 9223372036854775807; use a double, or a "
        "smaller number");
  CHECK(Scalar(kLarge).str() == "9007199254740993");
  CHECK(Scalar(0.1).str() == "0.1");
  CHECK(Scalar(false).str() == "false");
}

TEST_CASE(
    "elements convert as in PyTorch: fractions are cut, integers wrap, what does not fit is the smallest") {
  const double nan = std::nan("");
  CHECK(convert<bool>(0.5));
  CHECK(convert<bool>(nan));
  CHECK(convert<bool>(Float16(-0.0f)) == false);
  CHECK(convert<bool>(256));
  CHECK(convert<int64_t>(-2.9) == -2);
  CHECK(convert<int64_t>(nan) == INT64_MIN);
  CHECK(convert<int64_t>(1e20f) == INT64_MIN);
  CHECK(convert<int32_t>(3e9) == INT32_MIN);
  CHECK(convert<int32_t>(-2147483648.9) == INT32_MIN);
  CHECK(convert<int32_t>(int64_t{1} << 32 | 7) == 7);
  CHECK(convert<uint8_t>(-1.0) == 255);
  CHECK(convert<uint8_t>(300.7f) == 44);
  CHECK(convert<uint8_t>(nan) == 0);
  CHECK(static_cast<float>(convert<BFloat16>(int64_t{3})) == 3);
}

TEST_CASE("numbers that a dtype cannot hold are refused where they are stored") {
  CHECK(Scalar(-1).fits(uint8));
  CHECK(Scalar(-255).fits(uint8));
  CHECK_FALSE(Scalar(256).fits(uint8));
  CHECK_FALSE(Scalar(-1.0).fits(uint8));
  CHECK_FALSE(Scalar(std::nan("")).fits(int64));
  CHECK_FALSE(Scalar(0x1p63).fits(int64));
  CHECK(Scalar(0.5).fits(int64));
  CHECK_FALSE(Scalar(int64_t{1} << 40).fits(int32));
  CHECK(Scalar(1e300).fits(float64));
  CHECK_FALSE(Scalar(1e300).fits(float32));
  CHECK_FALSE(Scalar(100000).fits(float16));
  CHECK(Scalar(HUGE_VAL).fits(float16));
  CHECK(Scalar(7).fits(boolean));
  CHECK(text_of([] { full({2}, 300, uint8); }) == "[full] 300 is beyond what uint8 holds; use another dtype");
  const Tensor t = ones({2}, int64);
  CHECK_THAT(text_of([&] { require_fits(std::nan(""), t.dtype(), "fill_"); }),
             Contains("[fill_] nan is beyond what int64 holds"));
  fill_elements(t, (int64_t{1} << 53) + 1);
  CHECK(t.to_vector<int64_t>()[0] == (int64_t{1} << 53) + 1);
}

TEST_CASE("two dtypes meet in the smallest that holds both, and the halves meet in float32") {
  const DType order[] = {boolean, uint8, int32, int64, bfloat16, float32, float64};
  for (size_t i = 0; i < std::size(order); ++i)
    for (size_t j = 0; j < std::size(order); ++j)
      CHECK(promote_types(order[i], order[j]) == order[std::max(i, j)]);
  CHECK(promote_types(float16, bfloat16) == float32);
  CHECK(promote_types(float16, int64) == float16);
  CHECK(promote_types(float32, float16) == float32);
}

TEST_CASE("int32 and uint8 are stored, copied and read") {
  const Tensor i = tensor({-1, 7}, int32), u = tensor({255, 7}, uint8);
  CHECK(i.summary() == "int32 [2]");
  CHECK(i.nbytes() == 8);
  CHECK(u.nbytes() == 2);
  const Tensor both = zeros({2}, uint8);
  copy_elements(both, i);
  CHECK(bit_equal(both, u));
  CHECK(i.to_vector<int64_t>() == std::vector<int64_t>{-1, 7});
  CHECK(u.to_vector<double>() == std::vector<double>{255, 7});
  CHECK_THAT(text_of([&] { i.data<int64_t>(); }),
             Contains("asked for as int64, but the tensor is int32 [2]"));
}

}  // namespace
