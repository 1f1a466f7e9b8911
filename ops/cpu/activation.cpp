// Kernels of ops/activation.h.
#include <numbers>

#include "ops/cpu/loops/elementwise.h"
#include "ops/cpu/loops/math.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

void relu(const Call& c, Tensors& out) {
  numeric1(
      c, out, []<class T>(T x) __attribute__((always_inline)) { return x < 0 ? T{0} : x; });
}
void tanh(const Call& c, Tensors& out) {
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return fast_tanh(x); });
}
void sigmoid(const Call& c, Tensors& out) {
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return fast_sigmoid(x); });
}
void silu(const Call& c, Tensors& out) {
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return x * fast_sigmoid(x); });
}

void gelu(const Call& c, Tensors& out) {
  if (c.attrs.text("approximate") == "tanh")
    return floating1(
        c, out, [](auto x) __attribute__((always_inline)) {
          using T = decltype(x);
          const T a = static_cast<T>(std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
          return T{0.5} * x * (T{1} + fast_tanh(a * (x + static_cast<T>(0.044715) * x * x * x)));
        });
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return x * normal(x).below; });
}

// Of x P(x): P(x) + x P'(x), with P the normal distribution function or its approximation.
void gelu_grad(const Call& c, Tensors& out) {
  using std::numbers::inv_sqrtpi, std::numbers::sqrt2;
  if (c.attrs.text("approximate") == "tanh")
    return floating2(
        c, out, [](auto g, auto x) __attribute__((always_inline)) {
          using T = decltype(x);
          const T a = static_cast<T>(sqrt2 * inv_sqrtpi), k = static_cast<T>(0.044715);
          const T t = fast_tanh(a * (x + k * x * x * x));
          const T inner = a * (T{1} + 3 * k * x * x);
          return g * T{0.5} * ((T{1} + t) + x * inner * (T{1} - t * t));
        });
  floating2(
      c, out, [](auto g, auto x) __attribute__((always_inline)) {
        const auto at = normal(x);
        return g * (at.below + x * at.density);
      });
}

void softplus(const Call& c, Tensors& out) {
  floating1(
      c, out, [](auto x) __attribute__((always_inline)) { return fast_softplus(x); });
}

void leaky_relu(const Call& c, Tensors& out) {
  const double slope = c.attrs.number("negative_slope");
  floating1(
      c, out, [slope](auto x) __attribute__((always_inline)) {
        const auto below = x * static_cast<decltype(x)>(slope);  // always: else it is a branch
        return x < 0 ? below : x;
      });
}

void elu(const Call& c, Tensors& out) {
  const double alpha = c.attrs.number("alpha");
  floating1(
      c, out, [alpha](auto x) __attribute__((always_inline)) {
        const auto below = static_cast<decltype(x)>(alpha) * fast_expm1(x);
        return x > 0 ? x : below;
      });
}

void relu_grad(const Call& c, Tensors& out) {
  floating2(
      c, out, [](auto g, auto y) __attribute__((always_inline)) { return y <= 0 ? decltype(g){0} : g; });
}
void silu_grad(const Call& c, Tensors& out) {
  floating2(
      c, out, [](auto g, auto x) __attribute__((always_inline)) {
        using T = decltype(x);
        const T s = fast_sigmoid(x);
        return g * s * (T{1} + x * (T{1} - s));
      });
}
void tanh_grad(const Call& c, Tensors& out) {
  floating2(
      c, out, [](auto g, auto y) __attribute__((always_inline)) { return g * (decltype(g){1} - y * y); });
}
void sigmoid_grad(const Call& c, Tensors& out) {
  floating2(
      c, out, [](auto g, auto y) __attribute__((always_inline)) { return g * y * (decltype(g){1} - y); });
}

}  // namespace

KernelTable activation_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"relu", relu},
      {"tanh", tanh},
      {"sigmoid", sigmoid},
      {"silu", silu},
      {"gelu", gelu},
      {"gelu_grad", gelu_grad},
      {"softplus", softplus},
      {"leaky_relu", leaky_relu},
      {"elu", elu},
      {"relu_grad", relu_grad},
      {"silu_grad", silu_grad},
      {"tanh_grad", tanh_grad},
      {"sigmoid_grad", sigmoid_grad},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
