// The updates of optim/: inputs are the gradients; results the parameters, then each slot of all of them. Of
// parameters in halves, results are these, then their float32 master copies, then the slots.
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "ops/cuda/passes.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/dispatch/momentum.h"

namespace troupe::ops::on_cuda {
namespace {

// One parameter among those of a call.
struct Part {
  const Call& call;
  const Tensor &param, &grad;  // param: the master copy of halves
  Tensor rounded;              // the halves
  double scale;
  int64_t step;  // counts from 1
  std::span<const Tensor> all_slots;
  size_t index, count;
  Queue& queue;

  Tensor slot(size_t k) const { return all_slots[k * count + index]; }
  size_t slots() const { return all_slots.size() / count; }

  template <class T, int N, class F>
  void each(const F& f) const {
    T* at[3] = {};
    for (int k = 0; k < N; ++k) at[k] = elements<T>(slot(static_cast<size_t>(k)));
    with_pass<T, N>(grad, at, scale, f, [&](const auto& pass) { queue.add(param.numel(), pass); });
  }
  // go(pass) with what takes f over `from` in the place of the gradient.
  template <class T, int N, class F, class Go>
  void with_pass(const Tensor& from, T* const (&at)[3], double by, const F& f, Go&& go) const {
    if constexpr (std::is_same_v<T, float>)
      if (rounded.defined()) {
        const auto of = [&](auto zero) {
          using H = decltype(zero);
          const bool half = is_half(from.dtype());
          go(RoundedPass<H, N, F>{
              elements<H>(rounded), elements<float>(param), half ? elements<const H>(from) : nullptr,
              half ? nullptr : elements<const float>(from), at[0], at[1], at[2], static_cast<float>(by), f});
        };
        return rounded.dtype() == bfloat16 ? of(BFloat16{}) : of(Float16{});
      }
    go(Pass<T, N, F>{elements<T>(param), elements<const T>(from), at[0], at[1], at[2], static_cast<T>(by),
                     f});
  }
};

// f(part, zero of its type) for all.
template <class F>
void for_each_part(const Call& c, const Tensors& out, F&& f) {
  const double scale = c.attrs.number("scale");
  const auto& steps = c.attrs.ints("steps");
  const size_t n = steps.size();
  if (n == 0) return;
  const bool halves = is_half(out[0].dtype());
  const std::span<const Tensor> updated = std::span(out).subspan(halves ? n : 0);
  Queue queue(c.name(), out[0].device());
  for (size_t i = 0; i < n; ++i)
    visit_floating(updated[i].dtype(), [&](auto zero) {
      f(Part{c, updated[i], c.in[i], halves ? out[i] : Tensor(), scale, steps[i], updated.subspan(n), i, n,
             queue},
        zero);
    });
  queue.run();
}

double power(double base, int64_t step) { return std::pow(base, static_cast<double>(step)); }

// Rates stay double and every new value is rounded once. As a float, a momentum of 0.9 is off by 2.6e-8,
// which makes every step 2.4e-7 too short: for all parameters and steps, so that it does not average out.
struct Sgd {
  double lr, decay, momentum, before, share;
  bool nesterov;
  template <class T>
  __device__ void operator()(T& p, T grad) const {
    const double old = p, g = decay == 0 ? grad : grad + decay * old;
    p = static_cast<T>(old - lr * g);
  }
  template <class T>
  __device__ void operator()(T& p, T grad, T& buf) const {
    const double old = p, g = decay == 0 ? grad : grad + decay * old;
    const T b = static_cast<T>(buf * before + share * g);
    buf = b;
    p = static_cast<T>(old - lr * (nesterov ? g + momentum * b : b));
  }
};
void sgd(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  Sgd f{o.number("lr"), o.number("weight_decay"), o.number("momentum"), 0, 1, o.flag("nesterov")};
  for_each_part(c, out, [&](const Part& part, auto zero) {
    using T = decltype(zero);
    f.before = part.step == 1 ? 0 : f.momentum;
    f.share = part.step == 1 ? 1 : 1 - o.number("dampening");
    part.slots() == 0 ? part.each<T, 0>(f) : part.each<T, 1>(f);
  });
}

// PyTorch's order of operations, but for one quotient that is a product here.
template <class T>
struct Adam {
  T beta1, rest1, beta2, rest2, eps, decay, shrink, step_size, scale2;
  __device__ void moments(T p, T grad, T& m, T& v) const {
    const T g = decay == 0 ? grad : grad + decay * p;
    m = m * beta1 + rest1 * g;
    v = v * beta2 + rest2 * g * g;
  }
  __device__ void move(T& p, T m, T second) const {
    p = p * shrink - step_size * m / (std::sqrt(second) * scale2 + eps);
  }
  __device__ void operator()(T& p, T g, T& m, T& v) const {
    moments(p, g, m, v);
    move(p, m, v);
  }
  __device__ void operator()(T& p, T g, T& m, T& v, T& most) const {
    moments(p, g, m, v);
    most = most < v ? v : most;
    move(p, m, most);
  }
};
template <bool decoupled>
void adam(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  const double lr = o.number("lr"), b1 = o.number("beta1"), b2 = o.number("beta2"),
               decay = o.number("weight_decay");
  for_each_part(c, out, [&](const Part& part, auto zero) {
    using T = decltype(zero);
    const double correction1 = 1 - power(b1, part.step), correction2 = 1 - power(b2, part.step);
    const Adam<T> f{T(b1),
                    T(1 - b1),
                    T(b2),
                    T(1 - b2),
                    T(o.number("eps")),
                    T(decoupled ? 0 : decay),
                    T(decoupled ? 1 - lr * decay : 1),
                    T(lr / correction1),
                    T(1 / std::sqrt(correction2))};
    o.flag("amsgrad") ? part.each<T, 3>(f) : part.each<T, 2>(f);
  });
}

template <class T>
struct Adamax {
  T beta1, rest1, beta2, eps, decay, rate;
  __device__ void operator()(T& p, T grad, T& m, T& u) const {
    const T g = decay == 0 ? grad : grad + decay * p;
    m = m * beta1 + rest1 * g;
    const T before = u * beta2, size = std::fabs(g) + eps;
    u = before > size ? before : size;  // NaN if the gradient is
    p -= rate * m / u;
  }
};
void adamax(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  const double b1 = o.number("beta1");
  for_each_part(c, out, [&](const Part& part, auto zero) {
    using T = decltype(zero);
    part.each<T, 2>(Adamax<T>{T(b1), T(1 - b1), T(o.number("beta2")), T(o.number("eps")),
                              T(o.number("weight_decay")), T(o.number("lr") / (1 - power(b1, part.step)))});
  });
}

template <class T, bool is_centered, bool has_momentum>
struct Rmsprop {
  T lr, alpha, rest, eps, decay, momentum;
  __device__ T gradient(T p, T grad) const { return decay == 0 ? grad : grad + decay * p; }
  // The gradient over its running size.
  __device__ T plain(T p, T grad, T& v) const {
    const T g = gradient(p, grad);
    v = v * alpha + rest * g * g;
    return g / (std::sqrt(v) + eps);
  }
  __device__ T centered(T p, T grad, T& v, T& mean) const {
    const T g = gradient(p, grad);
    v = v * alpha + rest * g * g;
    mean = mean * alpha + rest * g;
    return g / (std::sqrt(v - mean * mean) + eps);
  }
  __device__ void move(T& p, T& b, T d) const { p -= lr * (b = b * momentum + d); }

