// RMSprop, Adagrad and Adadelta: steps divided by a running size of the gradient.
#pragma once
#include "optim/grouped.h"

namespace troupe::optim {

struct RMSpropOptions {
  static constexpr const char* kName = "rmsprop";
  static constexpr const char* kText = "Gradients divided by the root of their running mean square.";
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;  ///< subtract the square of the mean gradient
  bool maximize = false;  ///< goes up instead of down: with the gradient times -1
  std::vector<std::string> slots() const {
    std::vector<std::string> names{"square_avg"};
    if (centered) names.push_back("grad_avg");
    if (momentum > 0) names.push_back("momentum_buffer");
    return names;
  }
  static void fields(auto& o, auto&& field) {
    field("lr", o.lr, 0), field("alpha", o.alpha, 0), field("eps", o.eps, 0);
    field("weight_decay", o.weight_decay, 0), field("momentum", o.momentum, 0), field("centered", o.centered);
    field("maximize", o.maximize);
  }
};

/// v = alpha v + (1 - alpha) g²;  d = g / (sqrt(v [- mean²]) + eps);  b = momentum * b + d;  p -= lr * b.
using RMSprop = Grouped<RMSpropOptions>;
extern template class Grouped<RMSpropOptions>;

struct AdagradOptions {
  static constexpr const char* kName = "adagrad";
  static constexpr const char* kText = "Gradients divided by the root of the sum of their squares.";
  double lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
  bool maximize = false;  ///< goes up instead of down: with the gradient times -1
  std::vector<std::string> slots() const { return {"sum"}; }
  static void fields(auto& o, auto&& field) {
    field("lr", o.lr, 0), field("lr_decay", o.lr_decay, 0), field("weight_decay", o.weight_decay, 0);
    field("initial_accumulator_value", o.initial_accumulator_value, 0), field("eps", o.eps, 0);
    field("maximize", o.maximize);
  }
};

/// sum += g²;  p -= lr / (1 + (step - 1) lr_decay) * g / (sqrt(sum) + eps).
using Adagrad = Grouped<AdagradOptions>;
extern template class Grouped<AdagradOptions>;

struct AdadeltaOptions {
  static constexpr const char* kName = "adadelta";
  static constexpr const char* kText = "Steps by the ratio of running mean squares of updates and gradients.";
  double lr = 1, rho = 0.9, eps = 1e-6, weight_decay = 0;
  bool maximize = false;  ///< goes up instead of down: with the gradient times -1
  std::vector<std::string> slots() const { return {"square_avg", "acc_delta"}; }
  static void fields(auto& o, auto&& field) {
    field("lr", o.lr, 0), field("rho", o.rho, 0, 1), field("eps", o.eps, 0);
    field("weight_decay", o.weight_decay, 0);
    field("maximize", o.maximize);
  }
};

/// v = rho v + (1 - rho) g²;  d = g sqrt(u + eps) / sqrt(v + eps);  u = rho u + (1 - rho) d²;  p -= lr * d.
using Adadelta = Grouped<AdadeltaOptions>;
extern template class Grouped<AdadeltaOptions>;

}  // namespace troupe::optim
