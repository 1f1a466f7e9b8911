// Kernels of ops/arithmetic.h: powers and angles.
#include <cmath>

#include "ops/cpu/loops/elementwise.h"
#include "ops/cpu/loops/math.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

// Modulo 2^64; to a negative power the quotient, rounded to 0.
int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, square = static_cast<uint64_t>(base);
  for (; exponent; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return static_cast<int64_t>(result);
}

void pow(const Call& c, Tensors& out) {
  if (out[0].dtype() == int64)
    return map2<int64_t, int64_t>(c.in[0], c.in[1], out[0], [](int64_t a, int64_t b) { return power(a, b); });
  floating2(
      c, out, [](auto a, auto b) __attribute__((always_inline)) { return fast_pow(a, b); });
}

void pow_scalar(const Call& c, Tensors& out) {
  if (out[0].dtype() == int64) {
    const int64_t e = c.attrs.scalar("exponent").to<int64_t>();
    return map1<int64_t, int64_t>(c.in[0], out[0], [e](int64_t x) { return power(x, e); });
  }
  const double exponent = c.attrs.scalar("exponent").to<double>();
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T e = static_cast<T>(exponent);
    // As PyTorch, which differs from std::pow at -inf and -0, but in float16 (ops/arithmetic.cpp).
    if (exponent == 0.5) return map1<T, T>(c.in[0], out[0], [](T x) { return std::sqrt(x); });
    if (exponent == -0.5) return map1<T, T>(c.in[0], out[0], [](T x) { return 1 / std::sqrt(x); });
    if (exponent == 2) return map1<T, T>(c.in[0], out[0], [](T x) { return x * x; });
    if (exponent == 3) return map1<T, T>(c.in[0], out[0], [](T x) { return x * x * x; });
    map1<T, T>(
        c.in[0], out[0], [e](T x) __attribute__((always_inline)) { return fast_pow(x, e); });
  });
}

void atan2(const Call& c, Tensors& out) {
  floating2(c, out, [](auto y, auto x) { return std::atan2(y, x); });
}
}  // namespace

KernelTable power_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"pow", pow},
      {"pow_scalar", pow_scalar},
      {"atan2", atan2},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
