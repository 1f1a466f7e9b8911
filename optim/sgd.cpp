// One fused pass over parameter, gradient and momentum.
#include "optim/sgd.h"

#include "ops/cpu/simd.h"
#include "optim/options.h"

namespace troupe::optim {
namespace {

void check(const SGD::Options& o) {
  check_option(SGD::kName, "lr", o.lr, 0);
  check_option(SGD::kName, "momentum", o.momentum, 0);
  check_option(SGD::kName, "dampening", o.dampening, -HUGE_VAL);
  check_option(SGD::kName, "weight_decay", o.weight_decay, 0);
  if (o.nesterov && (o.momentum == 0 || o.dampening != 0))
    throw_invalid("[sgd] nesterov needs momentum above 0 and no dampening");
}

// Rates stay double and every new value is rounded once. As a float, a momentum of 0.9 is off by 2.6e-8,
// which makes every step 2.4e-7 too short: for all parameters and steps, so that it does not average out.
template <class T>
void plain(T* __restrict p, const T* __restrict grad, int64_t n, double lr, double decay) {
  ops::cpu::vectorized([=]() __attribute__((always_inline)) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const double old = p[i], g = decay == 0 ? grad[i] : grad[i] + decay * old;
      p[i] = static_cast<T>(old - lr * g);
    }
  });
}

template <class T>
void with_momentum(T* __restrict p, const T* __restrict grad, T* __restrict buf, int64_t n, double lr,
                   double decay, double momentum, double keep, bool first, bool nesterov) {
  const double before = first ? 0 : momentum, share = first ? 1 : keep;
  ops::cpu::vectorized([=]() __attribute__((always_inline)) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const double old = p[i], g = decay == 0 ? grad[i] : grad[i] + decay * old;
      const T b = static_cast<T>(buf[i] * before + share * g);
      buf[i] = b;
      p[i] = static_cast<T>(old - lr * (nesterov ? g + momentum * b : b));
    }
  });
}

}  // namespace

SGD::Options SGD::Options::from(const ValueMap& map) {
  Options o = options_from_map<Options>(kName, map);
  check(o);
  return o;
}

ValueMap SGD::Options::to_map() const { return options_to_map(*this); }

SGD::SGD(Tensors params, Options options) : Optimizer(std::move(params)), options_(options) {
  check(options);
  set_lr(options.lr);
}

SGD::Options SGD::options() const {
  Options o = options_;
  o.lr = lr();
  return o;
}

std::vector<std::string> SGD::slots() const {
  return options_.momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{};
}

void SGD::update(const Tensor& param, const Tensor& grad, const Tensors& slots, int64_t step) const {
  const auto run = [&]<class T>(T) {
    T* p = param.data<T>();
    const T* g = grad.data<T>();
    if (slots.empty()) return plain(p, g, param.numel(), lr(), options_.weight_decay);
    with_momentum(p, g, slots[0].data<T>(), param.numel(), lr(), options_.weight_decay, options_.momentum,
                  1 - options_.dampening, step == 1, options_.nesterov);
  };
  param.dtype() == float64 ? run(double{}) : run(float{});
}

}  // namespace troupe::optim