  __device__ void operator()(T& p, T g, T& v) const { p -= lr * plain(p, g, v); }
  __device__ void operator()(T& p, T g, T& v, T& other) const {
    if constexpr (is_centered)
      p -= lr * centered(p, g, v, other);
    else
      move(p, other, plain(p, g, v));
  }
  __device__ void operator()(T& p, T g, T& v, T& mean, T& b) const { move(p, b, centered(p, g, v, mean)); }
};
void rmsprop(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  const bool centered = o.flag("centered"), momentum = o.number("momentum") > 0;
  for_each_part(c, out, [&](const Part& part, auto zero) {
    using T = decltype(zero);
    const T lr = T(o.number("lr")), alpha = T(o.number("alpha")), rest = T(1 - o.number("alpha")),
            eps = T(o.number("eps")), decay = T(o.number("weight_decay")), by = T(o.number("momentum"));
    if (centered && momentum)
      part.each<T, 3>(Rmsprop<T, true, true>{lr, alpha, rest, eps, decay, by});
    else if (centered)
      part.each<T, 2>(Rmsprop<T, true, false>{lr, alpha, rest, eps, decay, by});
    else if (momentum)
      part.each<T, 2>(Rmsprop<T, false, true>{lr, alpha, rest, eps, decay, by});
    else
      part.each<T, 1>(Rmsprop<T, false, false>{lr, alpha, rest, eps, decay, by});
  });
}

template <class T>
struct Adagrad {
  T rate, eps, decay;
  __device__ void operator()(T& p, T grad, T& sum) const {
    const T g = decay == 0 ? grad : grad + decay * p;
    sum += g * g;
    p -= rate * g / (std::sqrt(sum) + eps);
  }
};
void adagrad(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  for_each_part(c, out, [&](const Part& part, auto zero) {
    using T = decltype(zero);
    if (part.step == 1) fill_elements(part.slot(0), o.number("initial_accumulator_value"));
    const double later = 1 + static_cast<double>(part.step - 1) * o.number("lr_decay");
    part.each<T, 1>(Adagrad<T>{T(o.number("lr") / later), T(o.number("eps")), T(o.number("weight_decay"))});
  });
}

template <class T>
struct Adadelta {
  T lr, rho, rest, eps, decay;
  __device__ void operator()(T& p, T grad, T& v, T& u) const {
    const T g = decay == 0 ? grad : grad + decay * p;
    v = v * rho + rest * g * g;
    const T d = std::sqrt(u + eps) / std::sqrt(v + eps) * g;
    u = u * rho + rest * d * d;
    p -= lr * d;
  }
};
void adadelta(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  for_each_part(c, out, [&](const Part& part, auto zero) {
    using T = decltype(zero);
    part.each<T, 2>(Adadelta<T>{T(o.number("lr")), T(o.number("rho")), T(1 - o.number("rho")),
                                T(o.number("eps")), T(o.number("weight_decay"))});
  });
}

template <class T>
struct Rprop {
  T minus, plus, least, most;
  __device__ void operator()(T& p, T grad, T& previous, T& size) const {
    const T turn = grad * previous;
    const bool turned = turn < 0;
    const T next = size * (turn > 0 ? plus : turned ? minus : T(1));
    size = next < least ? least : next > most ? most : next;
    const T g = turned ? T(0) : grad;
    previous = g;
    p -= g > 0 ? size : g < 0 ? -size : g;  // NaN stays to be seen
  }
};
void rprop(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  for_each_part(c, out, [&](const Part& part, auto zero) {
    using T = decltype(zero);
    if (part.step == 1) fill_elements(part.slot(1), o.number("lr"));
    part.each<T, 2>(Rprop<T>{T(o.number("eta_minus")), T(o.number("eta_plus")), T(o.number("step_min")),
                             T(o.number("step_max"))});
  });
}

template <class T>
struct LambDirection {
  T beta1, rest1, beta2, rest2, eps, decay, scale1, scale2;
  __device__ void operator()(T& p, T g, T& m, T& v, T& u) const {
    m = m * beta1 + rest1 * g;
    v = v * beta2 + rest2 * g * g;
    u = m * scale1 / (std::sqrt(v) * scale2 + eps) + decay * p;
  }
};
// The squares of both norms are on the device: nobody waits for them.
template <class T>
struct LambMove {
  const double* squares;
  double lr;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, squares);
  }
  __device__ void operator()(T& p, T u) const {
    const double size = std::sqrt(squares[0]), length = std::sqrt(squares[1]);
    p -= static_cast<T>(lr * (size > 0 && length > 0 ? size / length : 1)) * u;
  }
};
void lamb(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  const double b1 = o.number("beta1"), b2 = o.number("beta2");
  for_each_part(c, out, [&](const Part& part, auto zero) {
    using T = decltype(zero);
    const Device device = part.param.device();
    const int64_t n = part.param.numel();
    const Tensor direction = empty(part.param.shape(), {part.param.dtype(), device}),
                 sizes = empty({2}, {float64, device});
    T *p = elements<T>(part.param), *u = elements<T>(direction);
    double* squares = elements<double>(sizes);
    const LambDirection<T> f{T(b1),
                             T(1 - b1),
                             T(b2),
                             T(1 - b2),
                             T(o.number("eps")),
                             T(o.number("weight_decay")),
                             T(1 / (1 - power(b1, part.step))),
                             T(1 / std::sqrt(1 - power(b2, part.step)))};
    const auto go = [&](const auto& pass) { for_each(c.name(), device, n, pass); };
    part.template with_pass<T, 3>(part.grad, {elements<T>(part.slot(0)), elements<T>(part.slot(1)), u},
                                  part.scale, f, go);
    reduce<double>(c.name(), device, {1, n, 1}, static_cast<const T*>(p), squares, SumOfSquares<T, double>{});
    reduce<double>(c.name(), device, {1, n, 1}, static_cast<const T*>(u), squares + 1,
                   SumOfSquares<T, double>{});
    const LambMove<T> move{squares, o.number("lr")};
    part.template with_pass<T, 0>(direction, {nullptr, nullptr, nullptr}, 1, move, go);
  });
}

