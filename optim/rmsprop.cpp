#include "optim/rmsprop.h"

#include "optim/element_loop.h"

namespace troupe::optim {

std::vector<std::string> RMSprop::slots(size_t group) const {
  std::vector<std::string> names{"square_avg"};
  if (options(group).centered) names.push_back("grad_avg");
  if (options(group).momentum > 0) names.push_back("momentum_buffer");
  return names;
}

void RMSprop::update(size_t group, const Tensor& param, const Gradient& grad, const Tensors& slots,
                     int64_t) const {
  const Options& o = options(group);
  with_type(param, [&]<class T>(T) {
    const T lr = T(o.lr), alpha = T(o.alpha), rest = T(1 - o.alpha), eps = T(o.eps),
            decay = T(o.weight_decay), momentum = T(o.momentum);
    // The gradient over its running size.
    const auto plain = [=](T p, T grad, T & v) __attribute__((always_inline)) {
      const T g = decay == 0 ? grad : grad + decay * p;
      v = v * alpha + rest * g * g;
      return g / (std::sqrt(v) + eps);
    };
    const auto centered = [=](T p, T grad, T & v, T & mean) __attribute__((always_inline)) {
      const T g = decay == 0 ? grad : grad + decay * p;
      v = v * alpha + rest * g * g;
      mean = mean * alpha + rest * g;
      return g / (std::sqrt(v - mean * mean) + eps);
    };
    const auto move = [=](T & p, T & b, T d) __attribute__((always_inline)) {
      p -= lr * (b = b * momentum + d);
    };
    if (o.centered && o.momentum > 0)
      pass<T, 3>(
          param, grad, slots, [=](T & p, T g, T & v, T & mean, T & b) __attribute__((always_inline)) {
            move(p, b, centered(p, g, v, mean));
          });
    else if (o.centered)
      pass<T, 2>(
          param, grad, slots, [=](T & p, T g, T & v, T & mean) __attribute__((always_inline)) {
            p -= lr * centered(p, g, v, mean);
          });
    else if (o.momentum > 0)
      pass<T, 2>(
          param, grad, slots, [=](T & p, T g, T & v, T & b) __attribute__((always_inline)) {
            move(p, b, plain(p, g, v));
          });
    else
      pass<T, 1>(
          param, grad,
          slots, [=](T & p, T g, T & v) __attribute__((always_inline)) { p -= lr * plain(p, g, v); });
  });
}

void Adagrad::update(size_t group, const Tensor& param, const Gradient& grad, const Tensors& slots,
                     int64_t step) const {
  const Options& o = options(group);
  if (step == 1) slots[0].fill_(o.initial_accumulator_value);
  with_type(param, [&]<class T>(T) {
    const T rate = T(o.lr / (1 + static_cast<double>(step - 1) * o.lr_decay)), eps = T(o.eps),
            decay = T(o.weight_decay);
    pass<T, 1>(
        param, grad, slots, [=](T & p, T grad, T & sum) __attribute__((always_inline)) {
          const T g = decay == 0 ? grad : grad + decay * p;
          sum += g * g;
          p -= rate * g / (std::sqrt(sum) + eps);
        });
  });
}

void Adadelta::update(size_t group, const Tensor& param, const Gradient& grad, const Tensors& slots,
                      int64_t) const {
  const Options& o = options(group);
  with_type(param, [&]<class T>(T) {
    const T lr = T(o.lr), rho = T(o.rho), rest = T(1 - o.rho), eps = T(o.eps), decay = T(o.weight_decay);
    pass<T, 2>(
        param, grad, slots, [=](T & p, T grad, T & v, T & u) __attribute__((always_inline)) {
          const T g = decay == 0 ? grad : grad + decay * p;
          v = v * rho + rest * g * g;
          const T d = std::sqrt(u + eps) / std::sqrt(v + eps) * g;
          u = u * rho + rest * d * d;
          p -= lr * d;
        });
  });
}

}  // namespace troupe::optim
