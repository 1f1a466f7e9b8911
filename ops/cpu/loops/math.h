// Functions that the compiler can vectorize, for float; the standard library's for double. Multiplications
// and additions are fused by name, so that results have the same bits whatever the instruction set: where
// vectorized() runs that is one instruction.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>

namespace troupe::ops::on_cpu {

/// a b + c, rounded once.
[[gnu::always_inline]] inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
[[gnu::always_inline]] inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

/// The value at x of the polynomial with these coefficients, that of the highest power first.
template <class T, class... C>
[[gnu::always_inline]] inline T polynomial(T x, T highest, C... rest) {
  T p = highest;
  ((p = fused(p, x, rest)), ...);
  return p;
}

/// x = n log 2 + r, with |r| <= log(2) / 2, for x in [-104, 89].
struct PowerOfTwo {
  float r;
  uint32_t bits;  ///< n + 254 in the lowest 9, which is all that matters

  // Adding 1.5 * 2^23 rounds to an integer, in the low bits.
  [[gnu::always_inline]] explicit PowerOfTwo(float x) {
    constexpr float kRound = 12582912.f + 254.f;
    const float shifted = fused(x, 1.44269504088896341f, kRound), n = shifted - kRound;
    r = fused(n, 2.12194440e-4f, fused(n, -0.693359375f, x));
    bits = std::bit_cast<uint32_t>(shifted);
  }
  // 2^n as the product of two powers, so that neither leaves the range of exponents.
  [[gnu::always_inline]] float half() const { return std::bit_cast<float>(bits >> 1 << 23); }
  [[gnu::always_inline]] float rest() const { return std::bit_cast<float>((bits - (bits >> 1)) << 23); }
  // 2^n itself, for n in [-126, 127].
  [[gnu::always_inline]] float whole() const { return std::bit_cast<float>((bits - 127u) << 23); }
  // exp(r) - 1. Polynomial as in Cephes' expf.
  [[gnu::always_inline]] float rest_of_exp() const {
    const float p = polynomial(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                               1.6666665459e-1f, 5.0000001201e-1f);
    return fused(p * r, r, r);
  }
};

/// exp(x) within 2 ulp for x up to 89; 0 below -104, cut off in what comes out: two cuts of one value are
/// compiled to seven instructions, not four.
[[gnu::always_inline]] inline float decay(float x) {
  const PowerOfTwo n(x);
  const float y = fused(n.rest_of_exp(), n.half(), n.half()) * n.rest();
  return x < -104.f ? 0.f : y;
}
[[gnu::always_inline]] inline double decay(double x) { return std::exp(x); }

/// Within 2 ulp; 0 below -104, infinity above 88.73.
[[gnu::always_inline]] inline float fast_exp(float x) { return decay(x > 89.f ? 89.f : x); }
[[gnu::always_inline]] inline double fast_exp(double x) { return std::exp(x); }

/// exp(x) - 1 within 3 ulp, also near zero: 2^n (exp(r) - 1) + (2^n - 1).
[[gnu::always_inline]] inline float fast_expm1(float x) {
  const float c = x > 89.f ? 89.f : x;
  const PowerOfTwo n(c);
  const float q = n.rest_of_exp(), a = n.half(), b = n.rest();
  const float y = c > 64.f ? (q + 1.f) * a * b : fused(q, a * b, a * b - 1.f);
  const float low = x < -18.f ? -1.f : y;  // exp(-18) is below half an ulp of 1
  return x == 0.f ? x : low;
}
[[gnu::always_inline]] inline double fast_expm1(double x) { return std::expm1(x); }

/// Within 1 ulp for x > 0; -infinity at 0, NaN below. x = 2^n (1 + m) with m in [-1/3, 1/3]; the polynomial
/// has the least relative error of log(1 + m) for its degree.
[[gnu::always_inline]] inline float fast_log(float x) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  // Subnormal numbers are scaled up first, by 2^23. A choice would have both ways computed to the end.
  const uint32_t tiny = 0u - static_cast<uint32_t>(x < 1.17549435e-38f);
  const uint32_t bits = std::bit_cast<uint32_t>(x * std::bit_cast<float>(0x3f800000u + (tiny & 23u << 23)));
  const int32_t e = static_cast<int32_t>(bits - 0x3f2aaaabu) >> 23;  // 2 / 3 is where 1 + m begins
  const float n = static_cast<float>(e - static_cast<int32_t>(tiny & 23u));
  const float m = std::bit_cast<float>(bits - (static_cast<uint32_t>(e) << 23)) - 1.f;
  const float p = polynomial(m, -0.128916785f, 0.139844403f, -0.121842623f, 0.140058681f, -0.16680488f,
                             0.200104058f, -0.249997973f, 0.333332151f, -0.5f);
  const float y = fused(n, 0.693147181f, fused(m * m, p, m));
  const float outside = x == 0.f ? -kInf : std::numeric_limits<float>::quiet_NaN();
  const float below_infinity = x > 0.f ? y : outside;
  return x < kInf ? below_infinity : x;
}
[[gnu::always_inline]] inline double fast_log(double x) { return std::log(x); }

