// One fused pass over parameter, gradient and moments.
#include "optim/adam.h"

#include <algorithm>

#include "ops/cpu/simd.h"
#include "optim/options.h"

namespace troupe::optim {
namespace {

template <class Options>
void check(const char* name, const Options& o) {
  check_option(name, "lr", o.lr, 0);
  check_option(name, "beta1", o.beta1, 0, 1);
  check_option(name, "beta2", o.beta2, 0, 1);
  check_option(name, "eps", o.eps, 0);
  check_option(name, "weight_decay", o.weight_decay, 0);
}

// Between the two structs, which differ in a default only.
template <class To, class From>
To convert(const From& o) {
  return {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.amsgrad};
}

template <class T>
struct Rates {
  T beta1, rest1, beta2, rest2, eps, decay, shrink, step_size, scale2;
};

// PyTorch's order of operations, but for one quotient that is a product here.
template <class T, bool amsgrad>
void run(T* p, const T* grad, T* m, T* v, T* most, int64_t n, Rates<T> r) {
  ops::cpu::vectorized([=]() [[gnu::always_inline]] {  // roots and quotients take the time here
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const T g = r.decay == 0 ? grad[i] : grad[i] + r.decay * p[i];
      const T x = p[i] * r.shrink;
      m[i] = m[i] * r.beta1 + r.rest1 * g;
      v[i] = v[i] * r.beta2 + r.rest2 * g * g;
      T second = v[i];
      if constexpr (amsgrad) second = most[i] = std::max(most[i], second);
      p[i] = x - r.step_size * m[i] / (std::sqrt(second) * r.scale2 + r.eps);
    }
  });
}

}  // namespace

Adam::Options Adam::Options::from(const ValueMap& map) {
  Options o = options_from_map<Options>(kName, map);
  check(kName, o);
  return o;
}

ValueMap Adam::Options::to_map() const { return options_to_map(*this); }

AdamW::Options AdamW::Options::from(const ValueMap& map) {
  Options o = options_from_map<Options>(kName, map);
  check(kName, o);
  return o;
}

ValueMap AdamW::Options::to_map() const { return options_to_map(*this); }

Adam::Adam(Tensors params, Options options) : Adam(std::move(params), options, false) {}

Adam::Adam(Tensors params, Options options, bool decoupled)
    : Optimizer(std::move(params)), options_(options), decoupled_(decoupled) {
  check(decoupled ? AdamW::kName : kName, options);
  set_lr(options.lr);
}

AdamW::AdamW(Tensors params, Options options)
    : Adam(std::move(params), convert<Adam::Options>(options), true) {}

Adam::Options Adam::options() const {
  Options o = options_;
  o.lr = lr();
  return o;
}

AdamW::Options AdamW::options() const { return convert<Options>(Adam::options()); }

std::vector<std::string> Adam::slots() const {
  std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
  if (options_.amsgrad) names.push_back("max_exp_avg_sq");
  return names;
}

void Adam::update(const Tensor& param, const Tensor& grad, const Tensors& slots, int64_t step) const {
  const Options& o = options_;
  const double correction1 = 1 - std::pow(o.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(o.beta2, static_cast<double>(step));
  const auto go = [&]<class T>(T) {
    const auto as = [](double x) { return static_cast<T>(x); };
    const Rates<T> rates{as(o.beta1),
                         as(1 - o.beta1),
                         as(o.beta2),
                         as(1 - o.beta2),
                         as(o.eps),
                         as(decoupled_ ? 0 : o.weight_decay),
                         as(decoupled_ ? 1 - lr() * o.weight_decay : 1),
                         as(lr() / correction1),
                         as(1 / std::sqrt(correction2))};
    T *p = param.data<T>(), *m = slots[0].data<T>(), *v = slots[1].data<T>();
    const T* g = grad.data<T>();
    if (o.amsgrad)
      run<T, true>(p, g, m, v, slots[2].data<T>(), param.numel(), rates);
    else
      run<T, false>(p, g, m, v, nullptr, param.numel(), rates);
  };
  param.dtype() == float64 ? go(double{}) : go(float{});
}

}  // namespace troupe::optim
