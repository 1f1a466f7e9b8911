// NAdam, RAdam and Lion: Adam with Nesterov's momentum, with rectified first steps, and by signs.
#pragma once
#include "optim/adam.h"

namespace troupe::optim {

struct NAdamOptions {
  static constexpr const char* kName = "nadam";
  static constexpr const char* kText = "Adam with Nesterov's momentum.";
  double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;  ///< as in AdamW
  bool maximize = false;                ///< goes up instead of down: with the gradient times -1
  std::vector<std::string> slots() const { return {"exp_avg", "exp_avg_sq"}; }
  static void fields(auto& o, auto&& field) {
    field("lr", o.lr, 0), field("beta1", o.beta1, 0, 1), field("beta2", o.beta2, 0, 1),
        field("eps", o.eps, 0);
    field("weight_decay", o.weight_decay, 0), field("momentum_decay", o.momentum_decay, 0);
    field("decoupled_weight_decay", o.decoupled_weight_decay), field("maximize", o.maximize);
  }
};

/// Dozat 2016: the momentum of step t is beta1 (1 - 0.96^(t momentum_decay) / 2), and the step takes that of
/// the next one, too. The product of all momenta is that of the options as they are now.
using NAdam = Grouped<NAdamOptions>;
extern template class Grouped<NAdamOptions>;

struct RAdamOptions {
  static constexpr const char* kName = "radam";
  static constexpr const char* kText = "Adam whose first steps are rectified.";
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled_weight_decay = false;  ///< as in AdamW
  bool maximize = false;                ///< goes up instead of down: with the gradient times -1
  std::vector<std::string> slots() const { return {"exp_avg", "exp_avg_sq"}; }
  static void fields(auto& o, auto&& field) {
    field("lr", o.lr, 0), field("beta1", o.beta1, 0, 1), field("beta2", o.beta2, 0, 1),
        field("eps", o.eps, 0);
    field("weight_decay", o.weight_decay, 0), field("decoupled_weight_decay", o.decoupled_weight_decay);
    field("maximize", o.maximize);
  }
};

/// Liu et al. 2020: while too few steps have been made to know the variance, by the mean alone.
using RAdam = Grouped<RAdamOptions>;
extern template class Grouped<RAdamOptions>;

struct LionOptions {
  static constexpr const char* kName = "lion";
  static constexpr const char* kText = "Steps by the signs of a momentum.";
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  bool maximize = false;  ///< goes up instead of down: with the gradient times -1
  std::vector<std::string> slots() const { return {"exp_avg"}; }
  static void fields(auto& o, auto&& field) {
    field("lr", o.lr, 0), field("beta1", o.beta1, 0, 1), field("beta2", o.beta2, 0, 1);
    field("weight_decay", o.weight_decay, 0), field("maximize", o.maximize);
  }
};

/// Chen et al. 2023: p -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay p), then m = beta2 m + (1 - beta2)
/// g.
using Lion = Grouped<LionOptions>;
extern template class Grouped<LionOptions>;

}  // namespace troupe::optim