template <class T>
struct NAdam {
  T beta1, rest1, beta2, rest2, eps, decay, shrink, scale2, by_grad, by_mean;
  __device__ void operator()(T& p, T grad, T& m, T& v) const {
    const T g = decay == 0 ? grad : grad + decay * p;
    m = m * beta1 + rest1 * g;
    v = v * beta2 + rest2 * g * g;
    p = p * shrink - (by_grad * g + by_mean * m) / (std::sqrt(v) * scale2 + eps);
  }
};
void nadam(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  const double lr = o.number("lr"), b1 = o.number("beta1"), b2 = o.number("beta2"),
               w = o.number("weight_decay"), slower = o.number("momentum_decay");
  const bool decoupled = o.flag("decoupled_weight_decay");
  for_each_part(c, out, [&](const Part& part, auto zero) {
    using T = decltype(zero);
    const double now = nadam_momentum(b1, slower, part.step),
                 next = nadam_momentum(b1, slower, part.step + 1),
                 product = nadam_product(b1, slower, part.step);
    part.each<T, 2>(NAdam<T>{T(b1), T(1 - b1), T(b2), T(1 - b2), T(o.number("eps")), T(decoupled ? 0 : w),
                             T(decoupled ? 1 - lr * w : 1), T(1 / std::sqrt(1 - power(b2, part.step))),
                             T(lr * (1 - now) / (1 - product)), T(lr * next / (1 - product * next))});
  });
}

