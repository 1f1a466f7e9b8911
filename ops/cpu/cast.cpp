// Kernel of ops/view.h that converts to another dtype.
#include "core/tensor/convert.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/loops/loops.h"

namespace troupe::ops::cpu {

void to(const Call& c, Tensors& out) {
  visit_dtype(c.in[0].dtype(), [&](auto from) {
    visit_dtype(out[0].dtype(), [&](auto target) {
      using T = decltype(from);
      using R = decltype(target);
      map1<T, R>(c.in[0], out[0], [](T x) { return convert<R>(x); });
    });
  });
}

}  // namespace troupe::ops::cpu
