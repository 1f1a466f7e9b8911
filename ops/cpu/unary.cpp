// Kernels of ops/unary.h.
#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/cpu/loops.h"
#include "ops/cpu/math.h"

namespace troupe::ops::cpu {
namespace {

template <class F>
void numeric1(const Call& c, Tensors& out, F f) {
  visit_numeric(
      out[0].dtype(), [&](auto zero) __attribute__((always_inline)) {
        map1<decltype(zero), decltype(zero)>(c.in[0], out[0], f);
      });
}

template <class F>
void floating1(const Call& c, Tensors& out, F f) {
  visit_floating(
      out[0].dtype(), [&](auto zero) __attribute__((always_inline)) {
        map1<decltype(zero), decltype(zero)>(c.in[0], out[0], f);
      });
}

// Integers wrap around instead of overflowing.
template <class T>
T negated(T x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(-static_cast<uint64_t>(x));
  else
    return -x;
}

}  // namespace

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
        return x > 0 ? T{1} : (x < 0 ? T{-1} : x);
      });
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
      c, out, [](auto x) __attribute__((always_inline)) { return std::log1p(x); });
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
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return std::sin(x); });
}
void cos(const Call& c, Tensors& out) {
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return std::cos(x); });
}
void erf(const Call& c, Tensors& out) {
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return fast_erf(x); });
}

void clamp(const Call& c, Tensors& out) {
  const double low = c.attrs.number("min"), high = c.attrs.number("max");
  floating1(
      c, out, [ low, high ](auto x) __attribute__((always_inline)) {
        using T = decltype(x);
        const T l = static_cast<T>(low), h = static_cast<T>(high);
        const T raised = x < l ? l : x;
        return raised > h ? h : raised;
      });
}

}  // namespace troupe::ops::cpu
