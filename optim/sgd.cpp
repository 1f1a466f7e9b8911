// One fused pass over parameter, gradient and momentum.
#include "optim/sgd.h"

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

template <class T>
void plain(T* __restrict p, const T* __restrict grad, int64_t n, T lr, T decay) {
  if (decay == 0)
    for (int64_t i = 0; i < n; ++i) p[i] -= lr * grad[i];
  else
    for (int64_t i = 0; i < n; ++i) p[i] -= lr * (grad[i] + decay * p[i]);
}

template <class T>
void with_momentum(T* __restrict p, const T* __restrict grad, T* __restrict buf, int64_t n, T lr, T decay,
                   T momentum, T keep, bool first, bool nesterov) {
  const T old = first ? T(0) : momentum, share = first ? T(1) : keep;
  for (int64_t i = 0; i < n; ++i) {
    const T g = decay == 0 ? grad[i] : grad[i] + decay * p[i];
    const T b = buf[i] * old + share * g;
    buf[i] = b;
    p[i] -= lr * (nesterov ? g + momentum * b : b);
  }
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
    const T rate = static_cast<T>(lr()), decay = static_cast<T>(options_.weight_decay);
    if (slots.empty()) return plain(p, g, param.numel(), rate, decay);
    with_momentum(p, g, slots[0].data<T>(), param.numel(), rate, decay, static_cast<T>(options_.momentum),
                  static_cast<T>(1 - options_.dampening), step == 1, options_.nesterov);
  };
  param.dtype() == float64 ? run(double{}) : run(float{});
}

}  // namespace troupe::optim
