#include "optim/adamax.h"

#include "optim/element_loop.h"

namespace troupe::optim {

void Adamax::update(size_t group, const Tensor& param, const Gradient& grad, const Tensors& slots,
                    int64_t step) const {
  const Options& o = options(group);
  with_type(param, [&]<class T>(T) {
    const T beta1 = T(o.beta1), rest1 = T(1 - o.beta1), beta2 = T(o.beta2), eps = T(o.eps),
            decay = T(o.weight_decay), rate = T(o.lr / (1 - std::pow(o.beta1, static_cast<double>(step))));
    pass<T, 2>(
        param, grad, slots, [=](T & p, T grad, T & m, T & u) __attribute__((always_inline)) {
          const T g = decay == 0 ? grad : grad + decay * p;
          m = m * beta1 + rest1 * g;
          const T before = u * beta2, size = std::abs(g) + eps;
          u = before > size ? before : size;  // NaN if the gradient is
          p -= rate * m / u;
        });
  });
}

}  // namespace troupe::optim
