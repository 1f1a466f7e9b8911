// Adam and AdamW.
#pragma once
#include "optim/grouped.h"

namespace troupe::optim {

struct AdamOptions {
  static constexpr const char* kName = "adam";
  static constexpr const char* kText = "Adam, with weight decay as part of the gradient.";
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool amsgrad = false;   ///< divide by the largest second moment so far
  bool maximize = false;  ///< goes up instead of down: with the gradient times -1
  std::vector<std::string> slots() const {
    if (amsgrad) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
    return {"exp_avg", "exp_avg_sq"};
  }
  /// Of all of Adam's kind.
  static void fields(auto& o, auto&& field) {
    field("lr", o.lr, 0), field("beta1", o.beta1, 0, 1), field("beta2", o.beta2, 0, 1),
        field("eps", o.eps, 0);
    field("weight_decay", o.weight_decay, 0);
    if constexpr (requires { o.amsgrad; }) field("amsgrad", o.amsgrad);
    field("maximize", o.maximize);
  }
};

struct AdamWOptions {
  static constexpr const char* kName = "adamw";
  static constexpr const char* kText = "Adam with decoupled weight decay.";
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  bool amsgrad = false;
  bool maximize = false;  ///< goes up instead of down: with the gradient times -1
  std::vector<std::string> slots() const { return AdamOptions{.amsgrad = amsgrad}.slots(); }
  static void fields(auto& o, auto&& field) { AdamOptions::fields(o, field); }
};

/// Adam with weight decay as part of the gradient.
using Adam = Grouped<AdamOptions>;
extern template class Grouped<AdamOptions>;

/// Adam with decoupled weight decay: p *= 1 - lr * weight_decay before the step.
using AdamW = Grouped<AdamWOptions>;
extern template class Grouped<AdamWOptions>;

}  // namespace troupe::optim
