#include "optim/sgd.h"

#include "optim/element_loop.h"

namespace troupe::optim {

void SGDOptions::check() const {
  if (nesterov && (momentum == 0 || dampening != 0))
    throw_invalid("[sgd] nesterov needs momentum above 0 and no dampening");
}

std::vector<std::string> SGD::slots(size_t group) const {
  if (options(group).momentum == 0) return {};
  return {"momentum_buffer"};
}

// Rates stay double and every new value is rounded once. As a float, a momentum of 0.9 is off by 2.6e-8,
// which makes every step 2.4e-7 too short: for all parameters and steps, so that it does not average out.
void SGD::update(size_t group, const Tensor& param, const Gradient& grad, const Tensors& slots,
                 int64_t step) const {
  const Options& o = options(group);
  const double lr = o.lr, decay = o.weight_decay, momentum = o.momentum;
  const double before = step == 1 ? 0 : momentum, share = step == 1 ? 1 : 1 - o.dampening;
  const bool nesterov = o.nesterov;
  with_type(param, [&]<class T>(T) {
    if (slots.empty())
      return pass<T, 0>(
          param, grad, slots, [=](T & p, T grad) __attribute__((always_inline)) {
            const double old = p, g = decay == 0 ? grad : grad + decay * old;
            p = static_cast<T>(old - lr * g);
          });
    pass<T, 1>(
        param, grad, slots, [=](T & p, T grad, T & buf) __attribute__((always_inline)) {
          const double old = p, g = decay == 0 ? grad : grad + decay * old;
          const T b = static_cast<T>(buf * before + share * g);
          buf = b;
          p = static_cast<T>(old - lr * (nesterov ? g + momentum * b : b));
        });
  });
}

}  // namespace troupe::optim
