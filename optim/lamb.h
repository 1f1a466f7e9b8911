// LAMB: Adam's direction, with a step as long as the parameter's norm allows.
#pragma once
#include "optim/adam.h"

namespace troupe::optim {

struct LAMBOptions {
  static constexpr const char* kName = "lamb";
  static constexpr const char* kText =
      "Adam's direction, with steps as long as the norm of the parameter allows.";
  static constexpr bool kLooksAtWholeParameters = true;
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0.01;
  bool maximize = false;  ///< goes up instead of down: with the gradient times -1
  std::vector<std::string> slots() const { return {"exp_avg", "exp_avg_sq"}; }
  static void fields(auto& o, auto&& field) { AdamOptions::fields(o, field); }
};

/// You et al. 2020, algorithm 2, with bias correction: u = m̂ / (sqrt(v̂) + eps) + weight_decay * p;
/// p -= lr * |p| / |u| * u, with the norms of the whole parameter; a ratio of 1 where one of them is zero.
using LAMB = Grouped<LAMBOptions>;
extern template class Grouped<LAMBOptions>;

}  // namespace troupe::optim
