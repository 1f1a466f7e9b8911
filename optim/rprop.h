// Rprop: steps whose size depends on the signs of gradients only.
#pragma once
#include "optim/grouped.h"

namespace troupe::optim {

struct RpropOptions {
  static constexpr const char* kName = "rprop";
  static constexpr const char* kText = "Steps by the signs of the gradients.";
  double lr = 1e-2;  ///< size of the first step; later ones are the elements' own
  double eta_minus = 0.5, eta_plus = 1.2;
  double step_min = 1e-6, step_max = 50;
  bool maximize = false;  ///< goes up instead of down: with the gradient times -1

  void check() const { check_order(kName, "step_min", step_min, "step_max", step_max); }
  std::vector<std::string> slots() const { return {"prev", "step_size"}; }
  static void fields(auto& o, auto&& field) {
    field("lr", o.lr, 0), field("eta_minus", o.eta_minus, 0, 1), field("eta_plus", o.eta_plus, 1);
    field("step_min", o.step_min, 0), field("step_max", o.step_max, 0);
    field("maximize", o.maximize);
  }
};

/// Riedmiller and Braun 1993, without weight backtracking, as PyTorch: each element has a step size, which
/// grows (times eta_plus) while the sign of its gradient stays, shrinks (times eta_minus) when it turns, and
/// is kept in [step_min, step_max]; p -= sign(g) * step size, but where the sign has turned p waits once.
using Rprop = Grouped<RpropOptions>;
extern template class Grouped<RpropOptions>;

}  // namespace troupe::optim
