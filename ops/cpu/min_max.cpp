// Kernels of ops/extremes.h. A NaN is larger and smaller than every number.
#include <algorithm>
#include <limits>
#include <vector>

#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

template <class T>
bool not_a_number(T v) {
  return v != v;
}

// The first best place of n elements, `step` apart.
template <class T, class F>
int64_t best_place(const T* line, int64_t n, int64_t step, F better) {
  int64_t best = 0;
  for (int64_t i = 1; i < n && !not_a_number(line[best * step]); ++i)
    if (better(line[i * step], line[best * step]) || not_a_number(line[i * step])) best = i;
  return best;
}

template <class F>
void best_of_all(const Call& c, Tensors& out, F better) {
  const Tensor x = c.in[0].contiguous_data();
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* in = x.data<T>();
    *out[0].data<T>() = in[best_place(in, x.numel(), 1, better)];
  });
}

template <class F>
void best_along(const Call& c, Tensors& out, F better) {
  const Tensor x = c.in[0].contiguous_data();
  const Around a = around(x.shape(), x.shape().axis(c.attrs.integer("dim"), c.name()));
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* in = x.data<T>();
    T* values = out[0].data<T>();
    int64_t* places = out[1].data<int64_t>();
    for (int64_t o = 0; o < a.outer; ++o)
      for (int64_t j = 0; j < a.inner; ++j) {
        const T* line = in + o * a.size * a.inner + j;
        *places = best_place(line, a.size, a.inner, better);
        *values++ = line[*places++ * a.inner];
      }
  });
}

constexpr auto kLarger = [](auto v, auto best) { return v > best; };
constexpr auto kSmaller = [](auto v, auto best) { return v < best; };

void max(const Call& c, Tensors& out) { best_of_all(c, out, kLarger); }
void min(const Call& c, Tensors& out) { best_of_all(c, out, kSmaller); }
void max_along(const Call& c, Tensors& out) { best_along(c, out, kLarger); }
void min_along(const Call& c, Tensors& out) { best_along(c, out, kSmaller); }

void median(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  visit_numeric(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* in = x.data<T>();
    std::vector<T> all(in, in + x.numel());
    T& to = *out[0].data<T>();
    const auto odd = std::find_if(all.begin(), all.end(), [](T v) { return not_a_number(v); });
    if (all.empty()) {
      if constexpr (!std::is_integral_v<T>) to = std::numeric_limits<T>::quiet_NaN();
    } else if (odd != all.end()) {
      to = *odd;
    } else {
      const auto middle = all.begin() + static_cast<int64_t>((all.size() - 1) / 2);
      std::nth_element(all.begin(), middle, all.end(), [](T a, T b) { return a < b; });
      to = *middle;
    }
  });
}

}  // namespace

KernelTable min_max_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"max", max}, {"min", min}, {"max_along", max_along}, {"min_along", min_along}, {"median", median},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
