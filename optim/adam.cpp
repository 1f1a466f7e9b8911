#include "optim/adam.h"

#include <algorithm>

#include "optim/element_loop.h"

namespace troupe::optim {
namespace {

std::vector<std::string> names(bool amsgrad) {
  if (amsgrad) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return {"exp_avg", "exp_avg_sq"};
}

// PyTorch's order of operations, but for one quotient that is a product here.
template <class T, class Options>
void run(const Options& o, bool decoupled, const Tensor& param, const Gradient& grad, const Tensors& slots,
         int64_t step) {
  const double correction1 = 1 - std::pow(o.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(o.beta2, static_cast<double>(step));
  const T beta1 = T(o.beta1), rest1 = T(1 - o.beta1), beta2 = T(o.beta2), rest2 = T(1 - o.beta2),
          eps = T(o.eps), decay = T(decoupled ? 0 : o.weight_decay),
          shrink = T(decoupled ? 1 - o.lr * o.weight_decay : 1), step_size = T(o.lr / correction1),
          scale2 = T(1 / std::sqrt(correction2));
  const auto moments = [=](T & p, T grad, T & m, T & v) __attribute__((always_inline)) {
    const T g = decay == 0 ? grad : grad + decay * p;
    m = m * beta1 + rest1 * g;
    v = v * beta2 + rest2 * g * g;
  };
  const auto move = [=](T & p, T m, T second) __attribute__((always_inline)) {
    p = p * shrink - step_size * m / (std::sqrt(second) * scale2 + eps);
  };
  if (o.amsgrad)
    pass<T, 3>(
        param, grad, slots, [=](T & p, T g, T & m, T & v, T & most) __attribute__((always_inline)) {
          moments(p, g, m, v);
          move(p, m, most = std::max(most, v));
        });
  else
    pass<T, 2>(
        param, grad, slots, [=](T & p, T g, T & m, T & v) __attribute__((always_inline)) {
          moments(p, g, m, v);
          move(p, m, v);
        });
}

}  // namespace

std::vector<std::string> Adam::slots(size_t group) const { return names(options(group).amsgrad); }
std::vector<std::string> AdamW::slots(size_t group) const { return names(options(group).amsgrad); }

void Adam::update(size_t group, const Tensor& param, const Gradient& grad, const Tensors& slots,
                  int64_t step) const {
  with_type(param, [&]<class T>(T) { run<T>(options(group), false, param, grad, slots, step); });
}

void AdamW::update(size_t group, const Tensor& param, const Gradient& grad, const Tensors& slots,
                   int64_t step) const {
  with_type(param, [&]<class T>(T) { run<T>(options(group), true, param, grad, slots, step); });
}

}  // namespace troupe::optim
