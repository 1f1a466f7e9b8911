// Kernels of ops/unary.h.
#include <cmath>
#include <limits>

#include "core/tensor/elements.h"
#include "ops/cpu/loops/elementwise.h"
#include "ops/cpu/loops/math.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

bool all_below(const Tensor& x, float limit) {
  bool beyond = false;
  for_each_run<1>(x.shape(), {x.strides()}, [&](const auto& at, int64_t n, const auto& step) {
    const float* a = x.data<float>() + at[0];
    int found = 0;
    vectorized([&found, a, n, limit, by = step[0] ]() __attribute__((always_inline)) {
      int any = 0;
      for (int64_t i = 0; i < n; ++i) any |= !(std::fabs(a[i * by]) < limit);
      found = any;
    });
    beyond |= found != 0;
  });
  return !beyond;
}

// The standard library's where there are angles so large that the fast one does not know them, or none.
template <class Fast, class Exact>
void periodic(const Call& c, Tensors& out, Fast fast, Exact exact) {
  const Tensor& x = c.in[0];
  if (out[0].dtype() == float64) return map1<double, double>(x, out[0], exact);
  if (all_below(x, kMostRadians)) return map1<float, float>(x, out[0], fast);
  map1<float, float>(x, out[0], [=](float v) { return std::fabs(v) < kMostRadians ? fast(v) : exact(v); });
}

// Integers wrap around instead of overflowing.
template <class T>
T negated(T x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(-static_cast<uint64_t>(x));
  else
    return -x;
}

// Integers are whole already.
template <class F>
void rounded(const Call& c, Tensors& out, F f) {
  if (out[0].dtype() == int64)
    map1<int64_t, int64_t>(c.in[0], out[0], [](int64_t x) { return x; });
  else
    floating1(c, out, f);
}

void neg(const Call& c, Tensors& out) {
  numeric1(
      c, out, [](auto x) __attribute__((always_inline)) { return negated(x); });
}
void abs(const Call& c, Tensors& out) {
  numeric1(
      c, out, [](auto x) __attribute__((always_inline)) {
        if constexpr (std::is_integral_v<decltype(x)>)
          return x < 0 ? negated(x) : x;
        else
          return std::fabs(x);
      });
}
void square(const Call& c, Tensors& out) {
  numeric1(
      c, out, [](auto x) __attribute__((always_inline)) {
        if constexpr (std::is_integral_v<decltype(x)>)
          return static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(x));
        else
          return x * x;
      });
}
void sign(const Call& c, Tensors& out) {
  numeric1(
      c, out, [](auto x) __attribute__((always_inline)) {
        using T = decltype(x);
        return x > 0 ? T{1} : (x < 0 ? T{-1} : T{0});  // of NaN, too
      });
}

void floor(const Call& c, Tensors& out) {
  rounded(
      c, out, [](auto x) __attribute__((always_inline)) { return std::floor(x); });
}
void ceil(const Call& c, Tensors& out) {
  rounded(
      c, out, [](auto x) __attribute__((always_inline)) { return std::ceil(x); });
}
void round(const Call& c, Tensors& out) {
  rounded(
      c, out, [](auto x) __attribute__((always_inline)) { return std::nearbyint(x); });
}
void trunc(const Call& c, Tensors& out) {
  rounded(
      c, out, [](auto x) __attribute__((always_inline)) { return std::trunc(x); });
}

void exp(const Call& c, Tensors& out) {
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return fast_exp(x); });
}
void log(const Call& c, Tensors& out) {
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return fast_log(x); });
}
void log1p(const Call& c, Tensors& out) {
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return fast_log1p(x); });
}
void expm1(const Call& c, Tensors& out) {
  floating1(c, out, [](auto x) { return std::expm1(x); });
}
void log2(const Call& c, Tensors& out) {
  floating1(c, out, [](auto x) { return std::log2(x); });
}
void sqrt(const Call& c, Tensors& out) {
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return std::sqrt(x); });
}
void rsqrt(const Call& c, Tensors& out) {
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return decltype(x){1} / std::sqrt(x); });
}
void reciprocal(const Call& c, Tensors& out) {
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return decltype(x){1} / x; });
}
void sin(const Call& c, Tensors& out) {
  periodic(
      c, out, [](float x) __attribute__((always_inline)) { return fast_sin(x); },
      [](auto x) { return std::sin(x); });
}
void cos(const Call& c, Tensors& out) {
  periodic(
      c, out, [](float x) __attribute__((always_inline)) { return fast_cos(x); },
      [](auto x) { return std::cos(x); });
}
void erf(const Call& c, Tensors& out) {
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return fast_erf(x); });
}

void clamp(const Call& c, Tensors& out) {
  const Scalar &low = c.attrs.scalar("min"), &high = c.attrs.scalar("max");
  visit_numeric(
      out[0].dtype(), [&](auto zero) __attribute__((always_inline)) {
        using T = decltype(zero);
        constexpr bool kWhole = std::is_integral_v<T>;  // infinite bounds of integers are none
        const T l = kWhole && low.is_floating() ? std::numeric_limits<T>::lowest() : low.to<T>();
        const T h = kWhole && high.is_floating() ? std::numeric_limits<T>::max() : high.to<T>();
        if (l != l || h != h) return fill_elements(out[0], std::numeric_limits<double>::quiet_NaN());
        map1<T, T>(
            c.in[0], out[0], [ l, h ](T x) __attribute__((always_inline)) {
              const T raised = x < l ? l : x;
              return raised > h ? h : raised;
            });
      });
}

}  // namespace

KernelTable unary_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"neg", neg},     {"abs", abs},   {"square", square}, {"sign", sign},
      {"floor", floor}, {"ceil", ceil}, {"round", round},   {"trunc", trunc},
      {"exp", exp},     {"log", log},   {"log1p", log1p},   {"expm1", expm1},
      {"log2", log2},   {"sqrt", sqrt}, {"rsqrt", rsqrt},   {"reciprocal", reciprocal},
      {"sin", sin},     {"cos", cos},   {"erf", erf},       {"clamp", clamp},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
