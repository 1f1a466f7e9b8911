// Loss scaling: keeps small gradients of half-precision runs above the smallest number.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>

#include "optim/optimizer.h"

namespace troupe::optim {

/// Multiplies the loss by a scale, and divides the gradients by it before the step. A step whose gradients
/// are not finite is left out, and the scale shrinks; after many good steps it grows (PyTorch's GradScaler):
///
///   optim::LossScaler scaler;
///   autograd::backward(scaler.scale(loss));
///   scaler.unscale_(optimizer);                     // only to look at the gradients, or clip them
///   scaler.step(optimizer);
///   scaler.update();
///
/// Whose gradients lie in several places, a step is left out in all of them, or in none: an optimizer of
/// actors (optim::Distributed) makes it with optimizer.step(context, scaler), members of a group ask each
/// other with GradientReducer::unscale_.
class LossScaler final : public Stateful {
 public:
  struct Options {
    double init_scale = 65536, growth_factor = 2, backoff_factor = 0.5;
    int64_t growth_interval = 2000;  ///< good steps in a row before the scale grows
  };
  /// `invalid` unless init_scale > 0, growth_factor >= 1, 0 < backoff_factor <= 1 and growth_interval >= 1.
  explicit LossScaler(const Options& options);
  LossScaler() : LossScaler(Options{}) {}

  double scale() const { return scale_; }
  /// The loss times the scale, recorded.
  Tensor scale(const Tensor& loss) const;
  /// Divides gradients by the scale; entries of `grads` are replaced (bfloat16 and float16 ones by float32),
  /// undefined ones passed over. True if all are finite; if not, update() will lower the scale.
  bool unscale_(Tensors& grads);
  /// The same for the `.grad` of the optimizer's parameters. `invalid` if called twice before update().
  bool unscale_(Optimizer& optimizer);
  /// A step with the unscaled `.grad`, if they are finite; true if it was made. `invalid` if called twice
  /// before update().
  bool step(Optimizer& optimizer);
  /// Notes of the gradients of an optimizer, or of another object, that they have been divided by the scale
  /// elsewhere, and whether they are finite: all that learn together have to note the same. `invalid` if
  /// called twice for it before update().
  void note_unscaled(const void* of, bool finite);
  /// Whether they are finite; empty if they have not been unscaled in this iteration.
  std::optional<bool> unscaled(const void* of) const;
  /// Ends an iteration: a new scale for the next one.
  void update();

  /// "scale" (float64) and "good_steps" (int64), 0-d.
  StateDict state() const override;
  /// Goes on from a state(). `invalid`, with nothing changed, if it does not fit.
  void load_state(const StateDict& state) override;

 private:
  void refuse_twice(const void* of) const;
  Options options_;
  double scale_;
  int64_t good_steps_ = 0;
  bool overflow_ = false;
  std::map<const void*, bool> finite_;  // unscaled in this iteration
  std::set<const Optimizer*> stepped_;
};

}  // namespace troupe::optim
