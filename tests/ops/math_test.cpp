// The functions of ops/cpu/loops/math.h over all of float32: accuracy, and what they make of zeros,
// infinities and NaN.
#include "ops/cpu/loops/math.h"

#include <catch2/catch.hpp>
#include <vector>

#include "ops/ops.h"

using namespace troupe;
using namespace troupe::ops::on_cpu;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

// The largest error in units of the last place, over numbers of every sign and exponent from `low` to `high`.
template <class F, class G>
double worst(float low, float high, const F& f, const G& exact) {
  double most = 0;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4093) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(x >= low && x <= high)) continue;
    const double y = exact(static_cast<double>(x));
    const float rounded = std::fabs(static_cast<float>(y));
    if (!std::isnormal(rounded)) continue;
    const double ulp = static_cast<double>(rounded) - static_cast<double>(std::nextafter(rounded, 0.f));
    const double error = std::fabs(static_cast<double>(f(x)) - y) / ulp;
    if (!(error <= most)) most = error;  // NaN is the worst
  }
  return most;
}

bool same(float a, float b) {  // the zeros are two
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

}  // namespace

TEST_CASE("float32's functions are within 2 ulp") {
  constexpr float kMost = std::numeric_limits<float>::max();
  CHECK(worst(
            -87, 88.7f, [](float x) { return fast_exp(x); }, [](double x) { return std::exp(x); }) <= 2);
  CHECK(worst(
            -87, 88.7f, [](float x) { return decay(x); }, [](double x) { return std::exp(x); }) <= 2);
  CHECK(worst(
            -kMost, 88.7f, [](float x) { return fast_expm1(x); }, [](double x) { return std::expm1(x); }) <=
        2);
  CHECK(worst(
            0, kMost, [](float x) { return fast_log(x); }, [](double x) { return std::log(x); }) <= 2);
  CHECK(worst(
            -1, kMost, [](float x) { return fast_log1p(x); }, [](double x) { return std::log1p(x); }) <= 2);
  CHECK(worst(
            -kMost, kMost, [](float x) { return fast_tanh(x); }, [](double x) { return std::tanh(x); }) <= 2);
  CHECK(worst(
            -kMost, kMost, [](float x) { return fast_erf(x); }, [](double x) { return std::erf(x); }) <= 2);
  CHECK(worst(
            -87, kMost, [](float x) { return fast_sigmoid(x); },
            [](double x) { return 1 / (1 + std::exp(-x)); }) <= 2.5);
  CHECK(worst(
            -87, kMost, [](float x) { return fast_softplus(x); },
            [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }) <= 2);
  constexpr float kAngle = 0.999f * kMostRadians;
  CHECK(worst(
            -kAngle, kAngle, [](float x) { return fast_sin(x); }, [](double x) { return std::sin(x); }) <= 2);
  CHECK(worst(
            -kAngle, kAngle, [](float x) { return fast_cos(x); }, [](double x) { return std::cos(x); }) <= 2);
}

