// Kernels of ops/arithmetic.h.
#include <bit>
#include <cmath>

#include "core/base/error.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/loops/loops.h"
#include "ops/cpu/loops/math.h"

namespace troupe::ops::cpu {
namespace {

// As vectorized(), in vectors of 32 bytes at most: with those a loop that only waits for memory is 5 % faster
// on Zen 4.
template <class F>
void streamed(const F& f) {
#if defined(__x86_64__)
  if (simd_level() != Simd::baseline) return run_avx2(f);
#endif
  vectorized(f);
}

// map2() of one cheap operation.
template <class T, class F>
void stream2(const Tensor& x, const Tensor& y, const Tensor& out, F f) {
  const bool dense = x.is_contiguous() && y.is_contiguous();
  if (!dense || x.shape() != out.shape() || y.shape() != out.shape()) return map2<T, T>(x, y, out, f);
  const T *a = x.data<T>(), *b = y.data<T>();
  write_dense(out.data<T>(), out.numel(), [&](T* o, int64_t begin, int64_t end) {
    streamed([ =, x = a + begin, y = b + begin, n = end - begin ]() __attribute__((always_inline)) {
      TROUPE_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) o[i] = f(x[i], y[i]);
    });
  });
}

template <class F>
void numeric2(const Call& c, Tensors& out, F f) {
  visit_numeric(out[0].dtype(), [&](auto zero) { stream2<decltype(zero)>(c.in[0], c.in[1], out[0], f); });
}

template <class F>
void floating2(const Call& c, Tensors& out, F f) {
  visit_floating(out[0].dtype(),
                 [&](auto zero) { map2<decltype(zero), decltype(zero)>(c.in[0], c.in[1], out[0], f); });
}

template <class F>
void compare(const Call& c, Tensors& out, F f) {
  visit_dtype(c.in[0].dtype(), [&](auto zero) { map2<decltype(zero), bool>(c.in[0], c.in[1], out[0], f); });
}

// A selection by bits, since compilers turn `?:` on two loads into a branch.
template <class T>
T pick(bool condition, T yes, T no) {
  using Small = std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>;
  using Bits =
      std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, Small>>;
  const Bits mask = static_cast<Bits>(-static_cast<Bits>(condition));
  return std::bit_cast<T>(
      static_cast<Bits>((std::bit_cast<Bits>(yes) & mask) | (std::bit_cast<Bits>(no) & ~mask)));
}

// Many: of numbers that lie one after the other, or of one number. Of bools no compiler makes vectors.
template <bool kManyYes, bool kManyNo, class T>
void pick_all(T* to, const bool* conditions, const T* yes, const T* no, int64_t n) {
  vectorized([ =, which = reinterpret_cast<const uint8_t*>(conditions) ]() __attribute__((always_inline)) {
    const T one_yes = *yes, one_no = *no;
    TROUPE_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      const T a = kManyYes ? yes[i] : one_yes, b = kManyNo ? no[i] : one_no;  // both: no branch
      to[i] = which[i] ? a : b;
    }
  });
}

// Integers wrap around instead of overflowing.
template <class T, class F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  else
    return f(a, b);
}

// Modulo 2^64; to a negative power the quotient, rounded to 0.
int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, square = static_cast<uint64_t>(base);
  for (; exponent; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return static_cast<int64_t>(result);
}

// f, for numbers; g, for integers none of which is divided by 0.
template <class F, class G>
void quotient(const Call& c, Tensors& out, F f, G g) {
  const Tensor& by = c.in[1];
  if (out[0].dtype() != int64)
    return visit_floating(out[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      map2<T, T>(c.in[0], by, out[0], f);
    });
  bool any_zero = false;
  for_each_run<1>(by.shape(), {by.strides()}, [&](const auto& at, int64_t n, const auto& step) {
    const int64_t* b = by.data<int64_t>() + at[0];
    for (int64_t i = 0; i < n; ++i) any_zero |= b[i * step[0]] == 0;
  });
  if (any_zero && out[0].numel()) throw_invalid(std::string("[") + c.name() + "] an integer is divided by 0");
  map2<int64_t, int64_t>(c.in[0], by, out[0], g);
}

// The quotient, rounded to 0; of the smallest integer by -1 that integer, modulo 2^64.
int64_t divided(int64_t a, int64_t b) {
  return b == -1 ? static_cast<int64_t>(-static_cast<uint64_t>(a)) : a / b;
}
int64_t rest(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }

// Python's: (a - remainder) / b is nearly an integer.
template <class T>
T floor_quotient(T a, T b) {
  if (b == 0) return a / b;
  const T mod = std::fmod(a, b);
  T div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
  if (div == 0) return std::copysign(T{0}, a / b);
  const T whole = std::floor(div);
  return div - whole > T{0.5} ? whole + 1 : whole;
}

}  // namespace

