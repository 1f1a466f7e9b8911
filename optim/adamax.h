// Adamax: Adam with the largest recent gradient in place of the second moment.
#pragma once
#include "optim/adam.h"

namespace troupe::optim {

struct AdamaxOptions {
  static constexpr const char* kName = "adamax";
  static constexpr const char* kText = "Adam by the largest gradients.";
  double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool maximize = false;  ///< goes up instead of down: with the gradient times -1
  std::vector<std::string> slots() const { return {"exp_avg", "exp_inf"}; }
  static void fields(auto& o, auto&& field) { AdamOptions::fields(o, field); }
};

/// Kingma and Ba 2015, algorithm 2: m = beta1 m + (1 - beta1) g;  u = max(beta2 u, |g| + eps);
/// p -= lr / (1 - beta1^step) * m / u. eps is where PyTorch has it: the paper has none.
using Adamax = Grouped<AdamaxOptions>;
extern template class Grouped<AdamaxOptions>;

}  // namespace troupe::optim