TEST_CASE("float32's functions at zeros, infinities, NaN and beyond the ends of their ranges") {
  struct Edge {
    float (*f)(float);
    std::vector<std::pair<float, float>> values;
  };
  const Edge edges[] = {
      {[](float x) { return fast_exp(x); },
       {{0.f, 1.f}, {-0.f, 1.f}, {kInf, kInf}, {-kInf, 0.f}, {200.f, kInf}, {-200.f, 0.f}, {1e-45f, 1.f}}},
      {[](float x) { return decay(x); },
       {{0.f, 1.f}, {-0.f, 1.f}, {-kInf, 0.f}, {-200.f, 0.f}, {-1e30f, 0.f}}},
      {[](float x) { return fast_expm1(x); },
       {{0.f, 0.f},
        {-0.f, -0.f},
        {kInf, kInf},
        {-kInf, -1.f},
        {200.f, kInf},
        {-200.f, -1.f},
        {1e-45f, 1e-45f}}},
      {[](float x) { return fast_log(x); },
       {{0.f, -kInf}, {-0.f, -kInf}, {kInf, kInf}, {-kInf, kNan}, {-1e-45f, kNan}, {1.f, 0.f}}},
      {[](float x) { return fast_log1p(x); },
       {{0.f, 0.f},
        {-0.f, -0.f},
        {kInf, kInf},
        {-1.f, -kInf},
        {-2.f, kNan},
        {-kInf, kNan},
        {1e-45f, 1e-45f}}},
      {[](float x) { return fast_softplus(x); }, {{kInf, kInf}, {-kInf, 0.f}, {1e30f, 1e30f}, {-1e30f, 0.f}}},
      {[](float x) { return fast_sigmoid(x); }, {{0.f, 0.5f}, {kInf, 1.f}, {-kInf, 0.f}, {-200.f, 0.f}}},
      {[](float x) { return fast_tanh(x); },
       {{0.f, 0.f}, {-0.f, -0.f}, {kInf, 1.f}, {-kInf, -1.f}, {-1e30f, -1.f}}},
      {[](float x) { return fast_erf(x); },
       {{0.f, 0.f}, {-0.f, -0.f}, {kInf, 1.f}, {-kInf, -1.f}, {1e30f, 1.f}}},
  };
  for (const Edge& edge : edges) {
    CHECK(std::isnan(edge.f(kNan)));
    for (const auto& [x, y] : edge.values) {
      CAPTURE(&edge - edges, x);
      CHECK(same(edge.f(x), y));
    }
  }
}

TEST_CASE("powers are the standard library's within an ulp, and where a number is special") {
  std::vector<float> numbers{0.f,   1.f,    0.5f,   2.f,   3.f,  16777215.f, 16777216.f,
                             1e10f, 1e-45f, 1e-38f, 3e38f, kInf, kNan};
  for (int i = 1; i < 200; ++i)
    numbers.push_back(std::ldexp(1.f + 0.0049f * static_cast<float>(i), i % 41 - 20));
  for (size_t i = numbers.size(); i-- > 0;) numbers.push_back(-numbers[i]);
  for (const float x : numbers)
    for (const float y : numbers) {
      const float got = fast_pow(x, y);
      const double exact = std::pow(static_cast<double>(x), static_cast<double>(y));
      const float wanted = static_cast<float>(exact);
      if (same(got, wanted)) continue;
      CAPTURE(x, y, got, wanted);
      REQUIRE(std::isfinite(wanted));
      const float next = std::nextafter(wanted, std::fabs(exact) > std::fabs(static_cast<double>(wanted))
                                                    ? std::copysign(kInf, wanted)
                                                    : 0.f);
      REQUIRE(got == next);
    }
}

TEST_CASE("sines of angles of any size, and of none") {
  const std::vector<float> angles{0,      -0.f,   1e-30f, 1,    -3,    1e6f, 1.0737418e9f,
                                  1.1e9f, -1e20f, 3e38f,  kInf, -kInf, kNan};
  const Tensor x = tensor(angles), sine = ops::sin(x), cosine = ops::cos(x);
  for (size_t i = 0; i < angles.size(); ++i) {
    INFO(angles[i]);
    const double exact = std::sin(static_cast<double>(angles[i])),
                 other = std::cos(static_cast<double>(angles[i]));
    const float s = sine.data<float>()[i], c = cosine.data<float>()[i];
    if (std::isnan(exact)) {
      CHECK(std::isnan(s));
      CHECK(std::isnan(c));
    } else {
      CHECK(std::fabs(static_cast<double>(s) - exact) <= 2e-7 * std::fabs(exact));
      CHECK(std::fabs(static_cast<double>(c) - other) <= 2e-7 * std::fabs(other));
      CHECK(std::signbit(s) == std::signbit(exact));
    }
  }
}

TEST_CASE("numbers that do not lie together have the same functions, bit for bit") {
  Generator random(3);
  const Tensor x = ops::abs(ops::randn({33, 65}, random)), across = ops::transpose(x, 0, 1);
  for (const auto& f : {ops::exp, ops::log, ops::log1p, ops::sin, ops::cos, ops::erf})
    CHECK(ops::transpose(f(across), 0, 1).to_vector<float>() == f(x).to_vector<float>());
}
