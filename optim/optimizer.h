// What all optimizers share: parameters, the walk over them and their gradients, and state that can be saved.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "core/value.h"

namespace troupe::optim {

/// Changes parameters in place from their gradients, by the formulas of PyTorch's optimizer of the same name.
/// float32 and float64. Not synchronized: one thread at a time, and nobody else writes to the parameters.
class Optimizer {
 public:
  /// `invalid` if a parameter is undefined, not floating, no leaf, or given twice.
  explicit Optimizer(Tensors params);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One step with the `.grad` of each parameter; a parameter without one is left alone.
  void step();
  /// One step with grads[i] for params()[i]; undefined: that parameter is left alone. Bumps the versions of
  /// the changed parameters. `invalid`, with nothing changed, if a gradient's dtype or shape differs.
  void step(const Tensors& grads);
  /// Drops the `.grad` of every parameter.
  void zero_grad();

  const Tensors& params() const { return params_; }
  double lr() const { return lr_; }
  /// `invalid` if negative or not finite.
  void set_lr(double lr);

  /// What steps have left behind: "<parameter>.<name>" to tensor ("0.exp_avg"), and "<parameter>.step"
  /// (int64, 0-d). Copies. Empty before the first step. The options are not part of it.
  std::map<std::string, Tensor> state() const;
  /// Goes on from a state(). `invalid`, with nothing changed, on names or shapes that do not fit.
  void load_state(const std::map<std::string, Tensor>& state);

 protected:
  /// Names of the state tensors that each parameter has, in order; each has the parameter's shape and dtype.
  virtual std::vector<std::string> slots() const = 0;
  /// One update of one parameter. All tensors are contiguous; `slots` are zero at step 1; `step` counts
  /// from 1.
  virtual void update(const Tensor& param, const Tensor& grad, const Tensors& slots, int64_t step) const = 0;

 private:
  struct State {
    int64_t step = 0;
    Tensors slots;  // empty before the first step
  };
  Tensors params_;
  std::vector<State> state_;
  double lr_ = 0;
};

/// Makes the optimizer called `name` ("sgd", "adam", "adamw") with options as in its Options::to_map();
/// missing ones have their defaults. `invalid` on unknown names, with the nearest known one.
std::unique_ptr<Optimizer> make(const std::string& name, const ValueMap& options, Tensors params);

}  // namespace troupe::optim
