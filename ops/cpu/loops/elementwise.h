// Kernels that make each element by f from one or two operands, in the dtype of the result.
#pragma once
#include "ops/cpu/loops/loops.h"

namespace troupe::ops::on_cpu {

template <class F>
void numeric1(const Call& c, Tensors& out, F f) {
  visit_numeric(
      out[0].dtype(), [&](auto zero) __attribute__((always_inline)) {
        map1<decltype(zero), decltype(zero)>(c.in[0], out[0], f);
      });
}

template <class F>
void floating1(const Call& c, Tensors& out, F f) {
  visit_floating(
      out[0].dtype(), [&](auto zero) __attribute__((always_inline)) {
        map1<decltype(zero), decltype(zero)>(c.in[0], out[0], f);
      });
}

template <class F>
void floating2(const Call& c, Tensors& out, F f) {
  visit_floating(
      out[0].dtype(), [&](auto zero) __attribute__((always_inline)) {
        map2<decltype(zero), decltype(zero)>(c.in[0], c.in[1], out[0], f);
      });
}

}  // namespace troupe::ops::on_cpu