/// log(1 + x) within 4 ulp: the logarithm of the rounded sum, and to first order what rounding lost.
[[gnu::always_inline]] inline float fast_log1p(float x) {
  const float u = 1.f + x, lost = (x - (u - 1.f)) / u;
  const float y = fast_log(u);
  const float near = u == 1.f ? x : y + lost;
  return u > 0.f && u < 1e30f ? near : y;  // at the edges `lost` is no number
}
[[gnu::always_inline]] inline double fast_log1p(double x) { return std::log1p(x); }

/// log(1 + exp(x)); infinity and NaN as they are.
template <class T>
[[gnu::always_inline]] inline T fast_softplus(T x) {
  const T a = x < 0 ? x : -x, positive = x < 0 ? T{0} : x;
  return positive + fast_log1p(decay(a));
}

[[gnu::always_inline]] inline float fast_sigmoid(float x) { return 1.f / (1.f + fast_exp(-x)); }
[[gnu::always_inline]] inline double fast_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Within 2 ulp: h / (h + 1) with h = (exp(2 |x|) - 1) / 2, and for small h, where that would show the
/// rounding of the quotient, h minus h times it. tanh(10) rounds to 1.
[[gnu::always_inline]] inline float fast_tanh(float x) {
  const float a = std::fabs(x), c = a > 10.f ? 10.f : a;
  const PowerOfTwo n(c + c);
  const float w = n.whole() * 0.5f, h = fused(n.rest_of_exp(), w, w - 0.5f), y = h / (h + 1.f);
  return std::copysign(h < 1.f ? fused(-h, y, h) : y, x);
}
[[gnu::always_inline]] inline double fast_tanh(double x) { return std::tanh(x); }

/// Within 2 ulp. Polynomials by N. Juffa: erf itself near zero, the logarithm of 1 - erf beyond.
[[gnu::always_inline]] inline float fast_erf(float x) {
  const float a = std::fabs(x), z = x * x;
  const float near = fused(polynomial(z, -5.96761703e-4f, 4.99119423e-3f, -2.67681349e-2f, 1.12819925e-1f,
                                      -3.76125336e-1f, 1.28379166e-1f),
                           x, x);
  const float c = a > 4.f ? 4.f : a;  // 1 - erf(4) is below half an ulp of 1
  const float s = c * c;
  const float high = fused(-1.72853470e-5f, c, 3.83197126e-4f),
              low = fused(-3.88396438e-3f, c, 2.42546219e-2f);
  const float q =
      polynomial(c, fused(high, s, low), -1.06777877e-1f, -6.34846687e-1f, -1.28717512e-1f) * c - c;
  const float far = std::copysign(1.f - decay(q), x);
  return a > 0.927734375f ? far : near;  // NaN takes `near`
}
[[gnu::always_inline]] inline double fast_erf(double x) { return std::erf(x); }

/// c ? a : b in bits: the compiler makes branches of some choices, and no vectors then.
[[gnu::always_inline]] inline float chosen(bool c, float a, float b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(c);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(a) & mask) | (std::bit_cast<uint32_t>(b) & ~mask));
}

