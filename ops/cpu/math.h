// exp, log, tanh, sigmoid, erf and the normal distribution that the compiler can vectorize, for float; the
// standard library's for double.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

namespace troupe::ops::cpu {

/// Within 2 ulp; 0 below -104, infinity above 88.73. Polynomial as in Cephes' expf.
[[gnu::always_inline]] inline float fast_exp(float x) {
  const float c = x > 89.f ? 89.f : (x < -104.f ? -104.f : x);
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer, in the low bits
  const float shifted = c * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  // 2^n as the product of two powers, so that neither leaves the range of exponents.
  const uint32_t bits =
      std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 256u;  // n + 256 > 0
  const uint32_t half = bits >> 1, rest = bits - half;
  return p * std::bit_cast<float>((half - 1u) << 23) * std::bit_cast<float>((rest - 1u) << 23);
}
[[gnu::always_inline]] inline double fast_exp(double x) { return std::exp(x); }

/// Within 2 ulp for normal x > 0; -infinity at 0, NaN below. Polynomial as in Cephes' logf.
[[gnu::always_inline]] inline float fast_log(float x) {
  const bool tiny = x < 1.17549435e-38f;  // subnormal numbers are scaled up first
  const float scaled = tiny ? x * 8388608.f : x;
  const uint32_t bits = std::bit_cast<uint32_t>(scaled);
  int32_t e = static_cast<int32_t>(bits >> 23) - 126 - (tiny ? 23 : 0);
  float m = std::bit_cast<float>((bits & 0x007fffffu) | 0x3f000000u);  // [0.5, 1)
  const bool low = m < 0.707106781186547524f;
  e -= low ? 1 : 0;
  m = (low ? m + m : m) - 1.f;
  const float z = m * m, n = static_cast<float>(e);
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const float y = m * z * p - 2.12194440e-4f * n - 0.5f * z;
  const float r = m + y + 0.693359375f * n;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float edge = x == 0.f ? -kInf : (x == kInf ? kInf : std::numeric_limits<float>::quiet_NaN());
  return x > 0.f && x < kInf ? r : edge;
}
[[gnu::always_inline]] inline double fast_log(double x) { return std::log(x); }

[[gnu::always_inline]] inline float fast_sigmoid(float x) { return 1.f / (1.f + fast_exp(-x)); }
[[gnu::always_inline]] inline double fast_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Polynomial near zero, where 1 - 2 / (exp(2x) + 1) would lose digits.
[[gnu::always_inline]] inline float fast_tanh(float x) {
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = p * z * x + x;
  const float a = x < 0.f ? -x : x;
  const float big = 1.f - 2.f / (fast_exp(a + a) + 1.f);
  const float far = x < 0.f ? -big : big;
  return a < 0.625f ? near : far;
}
[[gnu::always_inline]] inline double fast_tanh(double x) { return std::tanh(x); }

/// Within 2 ulp. Polynomials by N. Juffa: erf itself near zero, the logarithm of 1 - erf beyond.
[[gnu::always_inline]] inline float fast_erf(float x) {
  const float a = x < 0.f ? -x : x, z = x * x;
  float p = -5.96761703e-4f;
  p = p * z + 4.99119423e-3f;
  p = p * z - 2.67681349e-2f;
  p = p * z + 1.12819925e-1f;
  p = p * z - 3.76125336e-1f;
  p = p * z + 1.28379166e-1f;
  const float near = p * x + x;
  const float c = a > 4.f ? 4.f : a;  // 1 - erf(4) is below half an ulp of 1
  const float s = c * c;
  float q = -1.72853470e-5f * c + 3.83197126e-4f;
  const float u = -3.88396438e-3f * c + 2.42546219e-2f;
  q = q * s + u;
  q = q * c - 1.06777877e-1f;
  q = q * c - 6.34846687e-1f;
  q = q * c - 1.28717512e-1f;
  q = q * c - c;
  const float big = 1.f - fast_exp(q);
  const float far = x < 0.f ? -big : big;
  return a > 0.927734375f ? far : near;  // NaN takes `near`
}
[[gnu::always_inline]] inline double fast_erf(double x) { return std::erf(x); }

/// Of the standard normal distribution at x.
template <class T>
struct Normal {
  T below;    ///< probability of a value below x
  T density;  ///< at x
};

/// One exponential for both. The tail beyond z = |x| is exp(-z^2 / 2) times a polynomial in 1 / (1 + 0.3 z),
/// fitted for the least relative error (1.3e-7) up to z = 13.5, where the exponential has become 0.
[[gnu::always_inline]] inline Normal<float> normal(float x) {
  const float z = x < 0.f ? -x : x, e = fast_exp(-0.5f * z * z), t = 1.f / (1.f + 0.3f * z);
  float p = 0.035932032f;
  p = p * t - 0.158277132f;
  p = p * t + 0.20820838f;
  p = p * t - 0.055395325f;
  p = p * t + 0.129469905f;
  p = p * t + 0.0996373013f;
  p = p * t + 0.120798386f;
  p = p * t + 0.119626388f;
  const float beyond = p * t * e;
  return {x < 0.f ? beyond : 1.f - beyond, e * 0.398942280f};
}
[[gnu::always_inline]] inline Normal<double> normal(double x) {
  using std::numbers::inv_sqrtpi, std::numbers::sqrt2;
  return {0.5 * std::erfc(-x / sqrt2), inv_sqrtpi / sqrt2 * std::exp(-0.5 * x * x)};
}

}  // namespace troupe::ops::cpu
