// Kernels of ops/arithmetic.h: comparisons.
#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

template <class F>
void compare(const Tensor& a, const Tensor& b, Tensors& out, F f) {
  visit_dtype(a.dtype(), [&](auto zero) { map2<decltype(zero), bool>(a, b, out[0], f); });
}
void less(const Tensor& a, const Tensor& b, Tensors& out) {
  compare(a, b, out, [](auto x, auto y) { return x < y; });
}
void less_equal(const Tensor& a, const Tensor& b, Tensors& out) {
  compare(a, b, out, [](auto x, auto y) { return x <= y; });
}

void eq(const Call& c, Tensors& out) {
  compare(c.in[0], c.in[1], out, [](auto a, auto b) { return a == b; });
}
void ne(const Call& c, Tensors& out) {
  compare(c.in[0], c.in[1], out, [](auto a, auto b) { return a != b; });
}
void lt(const Call& c, Tensors& out) { less(c.in[0], c.in[1], out); }
void gt(const Call& c, Tensors& out) { less(c.in[1], c.in[0], out); }
void le(const Call& c, Tensors& out) { less_equal(c.in[0], c.in[1], out); }
void ge(const Call& c, Tensors& out) { less_equal(c.in[1], c.in[0], out); }

}  // namespace

KernelTable comparison_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"eq", eq}, {"lt", lt}, {"gt", gt}, {"ne", ne}, {"le", le}, {"ge", ge},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