void add(const Call& c, Tensors& out) {
  numeric2(c, out, [](auto a, auto b) { return wrapping(a, b, [](auto x, auto y) { return x + y; }); });
}
void sub(const Call& c, Tensors& out) {
  numeric2(c, out, [](auto a, auto b) { return wrapping(a, b, [](auto x, auto y) { return x - y; }); });
}
void mul(const Call& c, Tensors& out) {
  numeric2(c, out, [](auto a, auto b) { return wrapping(a, b, [](auto x, auto y) { return x * y; }); });
}
void maximum(const Call& c, Tensors& out) {
  numeric2(c, out, [](auto a, auto b) { return ((a > b) | (a != a)) ? a : b; });
}
void minimum(const Call& c, Tensors& out) {
  numeric2(c, out, [](auto a, auto b) { return ((a < b) | (a != a)) ? a : b; });
}
void div(const Call& c, Tensors& out) {
  floating2(c, out, [](auto a, auto b) { return a / b; });
}
void pow(const Call& c, Tensors& out) {
  if (out[0].dtype() == int64)
    return map2<int64_t, int64_t>(c.in[0], c.in[1], out[0], [](int64_t a, int64_t b) { return power(a, b); });
  floating2(
      c, out, [](auto a, auto b) __attribute__((always_inline)) { return fast_pow(a, b); });
}

void add_scalar(const Call& c, Tensors& out) {
  visit_numeric(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T v = c.attrs.scalar("value").to<T>();
    map1<T, T>(c.in[0], out[0], [v](T x) { return wrapping(x, v, [](auto a, auto b) { return a + b; }); });
  });
}
void mul_scalar(const Call& c, Tensors& out) {
  visit_numeric(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T v = c.attrs.scalar("value").to<T>();
    map1<T, T>(c.in[0], out[0], [v](T x) { return wrapping(x, v, [](auto a, auto b) { return a * b; }); });
  });
}
void div_scalar(const Call& c, Tensors& out) {
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T v = c.attrs.scalar("value").to<T>();
    map1<T, T>(c.in[0], out[0], [v](T x) { return x / v; });
  });
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
    // As PyTorch, which differs from std::pow at -inf and -0.
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
void floor_divide(const Call& c, Tensors& out) {
  quotient(
      c, out, [](auto a, auto b) { return floor_quotient(a, b); },
      [](int64_t a, int64_t b) { return divided(a, b) - (rest(a, b) != 0 && (a < 0) != (b < 0)); });
}
void remainder(const Call& c, Tensors& out) {
  quotient(
      c, out,
      [](auto a, auto b) {
        const auto mod = std::fmod(a, b);
        return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
      },
      [](int64_t a, int64_t b) {
        const int64_t mod = rest(a, b);
        return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
      });
}
void fmod(const Call& c, Tensors& out) {
  quotient(
      c, out, [](auto a, auto b) { return std::fmod(a, b); }, rest);
}

void eq(const Call& c, Tensors& out) {
  compare(c, out, [](auto a, auto b) { return a == b; });
}
void lt(const Call& c, Tensors& out) {
  compare(c, out, [](auto a, auto b) { return a < b; });
}
void gt(const Call& c, Tensors& out) {
  compare(c, out, [](auto a, auto b) { return a > b; });
}
void ne(const Call& c, Tensors& out) {
  compare(c, out, [](auto a, auto b) { return a != b; });
}
void le(const Call& c, Tensors& out) {
  compare(c, out, [](auto a, auto b) { return a <= b; });
}
void ge(const Call& c, Tensors& out) {
  compare(c, out, [](auto a, auto b) { return a >= b; });
}

void where(const Call& c, Tensors& out) {
  const Shape& shape = out[0].shape();
  const bool* condition = c.in[0].data<bool>();
  visit_dtype(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *a = c.in[1].data<T>(), *b = c.in[2].data<T>();
    T* to = out[0].data<T>();
    parallel_runs<4>(shape,
                     {out[0].strides(), broadcast_strides(c.in[0], shape), broadcast_strides(c.in[1], shape),
                      broadcast_strides(c.in[2], shape)},
                     [&](const auto& at, int64_t n, const auto& step) {
                       T* o = to + at[0];
                       const bool* which = condition + at[1];
                       const T *x = a + at[2], *y = b + at[3];
                       const int64_t so = step[0], sc = step[1], sx = step[2], sy = step[3];
                       if (so != 1 || sc != 1 || sx >> 1 || sy >> 1)  // of x and y neither 0 nor 1
                         for (int64_t i = 0; i < n; ++i)
                           o[i * so] = pick(which[i * sc], x[i * sx], y[i * sy]);
                       else if (sx && sy)
                         pick_all<true, true>(o, which, x, y, n);
                       else if (sx)
                         pick_all<true, false>(o, which, x, y, n);
                       else if (sy)
                         pick_all<false, true>(o, which, x, y, n);
                       else
                         pick_all<false, false>(o, which, x, y, n);
                     });
  });
}

}  // namespace troupe::ops::cpu
