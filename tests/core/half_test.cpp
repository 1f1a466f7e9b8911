// bfloat16 and float16: every value there is, and rounding at and beside every border between two of them.
#include "core/tensor/half.h"
#include "core/tensor/creation.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "core/tensor/elements.h"
#include "tests/support/error_of.h"

using namespace troupe;

namespace {

// Value of sign, exponent and fraction by the definition of IEEE 754.
double value(uint32_t bits, int exponent_bits, int fraction_bits) {
  const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double fraction = bits & ((1u << fraction_bits) - 1);
  const double sign = bits >> (exponent_bits + fraction_bits) ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(1 + std::ldexp(fraction, -fraction_bits), exponent - bias);
}

template <class T>
T of_bits(uint32_t bits) {
  T x;
  x.bits = static_cast<uint16_t>(bits);
  return x;
}

template <class T>
void check_all(int exponent_bits, int fraction_bits) {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double expected = value(bits, exponent_bits, fraction_bits);
    const float got = of_bits<T>(bits);
    if (std::isnan(expected)) {
      wrong += !std::isnan(got) || !std::isnan(static_cast<float>(T(got)));
      wrong += T(got).bits >> 15 != bits >> 15;
    } else {
      wrong += got != expected || std::signbit(got) != std::signbit(expected);
      wrong += T(got).bits != bits;
    }
  }
  CHECK(wrong == 0);
}

// Between every two neighbours, infinity included: the middle goes to the even one, what is beside it to the
// nearer one.
template <class T>
void check_rounding(uint32_t infinity, int exponent_bits, int fraction_bits) {
  int wrong = 0;
  for (uint32_t low = 0; low < infinity; ++low) {
    const double a = value(low, exponent_bits, fraction_bits);
    const double b = low + 1 < infinity
                         ? value(low + 1, exponent_bits, fraction_bits)
                         : a + (a - value(low - 1, exponent_bits, fraction_bits));  // where it would go on
    const float middle = static_cast<float>((a + b) / 2);
    const uint32_t even = low % 2 ? low + 1 : low;
    for (const float sign : {1.f, -1.f}) {
      const uint32_t top = sign < 0 ? 0x8000 : 0;
      wrong += T(sign * middle).bits != (top | even);
      wrong += T(sign * std::nextafterf(middle, 0)).bits != (top | low);
      wrong += T(sign * std::nextafterf(middle, HUGE_VALF)).bits != (top | (low + 1));
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("every bfloat16 has its value as a float, and comes back from it", "[half]") {
  check_all<BFloat16>(8, 7);
}
TEST_CASE("every float16 has its value as a float, and comes back from it", "[half]") {
  check_all<Float16>(5, 10);
}
TEST_CASE("floats become the nearest bfloat16, ties to even", "[half]") {
  check_rounding<BFloat16>(0x7f80, 8, 7);
}
TEST_CASE("floats become the nearest float16, ties to even", "[half]") {
  check_rounding<Float16>(0x7c00, 5, 10);
}

TEST_CASE("special floats become what they are", "[half]") {
  const float inf = HUGE_VALF, nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(BFloat16(inf).bits == 0x7f80);
  CHECK(BFloat16(-inf).bits == 0xff80);
  CHECK(Float16(inf).bits == 0x7c00);
  CHECK(Float16(-inf).bits == 0xfc00);
  CHECK(Float16(65520.f).bits == 0x7c00);  // from here on: infinite
  CHECK(Float16(std::nextafterf(65520.f, 0)).bits == 0x7bff);
  CHECK(Float16(std::numeric_limits<float>::max()).bits == 0x7c00);
  CHECK(BFloat16(std::numeric_limits<float>::max()).bits == 0x7f80);
  CHECK(Float16(std::numeric_limits<float>::denorm_min()).bits == 0);
  CHECK(Float16(-0.f).bits == 0x8000);
  // A NaN whose digits are all in the part that is cut off.
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu}) {
    CHECK(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(bits)))));
    CHECK(std::isnan(static_cast<float>(Float16(std::bit_cast<float>(bits)))));
  }
  CHECK(std::isnan(static_cast<float>(BFloat16(nan))));
}

TEST_CASE("tensors of the half dtypes are made, read and converted", "[half]") {
  for (const DType t : {bfloat16, float16}) {
    const Tensor x = full({2, 3}, 1.5, t);
    CHECK(x.summary() == std::string(name(t)) + " [2, 3]");
    CHECK(x.nbytes() == 12);
    CHECK(is_floating(t));
    CHECK(x.to_vector<double>() == std::vector<double>(6, 1.5));
    CHECK(tensor(0.1, t).item() == Approx(0.1).epsilon(0.002));
    CHECK(tensor(0.1, t).item() != 0.1);
    fill_elements(x.alias({2}, {3}, 1), -2);
    CHECK(x.to_vector<int64_t>() == std::vector<int64_t>{1, -2, 1, 1, -2, 1});
    const Tensor back = empty({3, 2});
    copy_elements(back, x.alias({3, 2}, {1, 3}, 0));
    CHECK(back.to_vector<float>() == std::vector<float>{1.5, 1.5, -2, -2, 1.5, 1.5});
    const Tensor flags = empty({2}, boolean);
    copy_elements(flags, tensor({0, 0.5}));
    const Tensor numbers = empty({2}, t);
    copy_elements(numbers, flags);
    CHECK(numbers.to_vector<float>() == std::vector<float>{0, 1});
    Tensor leaf = zeros({1}, t);
    CHECK(leaf.requires_grad_().requires_grad());
  }
  const Tensor x = tensor(std::vector{BFloat16(1), BFloat16(-3)});
  CHECK(x.dtype() == bfloat16);
  CHECK(x.data<BFloat16>()[1] == -3.f);
  CHECK(x.to_vector<Float16>()[1].bits == 0xc200);
  CHECK(testing::text_of([&] { x.data<float>(); }) ==
        "[tensor] elements asked for as float32, but the tensor is bfloat16 [2]");
}

}  // namespace
