// What all optimizers share: parameters, the walk over them and their gradients, and state that can be saved.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/stateful.h"
#include "core/tensor/tensor.h"
#include "optim/composed_update.h"
#include "optim/tunable.h"

namespace troupe::ops {
class Attrs;
}

namespace troupe::optim {

/// In the place of parameters: there are none.
struct NoParameters {};

/// Changes parameters in place from their gradients, by the formulas of PyTorch's optimizer of the same name.
/// Not synchronized: one thread at a time, and nobody else writes to the parameters.
///
/// A bfloat16 or float16 parameter has a float32 master copy in the state: updates go there and are rounded
/// into the parameter, so that small ones add up. Where the parameter was written since, its element wins.
///
/// A parameter may be given another dtype meanwhile (nn::Module::to): its state follows, and what the master
/// copy had beyond the parameter is lost.
///
/// Parameters come in groups; each group has options of its own (optim/grouped.h). Groups count from 0, and
/// parameters are numbered through all groups.
class Optimizer : public Tunable, public Stateful {
 public:
  /// One step with the `.grad` of each parameter; a parameter without one is left alone. One that has had
  /// none for 100 steps is named in the log, once.
  void step();
  /// One step with scale * grads[i] for params()[i]; undefined: that parameter is left alone. Bumps the
  /// versions of the changed parameters. `invalid`, with nothing changed, if a gradient's dtype or shape
  /// differs; that of a bfloat16 or float16 parameter may also be float32.
  void step(const Tensors& grads, double scale = 1);
  /// Drops the `.grad` of every parameter.
  void zero_grad();
  /// For state() and the log: one for each of params(), which are numbers otherwise. `where` stands behind
  /// them in the log. `invalid` unless there are as many as parameters, all different.
  void set_names(std::vector<std::string> names, std::string where = {});

  /// Of all groups, one after the other.
  const Tensors& params() const& { return params_; }
  Tensors params() && { return params_; }
  size_t group_count() const override { return group_count_; }
  ValueMap options_map(size_t group) const override;
  /// `invalid` also if a parameter of the group, having stepped, would need other state tensors.
  void change_options(size_t group, const ValueMap& changed) override;

  /// What steps have left behind: "<parameter>.<name>" to tensor ("0.exp_avg", or "fc.weight.exp_avg" after
  /// set_names()), and "<parameter>.step" (int64, 0-d); "<parameter>.master" of a bfloat16 or float16
  /// parameter (float32); and the options: "group<group>.<option>" (float64 or bool, 0-d). As they are now:
  /// tensors that later steps leave alone (lazy_copy).
  StateDict state() const override;
  /// Goes on from a state(); options that it does not name stay. `invalid`, with nothing changed, on names,
  /// shapes or values that do not fit.
  void load_state(const StateDict& state) override;
  /// "adam".
  std::string state_name() const override { return kind(); }

 protected:
  /// `invalid` if there is no parameter, or one is undefined, not floating, no leaf, or given twice.
  explicit Optimizer(const std::vector<Tensors>& groups);
  Optimizer(NoParameters, size_t groups) : group_count_(groups) {}
  /// Names of the state tensors that a parameter of that shape has in a group, in order; each has the dtype
  /// that update() sees. Which options change them does not depend on the shape.
  virtual std::vector<std::string> slots(size_t group, const Shape& param) const = 0;
  virtual Shape slot_shape(const std::string& slot, const Shape& param) const = 0;
  /// The name of the update, which is an operator: what devices have a kernel for (ops/cpu/optimizers.cpp),
  /// and "_".
  virtual const char* kind() const = 0;
  /// Instead of kernels; null: there are kernels.
  virtual internal::ComposedUpdate* composed() const = 0;
  /// The options of a group, for that kernel.
  virtual void add_options(size_t group, ops::Attrs& to) const = 0;
  /// Whether a group is to go up its gradients.
  virtual bool maximizes(size_t group) const = 0;
  /// Changes options; `invalid`, with nothing changed, as change_options(), but for the state.
  virtual void assign(size_t group, const ValueMap& changed) = 0;

 private:
  struct Slots {
    int64_t step = 0;
    Tensors slots;       // empty before the first step
    Tensor master;       // defined after the first step of a bfloat16 or float16 parameter
    int64_t missed = 0;  // steps without a gradient, up to now; kNamed: that was told
  };
  static void fit(Slots& state, const Tensor& param);
  std::string name_of(size_t i) const;
  void miss(size_t i);
  void begin(size_t i);
  void update(const std::vector<size_t>& which, const Tensors& grads, double scale);
  std::vector<Slots> read_state(const StateDict& state) const;

  Tensors params_;
  std::vector<size_t> group_of_;
  std::vector<Slots> state_;
  size_t group_count_;
  std::vector<std::string> names_;
  std::string where_;
};

/// Makes the optimizer called `name` ("sgd", "adam", "adamw", "adamax", "rmsprop", "rprop", "adagrad",
/// "adadelta", "lamb", "nadam", "radam", "lion", "adafactor", "muon") with options by the names of its
/// Options; missing ones have their defaults. `invalid` on unknown names, with the nearest known one, and
/// without any parameter.
std::unique_ptr<Optimizer> make(const std::string& name, const ValueMap& options, Tensors params);
/// The same of no parameters: it holds and checks options.
std::unique_ptr<Optimizer> make(const std::string& name, const ValueMap& options, NoParameters);

/// Options by name, and the parameters that they are for.
struct OptionGroup {
  ValueMap options;
  Tensors params = {};
};
/// The same in groups, some of which may be empty; if all are, it is one of no parameters.
std::unique_ptr<Optimizer> make(const std::string& name, std::vector<OptionGroup> groups);

}  // namespace troupe::optim
