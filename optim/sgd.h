// Stochastic gradient descent with momentum.
#pragma once
#include "optim/grouped.h"

namespace troupe::optim {

struct SGDOptions {
  static constexpr const char* kName = "sgd";
  static constexpr const char* kText = "Stochastic gradient descent with momentum.";
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;  ///< needs momentum and no dampening
  bool maximize = false;  ///< goes up instead of down: with the gradient times -1

  void check() const {
    if (nesterov && (momentum == 0 || dampening != 0))
      throw_invalid("[sgd] nesterov needs momentum above 0 and no dampening");
  }
  std::vector<std::string> slots() const {
    if (momentum == 0) return {};
    return {"momentum_buffer"};
  }
  static void fields(auto& o, auto&& field) {
    field("lr", o.lr, 0), field("momentum", o.momentum, 0), field("dampening", o.dampening);
    field("weight_decay", o.weight_decay, 0), field("nesterov", o.nesterov);
    field("maximize", o.maximize);
  }
};

/// g += weight_decay * p;  buf = momentum * buf + (1 - dampening) * g (at first: buf = g);
/// p -= lr * (nesterov ? g + momentum * buf : buf).
using SGD = Grouped<SGDOptions>;
extern template class Grouped<SGDOptions>;

}  // namespace troupe::optim
