#include "optim/lamb.h"

#include "optim/element_loop.h"
#include "optim/gradient_norm.h"

namespace troupe::optim {

void LAMB::update(size_t group, const Tensor& param, const Gradient& grad, const Tensors& slots,
                  int64_t step) const {
  const Options& o = options(group);
  const double correction1 = 1 - std::pow(o.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(o.beta2, static_cast<double>(step));
  const Tensor direction = Tensor::empty(param.shape(), param.dtype());
  with_type(param, [&]<class T>(T) {
    const T beta1 = T(o.beta1), rest1 = T(1 - o.beta1), beta2 = T(o.beta2), rest2 = T(1 - o.beta2),
            eps = T(o.eps), decay = T(o.weight_decay), scale1 = T(1 / correction1),
            scale2 = T(1 / std::sqrt(correction2));
    pass<T, 3>(
        param, grad,
        {slots[0], slots[1], direction}, [=](T & p, T g, T & m, T & v, T & u) __attribute__((always_inline)) {
          m = m * beta1 + rest1 * g;
          v = v * beta2 + rest2 * g * g;
          u = m * scale1 / (std::sqrt(v) * scale2 + eps) + decay * p;
        });
    const double size = std::sqrt(sum_of_squares(param)), length = std::sqrt(sum_of_squares(direction));
    const T rate = T(o.lr * (size > 0 && length > 0 ? size / length : 1));
    pass<T, 0>(
        param, {direction}, {}, [=](T & p, T u) __attribute__((always_inline)) { p -= rate * u; });
  });
}

}  // namespace troupe::optim
