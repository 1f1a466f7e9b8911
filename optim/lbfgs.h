// L-BFGS: steps that look at the loss several times, by a closure.
#pragma once
#include <deque>
#include <functional>

#include "core/graph/stateful.h"
#include "core/tensor/tensor.h"

namespace troupe::optim {

struct LBFGSOptions {
  double lr = 1;
  int64_t max_iter = 20;  ///< directions of a step
  int64_t max_eval = 0;   ///< losses of a step; 0: max_iter * 5 / 4
  double tolerance_grad = 1e-7, tolerance_change = 1e-9;
  int64_t history_size = 100;
  bool strong_wolfe = false;  ///< looks for the length of each step, else it is lr
  bool maximize = false;
};

/// Nocedal 1980, as torch.optim.LBFGS. All parameters are one vector, on one device and in one dtype, so no
/// part of it is known elsewhere: an optimizer of actors, replicas with `shard` and pipelines do not take it.
///
///   optim::LBFGS lbfgs(model.parameters(), {.strong_wolfe = true});
///   lbfgs.step([&] {
///     lbfgs.zero_grad();
///     Tensor loss = mse_loss(model(x), y);
///     loss.backward();
///     return loss;
///   });
class LBFGS final : public Stateful {
 public:
  /// `invalid` without parameters, of several devices or dtypes, of halves, and for options out of range.
  explicit LBFGS(Tensors params, const LBFGSOptions& options = {});

  /// Gives the loss at the beginning. The closure computes loss and gradients anew; a parameter without one
  /// counts as one of zeros.
  Tensor step(const std::function<Tensor()>& closure);
  void zero_grad();
  const Tensors& params() const& { return params_; }
  Tensors params() && { return params_; }

  StateDict state() const override;
  /// `invalid`, with nothing changed, if it does not fit.
  void load_state(const StateDict& state) override;

 private:
  struct Point {
    double loss = 0;
    Tensor grad;
  };
  struct Pair {
    Tensor y, s;
    double rho;
  };
  Point evaluate(const std::function<Tensor()>& closure, Tensor* loss = nullptr);
  Point at(const std::function<Tensor()>& closure, const Tensor& from, double t);
  void remember(const Tensor& grad);
  Tensor direction(const Tensor& grad) const;
  Tensor values() const;
  void set_values(const Tensor& all);

  Tensors params_;
  LBFGSOptions options_;
  int64_t iterations_ = 0;
  Tensor direction_, before_;  // the last direction and the gradient there
  double length_ = 0, scale_ = 1;
  std::deque<Pair> history_;
};

}  // namespace troupe::optim
