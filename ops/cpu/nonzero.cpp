// Kernels of ops/pick.h.
#include <algorithm>

#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

void nonzero(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  const Shape& shape = x.shape();
  int64_t* to = out[0].data<int64_t>();
  int64_t position[kMaxDims] = {};
  visit_dtype(x.dtype(), [&](auto zero) {
    const auto* in = x.data<decltype(zero)>();
    for (int64_t i = 0, n = x.numel(); i < n; ++i) {
      if (in[i] != zero) to = std::copy_n(position, shape.rank(), to);
      for (int d = shape.rank() - 1; d >= 0 && ++position[d] == shape[d]; --d) position[d] = 0;
    }
  });
}

void bincount(const Call& c, Tensors& out) {
  int64_t* counts = out[0].data<int64_t>();
  std::fill_n(counts, out[0].numel(), 0);
  for (const int64_t v : c.in[0].to_vector<int64_t>()) ++counts[v];
}

}  // namespace

KernelTable nonzero_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"nonzero", nonzero},
      {"bincount", bincount},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
