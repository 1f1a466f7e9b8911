// Kernels of ops/cumulative.h.
#include <type_traits>
#include <vector>

#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

// f(first element, distance of elements) for each line along the dimension.
template <class F>
void each_line(const Around& a, F f) {
  for (int64_t o = 0; o < a.outer; ++o)
    for (int64_t j = 0; j < a.inner; ++j) f(o * a.size * a.inner + j, a.inner);
}

Around lines_of(const Call& c) {
  const Shape& shape = c.in[0].shape();
  return around(shape, shape.axis(c.attrs.integer("dim"), c.name()));
}

// Integers wrap around; float32 is multiplied in double.
void cumprod(const Call& c, Tensors& out) {
  Tensor x = c.in[0].contiguous_data();
  if (x.dtype() != out[0].dtype()) {
    const Tensor same = empty(x.shape(), out[0].dtype());
    copy_elements(same, x);
    x = same;
  }
  const Around a = lines_of(c);
  visit_numeric(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using A = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
    const T* in = x.data<T>();
    T* y = out[0].data<T>();
    each_line(a, [&](int64_t first, int64_t step) {
      A product = 1;
      for (int64_t i = 0, at = first; i < a.size; ++i, at += step)
        y[at] = static_cast<T>(product *= static_cast<A>(in[at]));
    });
  });
}

// Before the first zero of a line: the sum of what comes from here to there, through x itself; at it: what
// depends on it up to the next zero; behind it nothing.
void cumprod_grad(const Call& c, Tensors& out) {
  const Tensor grad = c.in[0].contiguous_data(), x = c.in[1].contiguous_data(), y = c.in[2].contiguous_data();
  const Around a = lines_of(c);
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *g = grad.data<T>(), *in = x.data<T>(), *product = y.data<T>();
    T* to = out[0].data<T>();
    each_line(a, [&](int64_t first, int64_t step) {
      const auto at = [=](int64_t i) { return first + i * step; };
      int64_t none = 0;  // the first zero
      while (none < a.size && in[at(none)] != 0) ++none;
      double sum = 0;
      for (int64_t i = none - 1; i >= 0; --i) {
        sum += static_cast<double>(product[at(i)]) * static_cast<double>(g[at(i)]);
        to[at(i)] = static_cast<T>(sum / static_cast<double>(in[at(i)]));
      }
      if (none == a.size) return;
      double through = static_cast<double>(g[at(none)]), behind = 1;
      for (int64_t i = none + 1; i < a.size && in[at(i)] != 0; ++i) {
        behind *= static_cast<double>(in[at(i)]);
        through += behind * static_cast<double>(g[at(i)]);
      }
      to[at(none)] = static_cast<T>(through * (none ? static_cast<double>(product[at(none - 1)]) : 1));
      for (int64_t i = none + 1; i < a.size; ++i) to[at(i)] = T{0};
    });
  });
}

}  // namespace

KernelTable cumulative_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"cumprod", cumprod},
      {"cumprod_grad", cumprod_grad},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
