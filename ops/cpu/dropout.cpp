// Kernel of ops/dropout.h: element i is decided by a hash of the seed and i.
#include <cmath>

#include "core/base/generator.h"
#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

void dropout(const Call& c, Tensors& out) {
  const double p = c.attrs.number("p");
  const auto seed = static_cast<uint64_t>(c.attrs.integer("seed"));
  const auto limit = static_cast<uint64_t>(std::ldexp(p, 53));  // of 53 random bits
  const Tensor x = c.in[0].contiguous_data();
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* __restrict in = x.data<T>();
    T* __restrict to = out[0].data<T>();
    const T scale = static_cast<T>(1 / (1 - p));
    parallel_ranges(x.numel(), [=](int64_t begin, int64_t end) {
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = begin; i < end; ++i) {
          const uint64_t number = splitmix64(seed + 0x9e3779b97f4a7c15 * static_cast<uint64_t>(i));
          to[i] = (number >> 11) < limit ? T{0} : in[i] * scale;
        }
      });
    });
  });
}

}  // namespace

KernelTable dropout_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"dropout", dropout},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
