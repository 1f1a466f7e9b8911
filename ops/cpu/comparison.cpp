// Kernels of ops/arithmetic.h: comparisons.
#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

template <class F>
void compare(const Call& c, Tensors& out, F f) {
  visit_dtype(c.in[0].dtype(), [&](auto zero) { map2<decltype(zero), bool>(c.in[0], c.in[1], out[0], f); });
}

void eq(const Call& c, Tensors& out) {
  compare(c, out, [](auto a, auto b) { return a == b; });
}
void lt(const Call& c, Tensors& out) {
  compare(c, out, [](auto a, auto b) { return a < b; });
}
void gt(const Call& c, Tensors& out) {
  compare(c, out, [](auto a, auto b) { return a > b; });
}
void ne(const Call& c, Tensors& out) {
  compare(c, out, [](auto a, auto b) { return a != b; });
}
void le(const Call& c, Tensors& out) {
  compare(c, out, [](auto a, auto b) { return a <= b; });
}
void ge(const Call& c, Tensors& out) {
  compare(c, out, [](auto a, auto b) { return a >= b; });
}

}  // namespace

KernelTable comparison_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"eq", eq}, {"lt", lt}, {"gt", gt}, {"ne", ne}, {"le", le}, {"ge", ge},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