template <class T>
struct RAdam {
  T beta1, rest1, beta2, rest2, eps, decay, shrink, rate, by_size;
  __device__ void operator()(T& p, T grad, T& m, T& v) const {
    const T g = decay == 0 ? grad : grad + decay * p;
    m = m * beta1 + rest1 * g;
    v = v * beta2 + rest2 * g * g;
    p = p * shrink - rate * m * (by_size == 0 ? T(1) : by_size / (std::sqrt(v) + eps));
  }
};
void radam(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  const double lr = o.number("lr"), b1 = o.number("beta1"), b2 = o.number("beta2"),
               w = o.number("weight_decay");
  const bool decoupled = o.flag("decoupled_weight_decay");
  for_each_part(c, out, [&](const Part& part, auto zero) {
    using T = decltype(zero);
    part.each<T, 2>(RAdam<T>{T(b1), T(1 - b1), T(b2), T(1 - b2), T(o.number("eps")), T(decoupled ? 0 : w),
                             T(decoupled ? 1 - lr * w : 1), T(lr / (1 - power(b1, part.step))),
                             T(radam_rectification(b2, part.step))});
  });
}

template <class T>
struct Lion {
  T lr, beta1, rest1, beta2, rest2, shrink;
  __device__ void operator()(T& p, T g, T& m) const {
    const T u = m * beta1 + rest1 * g;
    p = p * shrink - (u > 0 ? lr : u < 0 ? -lr : u);  // NaN stays to be seen
    m = m * beta2 + rest2 * g;
  }
};
void lion(const Call& c, Tensors& out) {
  const Attrs& o = c.attrs;
  const double lr = o.number("lr"), b1 = o.number("beta1"), b2 = o.number("beta2");
  for_each_part(c, out, [&](const Part& part, auto zero) {
    using T = decltype(zero);
    part.each<T, 1>(Lion<T>{T(lr), T(b1), T(1 - b1), T(b2), T(1 - b2), T(1 - lr * o.number("weight_decay"))});
  });
}

}  // namespace

KernelTable optimizer_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"sgd_", sgd, nullptr, true},           {"adam_", adam<false>, nullptr, true},
      {"adamw_", adam<true>, nullptr, true},  {"adamax_", adamax, nullptr, true},
      {"rmsprop_", rmsprop, nullptr, true},   {"adagrad_", adagrad, nullptr, true},
      {"adadelta_", adadelta, nullptr, true}, {"rprop_", rprop, nullptr, true},
      {"lamb_", lamb, nullptr, true},         {"nadam_", nadam, nullptr, true},
      {"radam_", radam, nullptr, true},       {"lion_", lion, nullptr, true},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
