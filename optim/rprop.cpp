#include "optim/rprop.h"

#include "optim/element_loop.h"

namespace troupe::optim {

void RpropOptions::check() const {
  if (step_min > step_max)
    throw_invalid("[rprop] step_min must be at most step_max, got " + std::to_string(step_min) + " and " +
                  std::to_string(step_max));
}

void Rprop::update(size_t group, const Tensor& param, const Gradient& grad, const Tensors& slots,
                   int64_t step) const {
  const Options& o = options(group);
  if (step == 1) slots[1].fill_(o.lr);
  with_type(param, [&]<class T>(T) {
    const T minus = T(o.eta_minus), plus = T(o.eta_plus), least = T(o.step_min), most = T(o.step_max);
    pass<T, 2>(
        param, grad, slots, [=](T & p, T grad, T & previous, T & size) __attribute__((always_inline)) {
          const T turn = grad * previous;
          const bool turned = turn < 0;
          const T next = size * (turn > 0 ? plus : turned ? minus : T(1));
          size = next < least ? least : next > most ? most : next;
          const T g = turned ? T(0) : grad;
          previous = g;
          p -= g > 0 ? size : g < 0 ? -size : g;  // NaN stays to be seen
        });
  });
}

}  // namespace troupe::optim
