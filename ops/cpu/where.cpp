// Kernel of ops/arithmetic.h that selects.
#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

// An element is its bits here. Many: of those that lie one after the other, or of one number. Of bools no
// compiler makes vectors.
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

void where(const Call& c, Tensors& out) {
  const Shape& shape = out[0].shape();
  const bool* condition = c.in[0].data<bool>();
  const auto of = [&](auto zero) {
    using T = decltype(zero);
    const auto* a = reinterpret_cast<const T*>(c.in[1].bytes());
    const auto* b = reinterpret_cast<const T*>(c.in[2].bytes());
    T* to = reinterpret_cast<T*>(out[0].bytes());
    parallel_runs<4>(shape,
                     {out[0].strides(), broadcast_strides(c.in[0], shape), broadcast_strides(c.in[1], shape),
                      broadcast_strides(c.in[2], shape)},
                     [&](const auto& at, int64_t n, const auto& step) {
                       T* o = to + at[0];
                       const bool* which = condition + at[1];
                       const T *x = a + at[2], *y = b + at[3];
                       const int64_t so = step[0], sc = step[1], sx = step[2], sy = step[3];
                       if (so != 1 || sc != 1 || sx >> 1 || sy >> 1)  // of x and y neither 0 nor 1
                         for (int64_t i = 0; i < n; ++i) {
                           const T mask = static_cast<T>(-static_cast<T>(which[i * sc]));  // no branch
                           o[i * so] =
                               static_cast<T>((x[i * sx] & mask) | (y[i * sy] & static_cast<T>(~mask)));
                         }
                       else if (sx && sy)
                         pick_all<true, true>(o, which, x, y, n);
                       else if (sx)
                         pick_all<true, false>(o, which, x, y, n);
                       else if (sy)
                         pick_all<false, true>(o, which, x, y, n);
                       else
                         pick_all<false, false>(o, which, x, y, n);
                     });
  };
  switch (item_size(out[0].dtype())) {
    case 1:
      return of(uint8_t{});
    case 2:
      return of(uint16_t{});
    case 4:
      return of(uint32_t{});
    default:
      return of(uint64_t{});
  }
}

}  // namespace

KernelTable where_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"where", where},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
