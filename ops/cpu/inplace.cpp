// Kernels of ops/inplace.h; shapes and dtypes are checked there.

#include <cmath>

#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

// a[i] = g(a[i], b[i], c[i]); halves are computed with as float.
template <class G>
void update(const Tensor& a, const Tensor& b, const Tensor& c, G g) {
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    using C = std::conditional_t<sizeof(T) == 2, float, T>;
    const auto neighbours = [](const void* function, void* to, const void* left, const void* right,
                               int64_t n) {
      vectorized([
        g = *static_cast<const G*>(function), x = static_cast<T*>(to), y = static_cast<const T*>(left),
        z = static_cast<const T*>(right),
        n
      ]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i)
          x[i] = static_cast<T>(g(static_cast<C>(x[i]), static_cast<C>(y[i]), static_cast<C>(z[i])));
      });
    };
    ops::on_cpu::run(UpdateLoop{neighbours, &g, a.data<T>(), b.data<T>(), c.data<T>()}, a, b, c);
  };
  if (a.dtype() == bfloat16)
    run(BFloat16{});
  else if (a.dtype() == float16)
    run(Float16{});
  else
    visit_floating(a.dtype(), run);
}

void add(const Call& c, Tensors& out) {
  const double alpha = c.attrs.number("alpha");
  update(out[0], c.in[0], c.in[0],
         [alpha](auto x, auto y, auto) { return x + static_cast<decltype(x)>(alpha) * y; });
}
void affine(const Call& c, Tensors& out) {
  const Tensor& a = out[0];
  const double scale = c.attrs.number("scale"), shift = c.attrs.number("shift");
  if (shift == 0)
    return update(a, a, a, [scale](auto x, auto, auto) { return x * static_cast<decltype(x)>(scale); });
  update(a, a, a, [scale, shift](auto x, auto, auto) {
    return x * static_cast<decltype(x)>(scale) + static_cast<decltype(x)>(shift);
  });
}
void addcmul(const Call& c, Tensors& out) {
  const double value = c.attrs.number("value");
  update(out[0], c.in[0], c.in[1],
         [value](auto x, auto y, auto z) { return x + static_cast<decltype(x)>(value) * y * z; });
}
void addcdiv(const Call& c, Tensors& out) {
  const double value = c.attrs.number("value");
  update(out[0], c.in[0], c.in[1],
         [value](auto x, auto y, auto z) { return x + static_cast<decltype(x)>(value) * y / z; });
}
void lerp(const Call& c, Tensors& out) {
  const double weight = c.attrs.number("weight");
  if (std::fabs(weight) < 0.5)  // as ops::lerp
    return update(out[0], c.in[0], c.in[0],
                  [weight](auto x, auto y, auto) { return x + static_cast<decltype(x)>(weight) * (y - x); });
  update(out[0], c.in[0], c.in[0],
         [rest = 1 - weight](auto x, auto y, auto) { return y - static_cast<decltype(x)>(rest) * (y - x); });
}
void maximum(const Call& c, Tensors& out) {
  update(out[0], c.in[0], c.in[0], [](auto x, auto y, auto) { return x > y || x != x ? x : y; });
}
void sqrt(const Call&, Tensors& out) {
  update(out[0], out[0], out[0], [](auto x, auto, auto) { return std::sqrt(x); });
}

}  // namespace

KernelTable inplace_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"add_", add},   {"affine_", affine},   {"addcmul_", addcmul}, {"addcdiv_", addcdiv},
      {"lerp_", lerp}, {"maximum_", maximum}, {"sqrt_", sqrt},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
