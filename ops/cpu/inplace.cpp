#include "ops/cpu/inplace.h"

#include <cmath>

#include "ops/cpu/loops/loops.h"

namespace troupe::ops::cpu {
namespace {

// a[i] = g(a[i], b[i], c[i]); halves are computed with as float.
template <class G>
void update(const Tensor& a, const Tensor& b, const Tensor& c, G g) {
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    using C = std::conditional_t<sizeof(T) == 2, float, T>;
    const auto f = [g](T x, T y, T z) {
      return static_cast<T>(g(static_cast<C>(x), static_cast<C>(y), static_cast<C>(z)));
    };
    T* pa = a.data<T>();
    const T *pb = b.data<T>(), *pc = c.data<T>();
    parallel_runs<3>(a.shape(), {a.strides(), b.strides(), c.strides()},
                     [&](const auto& at, int64_t n, const auto& step) {
                       T* x = pa + at[0];
                       const T *y = pb + at[1], *z = pc + at[2];
                       const int64_t sx = step[0], sy = step[1], sz = step[2];
                       if (sx == 1 && sy == 1 && sz == 1)
                         vectorized([=]() __attribute__((always_inline)) {
                           for (int64_t i = 0; i < n; ++i) x[i] = f(x[i], y[i], z[i]);
                         });
                       else
                         for (int64_t i = 0; i < n; ++i) x[i * sx] = f(x[i * sx], y[i * sy], z[i * sz]);
                     });
  };
  if (a.dtype() == bfloat16)
    run(BFloat16{});
  else if (a.dtype() == float16)
    run(Float16{});
  else
    visit_floating(a.dtype(), run);
}

}  // namespace

void add_(const Tensor& a, const Tensor& b, double alpha) {
  update(a, b, b, [alpha](auto x, auto y, auto) { return x + static_cast<decltype(x)>(alpha) * y; });
}
void affine_(const Tensor& a, double scale, double shift) {
  if (shift == 0)
    return update(a, a, a, [scale](auto x, auto, auto) { return x * static_cast<decltype(x)>(scale); });
  update(a, a, a, [scale, shift](auto x, auto, auto) {
    return x * static_cast<decltype(x)>(scale) + static_cast<decltype(x)>(shift);
  });
}
void addcmul_(const Tensor& a, const Tensor& b, const Tensor& c, double value) {
  update(a, b, c, [value](auto x, auto y, auto z) { return x + static_cast<decltype(x)>(value) * y * z; });
}
void addcdiv_(const Tensor& a, const Tensor& b, const Tensor& c, double value) {
  update(a, b, c, [value](auto x, auto y, auto z) { return x + static_cast<decltype(x)>(value) * y / z; });
}
void lerp_(const Tensor& a, const Tensor& b, double weight) {
  update(a, b, b, [weight](auto x, auto y, auto) { return x + static_cast<decltype(x)>(weight) * (y - x); });
}
void maximum_(const Tensor& a, const Tensor& b) {
  update(a, b, b, [](auto x, auto y, auto) { return x > y || x != x ? x : y; });
}
void sqrt_(const Tensor& a) {
  update(a, a, a, [](auto x, auto, auto) { return std::sqrt(x); });
}

}  // namespace troupe::ops::cpu
