// Kernels of optim/gradient_norm.h.
#include "ops/cpu/gradient_sizes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "ops/cpu/loops/element_loop.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

constexpr int kLanes = 16;

// Contiguous, float32 if it is bfloat16 or float16.
Tensor upcast(const Tensor& t) {
  if (!is_half(t.dtype())) return t.contiguous_data();
  const Tensor wide = empty(t.shape(), float32);
  copy_elements(wide, t);
  return wide;
}

// fold(sum, x) over the elements in 16 running sums, then over those in turn.
template <class Fold>
double reduce(const Tensor& t, const Fold& fold) {
  const Tensor dense = upcast(t);
  double out = 0;
  with_type(dense, [&]<class T>(T) {
    const T* x = dense.data<T>();
    const int64_t n = dense.numel();
    double lanes[kLanes] = {};
    vectorized([ x, n, &lanes, fold ]() __attribute__((always_inline)) {
      double local[kLanes] = {};
      int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes)
        for (int l = 0; l < kLanes; ++l) local[l] = fold(local[l], static_cast<double>(x[i + l]));
      for (int l = 0; i < n; ++i, ++l) local[l] = fold(local[l], static_cast<double>(x[i]));
      for (int l = 0; l < kLanes; ++l) lanes[l] = local[l];
    });
    for (const double lane : lanes) out = fold.join(out, lane);
  });
  return out;
}

struct Squares {
  [[gnu::always_inline]] double operator()(double sum, double x) const { return sum + x * x; }
  double join(double a, double b) const { return a + b; }
};
struct Most {
  [[gnu::always_inline]] double operator()(double most, double x) const {
    const double size = std::fabs(x);
    return most >= size || most != most ? most : size;
  }
  double join(double a, double b) const { return (*this)(a, b); }
};
// The bits of |x|, which are in the order of numbers, infinity and NaN.
[[gnu::always_inline]] inline uint32_t size_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }
[[gnu::always_inline]] inline uint64_t size_bits(double x) {
  return std::bit_cast<uint64_t>(x) & 0x7fffffffffffffffu;
}

bool all_finite(const Tensor& t) {
  const Tensor dense = upcast(t);
  bool finite = true;
  with_type(dense, [&]<class T>(T) {
    using Bits = decltype(size_bits(T{}));
    Bits most = 0;
    vectorized([ x = dense.data<T>(), n = dense.numel(), &most ]() __attribute__((always_inline)) {
      Bits local = 0;
      for (int64_t i = 0; i < n; ++i) local = std::max(local, size_bits(x[i]));
      most = local;
    });
    finite = most < size_bits(std::numeric_limits<T>::infinity());
  });
  return finite;
}

double largest(const Tensor& t) { return reduce(t, Most{}); }

void gradient_sizes(const Call& c, Tensors& out) {
  const std::string& what = c.attrs.text("what");
  double* to = out[0].data<double>();
  for (size_t i = 0; i < c.in.size(); ++i)
    to[i] = what == "finite"    ? all_finite(c.in[i])
            : what == "largest" ? largest(c.in[i])
                                : sum_of_squares(c.in[i]);
}

}  // namespace

double sum_of_squares(const Tensor& t) { return reduce(t, Squares{}); }

KernelTable gradient_sizes_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"gradient_sizes_", gradient_sizes},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
