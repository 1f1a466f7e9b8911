// Kernels of ops/logic.h.
#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

void logical_and(const Call& c, Tensors& out) {
  map2<bool, bool>(c.in[0], c.in[1], out[0], [](bool a, bool b) { return (a & b) != 0; });
}
void logical_or(const Call& c, Tensors& out) {
  map2<bool, bool>(c.in[0], c.in[1], out[0], [](bool a, bool b) { return (a | b) != 0; });
}
void logical_not(const Call& c, Tensors& out) {
  map1<bool, bool>(c.in[0], out[0], [](bool x) { return !x; });
}

}  // namespace

KernelTable logic_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"logical_and", logical_and},
      {"logical_or", logical_or},
      {"logical_not", logical_not},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
