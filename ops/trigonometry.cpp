#include "ops/trigonometry.h"

#include <numbers>

#include "ops/arithmetic.h"
#include "ops/gradient_rules.h"
#include "ops/unary.h"

namespace troupe::ops {
namespace {

// Samples in a range: none is where the function has no slope.
template <int low_tenths, int high_tenths>
std::vector<Sample> samples_between() {
  constexpr double low = low_tenths / 10.0, high = high_tenths / 10.0;
  return {{{sample({3, 4}, low, high)}}, {{sample({}, low, high)}}, {{sample({0, 2}, low, high)}}};
}

// 1 + x^2, 1 - x^2, x^2 - 1.
Tensor square_and(const Tensor& x, double factor, double constant) {
  return add(mul(square(x), factor), constant);
}

// A record: `slope` gives the gradient of the result's gradient and what is saved, the input or the result.
template <auto slope, bool saves_result>
Op smooth(const char* name, const char* text, std::vector<Sample> (*samples)()) {
  return {.name = name,
          .text = text,
          .shape = floating_unary,
          .saves_inputs = !saves_result,
          .saves_outputs = saves_result,
          .gradient = [](const Backward& b) -> Tensors {
            return {slope(b.grads[0], saves_result ? b.out[0] : b.in[0])};
          },
          .promotes = Promotion::floating,
          .samples = samples};
}

Tensor tan_slope(const Tensor& g, const Tensor& s) { return mul(g, square_and(s, 1, 1)); }
Tensor asin_slope(const Tensor& g, const Tensor& s) { return mul(g, rsqrt(square_and(s, -1, 1))); }
Tensor acos_slope(const Tensor& g, const Tensor& s) { return neg(mul(g, rsqrt(square_and(s, -1, 1)))); }
Tensor atan_slope(const Tensor& g, const Tensor& s) { return div(g, square_and(s, 1, 1)); }
Tensor sinh_slope(const Tensor& g, const Tensor& s) { return mul(g, cosh(s)); }
Tensor cosh_slope(const Tensor& g, const Tensor& s) { return mul(g, sinh(s)); }
Tensor asinh_slope(const Tensor& g, const Tensor& s) { return mul(g, rsqrt(square_and(s, 1, 1))); }
Tensor acosh_slope(const Tensor& g, const Tensor& s) { return mul(g, rsqrt(square_and(s, 1, -1))); }
Tensor atanh_slope(const Tensor& g, const Tensor& s) { return div(g, square_and(s, -1, 1)); }
Tensor exp2_slope(const Tensor& g, const Tensor& s) { return mul(mul(g, s), std::numbers::ln2); }
Tensor log10_slope(const Tensor& g, const Tensor& s) { return div(g, mul(s, std::numbers::ln10)); }
Tensor erfc_slope(const Tensor& g, const Tensor& s) {
  return mul(mul(g, -2 * std::numbers::inv_sqrtpi), exp(neg(square(s))));
}
Tensor erfinv_slope(const Tensor& g, const Tensor& s) {
  return mul(mul(g, 0.5 / std::numbers::inv_sqrtpi), exp(square(s)));
}

}  // namespace

const Op kTan = smooth<tan_slope, true>("tan", "The tangent of each element.", samples_between<-12, 12>);
const Op kAsin = smooth<asin_slope, false>("asin", "The angle whose sine each element is, in [-pi/2, pi/2].",
                                           samples_between<-9, 9>);
const Op kAcos = smooth<acos_slope, false>("acos", "The angle whose cosine each element is, in [0, pi].",
                                           samples_between<-9, 9>);
const Op kAtan = smooth<atan_slope, false>(
    "atan", "The angle whose tangent each element is, in (-pi/2, pi/2).", samples_between<-20, 20>);
const Op kSinh =
    smooth<sinh_slope, false>("sinh", "The hyperbolic sine of each element.", samples_between<-20, 20>);
const Op kCosh =
    smooth<cosh_slope, false>("cosh", "The hyperbolic cosine of each element.", samples_between<-20, 20>);
const Op kAsinh = smooth<asinh_slope, false>("asinh", "The inverse of the hyperbolic sine of each element.",
                                             samples_between<-20, 20>);
const Op kAcosh = smooth<acosh_slope, false>("acosh", "The inverse of the hyperbolic cosine of each element.",
                                             samples_between<15, 30>);
const Op kAtanh = smooth<atanh_slope, false>(
    "atanh", "The inverse of the hyperbolic tangent of each element.", samples_between<-8, 8>);
const Op kExp2 =
    smooth<exp2_slope, true>("exp2", "2 to the power of each element.", samples_between<-20, 20>);
const Op kLog10 =
    smooth<log10_slope, false>("log10", "The logarithm of each element to base 10.", samples_between<3, 20>);
const Op kErfc = smooth<erfc_slope, false>("erfc", "1 - erf(x) of each element, exact where that is near 0.",
                                           samples_between<-20, 20>);
const Op kErfinv = smooth<erfinv_slope, true>("erfinv", "The inverse of the error function of each element.",
                                              samples_between<-8, 8>);

Tensor tan(const Tensor& x) { return apply1(kTan, {x}); }
Tensor asin(const Tensor& x) { return apply1(kAsin, {x}); }
Tensor acos(const Tensor& x) { return apply1(kAcos, {x}); }
Tensor atan(const Tensor& x) { return apply1(kAtan, {x}); }
Tensor sinh(const Tensor& x) { return apply1(kSinh, {x}); }
Tensor cosh(const Tensor& x) { return apply1(kCosh, {x}); }
Tensor asinh(const Tensor& x) { return apply1(kAsinh, {x}); }
Tensor acosh(const Tensor& x) { return apply1(kAcosh, {x}); }
Tensor atanh(const Tensor& x) { return apply1(kAtanh, {x}); }
Tensor exp2(const Tensor& x) { return apply1(kExp2, {x}); }
Tensor log10(const Tensor& x) { return apply1(kLog10, {x}); }
Tensor erfc(const Tensor& x) { return apply1(kErfc, {x}); }
Tensor erfinv(const Tensor& x) { return apply1(kErfinv, {x}); }

}  // namespace troupe::ops