/// Within 1 ulp: 2^(y log2 |x|) in double. log2 m, of m near 1, is t times a polynomial in t^2 with t = (m -
/// 1) / (m + 1). Zeros, infinities, NaN and negative x as std::pow.
[[gnu::always_inline]] inline float fast_pow(float x, float y) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float a = std::fabs(x);
  // a = 2^n m with m in [sqrt(1/2), sqrt(2)), n + 1023 in the upper bits of `count`.
  const uint64_t bits = std::bit_cast<uint64_t>(static_cast<double>(a)), one = std::bit_cast<uint64_t>(1.0);
  const uint64_t count = (bits + (one - std::bit_cast<uint64_t>(0.7071067811865476))) >> 52;
  const double m = std::bit_cast<double>(bits + one - (count << 52)), t = (m - 1) / (m + 1), z = t * t;
  constexpr double kWhole = 4503599627370496.0;  // 2^52: adding it puts a whole number into the low bits
  const double n = std::bit_cast<double>(count | std::bit_cast<uint64_t>(kWhole)) - (kWhole + 1023);
  const double log = fused(t,
                           polynomial(z, 0.33967394414250934, 0.4117286451441476, 0.5770826760951635,
                                      0.9617966779514918, 2.885390081786567),
                           n);
  const double power = static_cast<double>(y) * log, shifted = power + 1.5 * kWhole;
  const double f = power - (shifted - 1.5 * kWhole);
  const double p =
      polynomial(f, 1.530670321160568e-05, 1.546531306883134e-4, 1.3333463650410699e-3, 9.618039943447404e-3,
                 5.5504109270715835e-2, 0.24022651101332174, 0.6931471805496164, 0.9999999999718402);
  const double scale = std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) << 52) + one);
  const float top = chosen(power < -152, 0.f, static_cast<float>(p * scale)),
              normal = chosen(power > 129, kInf, top);
  const float end = chosen(y > 0.f, a, chosen(a == 0.f, kInf, 0.f));
  const float positive = chosen((a == 0.f) | (a == kInf), end, chosen(a == 1.f, 1.f, normal));
  const float small = chosen(std::fabs(y) < 16777216.f, y, 2.f);  // larger ones are even
  const auto whole = static_cast<int32_t>(small);
  const bool is_whole = static_cast<float>(whole) == small;
  const uint32_t odd = static_cast<uint32_t>(whole) & static_cast<uint32_t>(is_whole);
  const float with_sign =
      std::bit_cast<float>(std::bit_cast<uint32_t>(positive) | (std::bit_cast<uint32_t>(x) & odd << 31));
  const bool undefined = ((x < 0.f) & (a != kInf) & !is_whole) | (x != x) | (y != y);
  const float defined = chosen(undefined, std::numeric_limits<float>::quiet_NaN(), with_sign);
  return chosen((y == 0.f) | (x == 1.f), 1.f, defined);
}
[[gnu::always_inline]] inline double fast_pow(double x, double y) { return std::pow(x, y); }

/// x = n pi / 2 + r in double, with |r| <= pi / 4: two parts of pi / 2, the first product exact. |x| below
/// kMostRadians.
constexpr float kMostRadians = 1 << 30;
struct Quadrant {
  float r;
  uint32_t n;  ///< modulo 2^32

  [[gnu::always_inline]] explicit Quadrant(float x) {
    constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
    const double d = static_cast<double>(x), shifted = fused(d, std::numbers::inv_pi * 2, kRound);
    const double count = shifted - kRound;
    r = static_cast<float>(fused(count, -6.123233995736766e-17, fused(count, -1.5707963267948966, d)));
    n = static_cast<uint32_t>(std::bit_cast<uint64_t>(shifted));
  }
  [[gnu::always_inline]] float sine() const {
    const float z = r * r;
    return r *
           polynomial(z, 2.7181216e-6f, -1.9839334e-4f, 8.3333293e-3f, -1.6666667e-1f, 1.f);  // -0 is kept
  }
  [[gnu::always_inline]] float cosine() const {
    const float z = r * r;
    return fused(polynomial(z, 2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f) * z, z,
                 fused(z, -0.5f, 1.f));
  }
  // The sine of `turns` quadrants further on.
  [[gnu::always_inline]] float sine_after(uint32_t turns) const {
    const uint32_t q = n + turns;
    const float y = q & 1u ? cosine() : sine();
    return std::bit_cast<float>(std::bit_cast<uint32_t>(y) ^ (q & 2u) << 30);
  }
};
/// Within 2 ulp, for |x| below kMostRadians.
[[gnu::always_inline]] inline float fast_sin(float x) { return Quadrant(x).sine_after(0); }
[[gnu::always_inline]] inline float fast_cos(float x) { return Quadrant(x).sine_after(1); }

/// Of the standard normal distribution at x.
template <class T>
struct Normal {
  T below;    ///< probability of a value below x
  T density;  ///< at x
};

/// One exponential for both. The tail beyond z = |x| is exp(-z^2 / 2) times a polynomial in 1 / (1 + 0.3 z),
/// fitted for the least relative error (1.3e-7) up to z = 13.5, where the exponential has become 0.
[[gnu::always_inline]] inline Normal<float> normal(float x) {
  const float z = std::fabs(x), e = decay(-0.5f * z * z), t = 1.f / fused(0.3f, z, 1.f);
  const float p = polynomial(t, 0.035932032f, -0.158277132f, 0.20820838f, -0.055395325f, 0.129469905f,
                             0.0996373013f, 0.120798386f, 0.119626388f);
  const float beyond = p * t * e;
  return {x < 0.f ? beyond : 1.f - beyond, e * 0.398942280f};
}
[[gnu::always_inline]] inline Normal<double> normal(double x) {
  using std::numbers::inv_sqrtpi, std::numbers::sqrt2;
  return {0.5 * std::erfc(-x / sqrt2), inv_sqrtpi / sqrt2 * std::exp(-0.5 * x * x)};
}

}  // namespace troupe::ops::on_cpu
