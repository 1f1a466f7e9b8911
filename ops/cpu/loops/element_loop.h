// The one loop of all optimizers: over the elements of a parameter, its gradient and its state.
#pragma once
#include <algorithm>
#include <array>
#include <utility>

#include "core/tensor/tensor.h"
#include "ops/cpu/loops/simd.h"

namespace troupe::ops::on_cpu {

/// What one update is made of: `scale` times the gradient, rounded once.
struct ScaledGradient {
  Tensor tensor;
  double scale = 1;
};

/// f(p, g, s...) for every element of param, grad and slots: p and s are references, g a value. f must be a
/// lambda marked [[gnu::always_inline]]. The tensors are contiguous, of dtype T and distinct. `before`, if it
/// is defined, has the values that param has yet to get.
template <class T, class F, size_t... k>
void pass(std::index_sequence<k...>, const Tensor& param, const Tensor& before, const ScaledGradient& grad,
          const std::array<T*, sizeof...(k)>& slots, const F& f) {
  T* p = param.data<T>();
  const T* old = before.defined() ? before.data<T>() : nullptr;
  const T* g = grad.tensor.data<T>();
  const T scale = static_cast<T>(grad.scale);
  const int64_t n = param.numel();
  // From the end: what looked at the gradient before has the end of it in the cache, and who copies the
  // parameter next begins at its beginning.
  constexpr int64_t kBlock = 1 << 13;
  vectorized([=]() __attribute__((always_inline)) {  // roots and quotients take the time here
    for (int64_t begin = (n - 1) / kBlock * kBlock; begin >= 0; begin -= kBlock) {
      const int64_t end = std::min(n, begin + kBlock);
      if (old) std::copy(old + begin, old + end, p + begin);  // a block of it stays in the cache
      TROUPE_INDEPENDENT
      for (int64_t i = begin; i < end; ++i) f(p[i], g[i] * scale, slots[k][i]...);
    }
  });
}

template <class T, size_t count, class F>
void pass(const Tensor& param, const Tensor& before, const ScaledGradient& grad,
          const std::array<Tensor, count>& slots, const F& f) {
  std::array<T*, count> at{};
  for (size_t k = 0; k < count; ++k) at[k] = slots[k].template data<T>();
  pass<T>(std::make_index_sequence<count>{}, param, before, grad, at, f);
}

/// Calls run(double{}) or run(float{}): the element type.
template <class F>
void with_type(const Tensor& t, F&& run) {
  t.dtype() == float64 ? run(double{}) : run(float{});
}

}  // namespace troupe::ops::on_cpu
