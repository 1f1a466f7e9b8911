// Kernel of ops/view.h that converts to another dtype.
#include "core/tensor/convert.h"
#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

void to(const Call& c, Tensors& out) {
  visit_dtype(c.in[0].dtype(), [&](auto from) {
    visit_dtype(out[0].dtype(), [&](auto target) {
      using T = decltype(from);
      using R = decltype(target);
      map1<T, R>(c.in[0], out[0], [](T x) { return convert<R>(x); });
    });
  });
}

}  // namespace

KernelTable cast_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"to", to},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
