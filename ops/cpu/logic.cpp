// Kernels of ops/logic.h.
#include "ops/cpu/kernels.h"
#include "ops/cpu/loops/loops.h"

namespace troupe::ops::cpu {

void logical_and(const Call& c, Tensors& out) {
  map2<bool, bool>(c.in[0], c.in[1], out[0], [](bool a, bool b) { return (a & b) != 0; });
}
void logical_or(const Call& c, Tensors& out) {
  map2<bool, bool>(c.in[0], c.in[1], out[0], [](bool a, bool b) { return (a | b) != 0; });
}
void logical_not(const Call& c, Tensors& out) {
  map1<bool, bool>(c.in[0], out[0], [](bool x) { return !x; });
}

}  // namespace troupe::ops::cpu
