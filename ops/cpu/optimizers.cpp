// The updates of optim/: inputs are the gradients, and then maybe, for each parameter, what it was before, if
// it has none of these values yet; results the parameters, then each slot of all of them.
#include <cmath>

#include "core/tensor/creation.h"
#include "ops/cpu/gradient_sizes.h"
#include "ops/cpu/loops/element_loop.h"
#include "ops/dispatch/kernel_table.h"
#include "ops/dispatch/momentum.h"

namespace troupe::ops::on_cpu {
namespace {

// One parameter among those of a call.
struct Part {
  const Tensor& param;
  Tensor before;  // undefined: param has its values
  ScaledGradient grad;
  int64_t step;  // counts from 1
  const Tensors& all;
  size_t index, count;

  const Tensor& slot(size_t k) const { return all[(k + 1) * count + index]; }
  size_t slots() const { return all.size() / count - 1; }

  template <class T, size_t n, class F>
  void each(const F& f) const {
    std::array<Tensor, n> slots;
    for (size_t k = 0; k < n; ++k) slots[k] = slot(k);
    pass<T, n>(param, before, grad, slots, f);
  }
};

template <class F>
void for_each_part(const Call& c, const Tensors& out, F&& f) {
  const double scale = c.attrs.number("scale");
  const auto& steps = c.attrs.ints("steps");
  const size_t count = steps.size();
  for (size_t i = 0; i < count; ++i) {
    const Tensor before = c.in.size() > count ? c.in[count + i] : Tensor();
    f(Part{out[i], before, {c.in[i], scale}, steps[i], out, i, count});
  }
}

double power(double base, int64_t step) { return std::pow(base, static_cast<double>(step)); }

// Rates stay double and every new value is rounded once. As a float, a momentum of 0.9 is off by 2.6e-8,
// which makes every step 2.4e-7 too short: for all parameters and steps, so that it does not average out.
void sgd(const Call& c, Tensors& out) {
  const double lr = c.attrs.number("lr"), decay = c.attrs.number("weight_decay"),
               momentum = c.attrs.number("momentum"), dampening = c.attrs.number("dampening");
  const bool nesterov = c.attrs.flag("nesterov");
  for_each_part(c, out, [&](const Part& part) {
    const double before = part.step == 1 ? 0 : momentum, share = part.step == 1 ? 1 : 1 - dampening;
    with_type(part.param, [&]<class T>(T) {
      if (part.slots() == 0)
        return part.each<T, 0>([=](T & p, T grad) __attribute__((always_inline)) {
          const double old = p, g = decay == 0 ? grad : grad + decay * old;
          p = static_cast<T>(old - lr * g);
        });
      part.each<T, 1>([=](T & p, T grad, T & buf) __attribute__((always_inline)) {
        const double old = p, g = decay == 0 ? grad : grad + decay * old;
        const T b = static_cast<T>(buf * before + share * g);
        buf = b;
        p = static_cast<T>(old - lr * (nesterov ? g + momentum * b : b));
      });
    });
  });
}

// PyTorch's order of operations, but for one quotient that is a product here.
void adam_of(const Call& c, Tensors& out, bool decoupled) {
  const Attrs& o = c.attrs;
  const double lr = o.number("lr"), b1 = o.number("beta1"), b2 = o.number("beta2"), e = o.number("eps"),
               weight_decay = o.number("weight_decay");
  const bool amsgrad = o.flag("amsgrad");
  for_each_part(c, out, [&](const Part& part) {
    const double correction1 = 1 - power(b1, part.step), correction2 = 1 - power(b2, part.step);
    with_type(part.param, [&]<class T>(T) {
      const T beta1 = T(b1), rest1 = T(1 - b1), beta2 = T(b2), rest2 = T(1 - b2), eps = T(e),
              decay = T(decoupled ? 0 : weight_decay), shrink = T(decoupled ? 1 - lr * weight_decay : 1),
              step_size = T(lr / correction1), scale2 = T(1 / std::sqrt(correction2));
      const auto moments = [=](T & p, T grad, T & m, T & v) __attribute__((always_inline)) {
        const T g = decay == 0 ? grad : grad + decay * p;
        m = m * beta1 + rest1 * g;
        v = v * beta2 + rest2 * g * g;
      };
      const auto move = [=](T & p, T m, T second) __attribute__((always_inline)) {
        p = p * shrink - step_size * m / (std::sqrt(second) * scale2 + eps);
      };
      if (amsgrad)
        part.each<T, 3>([=](T & p, T g, T & m, T & v, T & most) __attribute__((always_inline)) {
          moments(p, g, m, v);
          move(p, m, most = std::max(most, v));
        });
      else
        part.each<T, 2>([=](T & p, T g, T & m, T & v) __attribute__((always_inline)) {
          moments(p, g, m, v);
          move(p, m, v);
        });
    });
  });
}
void adam(const Call& c, Tensors& out) { adam_of(c, out, false); }
void adamw(const Call& c, Tensors& out) { adam_of(c, out, true); }

void adamax(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  const double b1 = o.number("beta1");
  for_each_part(c, out, [&](const Part& part) {
    with_type(part.param, [&]<class T>(T) {
      const T beta1 = T(b1), rest1 = T(1 - b1), beta2 = T(o.number("beta2")), eps = T(o.number("eps")),
              decay = T(o.number("weight_decay")), rate = T(o.number("lr") / (1 - power(b1, part.step)));
      part.each<T, 2>([=](T & p, T grad, T & m, T & u) __attribute__((always_inline)) {
        const T g = decay == 0 ? grad : grad + decay * p;
        m = m * beta1 + rest1 * g;
        const T before = u * beta2, size = std::abs(g) + eps;
        u = before > size ? before : size;  // NaN if the gradient is
        p -= rate * m / u;
      });
    });
  });
}

void rmsprop(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  const bool is_centered = o.flag("centered"), has_momentum = o.number("momentum") > 0;
  for_each_part(c, out, [&](const Part& part) {
    with_type(part.param, [&]<class T>(T) {
      const T lr = T(o.number("lr")), alpha = T(o.number("alpha")), rest = T(1 - o.number("alpha")),
              eps = T(o.number("eps")), decay = T(o.number("weight_decay")),
              momentum = T(o.number("momentum"));
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
      if (is_centered && has_momentum)
        part.each<T, 3>([=](T & p, T g, T & v, T & mean, T & b)
                            __attribute__((always_inline)) { move(p, b, centered(p, g, v, mean)); });
      else if (is_centered)
        part.each<T, 2>([=](T & p, T g, T & v, T & mean)
                            __attribute__((always_inline)) { p -= lr * centered(p, g, v, mean); });
      else if (has_momentum)
        part.each<T, 2>([=](T & p, T g, T & v, T & b)
                            __attribute__((always_inline)) { move(p, b, plain(p, g, v)); });
      else
        part.each<T, 1>([=](T & p, T g, T & v) __attribute__((always_inline)) { p -= lr * plain(p, g, v); });
    });
  });
}

void adagrad(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  const double lr = o.number("lr"), lr_decay = o.number("lr_decay");
  for_each_part(c, out, [&](const Part& part) {
    with_type(part.param, [&]<class T>(T) {
      if (part.step == 1)
        std::fill_n(part.slot(0).template data<T>(), part.param.numel(),
                    T(o.number("initial_accumulator_value")));
      const T rate = T(lr / (1 + static_cast<double>(part.step - 1) * lr_decay)), eps = T(o.number("eps")),
              decay = T(o.number("weight_decay"));
      part.each<T, 1>([=](T & p, T grad, T & sum) __attribute__((always_inline)) {
        const T g = decay == 0 ? grad : grad + decay * p;
        sum += g * g;
        p -= rate * g / (std::sqrt(sum) + eps);
      });
    });
  });
}

void adadelta(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  for_each_part(c, out, [&](const Part& part) {
    with_type(part.param, [&]<class T>(T) {
      const T lr = T(o.number("lr")), rho = T(o.number("rho")), rest = T(1 - o.number("rho")),
              eps = T(o.number("eps")), decay = T(o.number("weight_decay"));
      part.each<T, 2>([=](T & p, T grad, T & v, T & u) __attribute__((always_inline)) {
        const T g = decay == 0 ? grad : grad + decay * p;
        v = v * rho + rest * g * g;
        const T d = std::sqrt(u + eps) / std::sqrt(v + eps) * g;
        u = u * rho + rest * d * d;
        p -= lr * d;
      });
    });
  });
}

void rprop(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  for_each_part(c, out, [&](const Part& part) {
    with_type(part.param, [&]<class T>(T) {
      if (part.step == 1) std::fill_n(part.slot(1).template data<T>(), part.param.numel(), T(o.number("lr")));
      const T minus = T(o.number("eta_minus")), plus = T(o.number("eta_plus")),
              least = T(o.number("step_min")), most = T(o.number("step_max"));
      part.each<T, 2>([=](T & p, T grad, T & previous, T & size) __attribute__((always_inline)) {
        const T turn = grad * previous;
        const bool turned = turn < 0;
        const T next = size * (turn > 0 ? plus : turned ? minus : T(1));
        size = next < least ? least : next > most ? most : next;
        const T g = turned ? T(0) : grad;
        previous = g;
        p -= g > 0 ? size : g < 0 ? -size : g;  // NaN stays to be seen
      });
    });
  });
}

void lamb(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  const double b1 = o.number("beta1"), b2 = o.number("beta2");
  for_each_part(c, out, [&](const Part& part) {
    const Tensor direction = empty(part.param.shape(), part.param.dtype());
    with_type(part.param, [&]<class T>(T) {
      const T beta1 = T(b1), rest1 = T(1 - b1), beta2 = T(b2), rest2 = T(1 - b2), eps = T(o.number("eps")),
              decay = T(o.number("weight_decay")), scale1 = T(1 / (1 - power(b1, part.step))),
              scale2 = T(1 / std::sqrt(1 - power(b2, part.step)));
      pass<T, 3>(
          part.param, part.before, part.grad, {part.slot(0), part.slot(1), direction},
          [=](T & p, T g, T & m, T & v, T & u) __attribute__((always_inline)) {
            m = m * beta1 + rest1 * g;
            v = v * beta2 + rest2 * g * g;
            u = m * scale1 / (std::sqrt(v) * scale2 + eps) + decay * p;
          });
      const double size = std::sqrt(sum_of_squares(part.param)),
                   length = std::sqrt(sum_of_squares(direction));
      const T rate = T(o.number("lr") * (size > 0 && length > 0 ? size / length : 1));
      pass<T, 0>(
          part.param, {}, {direction}, {}, [=](T & p, T u) __attribute__((always_inline)) { p -= rate * u; });
    });
  });
}

void nadam(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  const double lr = o.number("lr"), b1 = o.number("beta1"), b2 = o.number("beta2"),
               w = o.number("weight_decay"), slower = o.number("momentum_decay");
  const bool decoupled = o.flag("decoupled_weight_decay");
  for_each_part(c, out, [&](const Part& part) {
    const double now = nadam_momentum(b1, slower, part.step),
                 next = nadam_momentum(b1, slower, part.step + 1),
                 product = nadam_product(b1, slower, part.step);
    with_type(part.param, [&]<class T>(T) {
      const T beta1 = T(b1), rest1 = T(1 - b1), beta2 = T(b2), rest2 = T(1 - b2), eps = T(o.number("eps")),
              decay = T(decoupled ? 0 : w), shrink = T(decoupled ? 1 - lr * w : 1),
              scale2 = T(1 / std::sqrt(1 - power(b2, part.step))),
              by_grad = T(lr * (1 - now) / (1 - product)), by_mean = T(lr * next / (1 - product * next));
      part.each<T, 2>([=](T & p, T grad, T & m, T & v) __attribute__((always_inline)) {
        const T g = decay == 0 ? grad : grad + decay * p;
        m = m * beta1 + rest1 * g;
        v = v * beta2 + rest2 * g * g;
        p = p * shrink - (by_grad * g + by_mean * m) / (std::sqrt(v) * scale2 + eps);
      });
    });
  });
}

void radam(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  const double lr = o.number("lr"), b1 = o.number("beta1"), b2 = o.number("beta2"),
               w = o.number("weight_decay");
  const bool decoupled = o.flag("decoupled_weight_decay");
  for_each_part(c, out, [&](const Part& part) {
    const double rectified = radam_rectification(b2, part.step);
    with_type(part.param, [&]<class T>(T) {
      const T beta1 = T(b1), rest1 = T(1 - b1), beta2 = T(b2), rest2 = T(1 - b2), eps = T(o.number("eps")),
              decay = T(decoupled ? 0 : w), shrink = T(decoupled ? 1 - lr * w : 1),
              rate = T(lr / (1 - power(b1, part.step))), by_size = T(rectified);
      part.each<T, 2>([=](T & p, T grad, T & m, T & v) __attribute__((always_inline)) {
        const T g = decay == 0 ? grad : grad + decay * p;
        m = m * beta1 + rest1 * g;
        v = v * beta2 + rest2 * g * g;
        p = p * shrink - rate * m * (by_size == 0 ? T(1) : by_size / (std::sqrt(v) + eps));
      });
    });
  });
}

void lion(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  const double b1 = o.number("beta1"), b2 = o.number("beta2");
  for_each_part(c, out, [&](const Part& part) {
    with_type(part.param, [&]<class T>(T) {
      const T lr = T(o.number("lr")), beta1 = T(b1), rest1 = T(1 - b1), beta2 = T(b2), rest2 = T(1 - b2),
              shrink = T(1 - o.number("lr") * o.number("weight_decay"));
      part.each<T, 1>([=](T & p, T g, T & m) __attribute__((always_inline)) {
        const T u = m * beta1 + rest1 * g;
        p = p * shrink - (u > 0 ? lr : u < 0 ? -lr : u);  // NaN stays to be seen
        m = m * beta2 + rest2 * g;
      });
    });
  });
}

// Elements that a parameter, an input, no longer has as its master copy left them were written by somebody
// else: they are taken over.
void take_over(const Call& c, Tensors& out) {
  for (size_t i = 0; i < c.in.size(); ++i) {
    const Tensor now = c.in[i].contiguous_data();
    visit_dtype(now.dtype(), [&](auto zero) {
      using T = decltype(zero);
      if constexpr (sizeof(T) == 2) {
        float* m = out[i].data<float>();
        const T* p = now.data<T>();
        for (int64_t k = 0, n = now.numel(); k < n; ++k)
          m[k] = T(m[k]).bits == p[k].bits ? m[k] : static_cast<float>(p[k]);
      }
    });
  }
}

}  // namespace

KernelTable optimizer_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"sgd_", sgd},         {"adam_", adam},           {"adamw_", adamw},       {"adamax_", adamax},
      {"rmsprop_", rmsprop}, {"adagrad_", adagrad},     {"adadelta_", adadelta}, {"rprop_", rprop},
      {"lamb_", lamb},       {"take_over_", take_over}, {"nadam_", nadam},       {"radam_", radam},
      {"lion_", lion},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
