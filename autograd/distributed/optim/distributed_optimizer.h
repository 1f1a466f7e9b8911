// Optimizers that update parameters where they live.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/distributed/context.h"
#include "autograd/distributed/optim/context_gradients.h"
#include "autograd/distributed/optim/optimized_actor.h"
#include "autograd/distributed/optim/parameter_filter.h"
#include "autograd/distributed/optim/step_all.h"
#include "autograd/distributed/optim/step_report.h"
#include "autograd/distributed/optim/step_watch.h"
#include "core/base/listed.h"
#include "optim/optim.h"
#include "rref/any_ref.h"

namespace troupe::optim {

/// See Distributed. Groups of options are the same for all actors; every step and every state takes them
/// along, so what set_lr(), a Scheduler or a Plateau changes holds everywhere from the next step on, and is
/// what is saved.
///
/// What is asked of all actors waits for all. If it fails on some, the error names every one of them, and
/// what the others did stands.
class DistributedOptimizer : public Tunable, public internal::Listed<DistributedOptimizer> {
 public:
  struct Group {
    ParameterFilter params;
    ValueMap options;  ///< what differs from the options of the rest
  };
  /// `groups`: see Distributed; they count from 1.
  DistributedOptimizer(std::vector<AnyRef> actors, const std::string& name, const ValueMap& options,
                       std::vector<Group> groups = {});
  ~DistributedOptimizer() override;

  /// One step on every actor, in its mailbox, with the gradients of `context`, which are not copied. Throws
  /// StepReport::error.
  void step(const autograd::Context& context) { step_async(context).get(); }
  Future<void> step_async(const autograd::Context& context);
  /// The same, with failures of actors in the report. `invalid`, before anything is sent, if the context has
  /// ended.
  Future<StepReport> try_step(const autograd::Context& context);

  /// A step with the gradients of a loss that scaler.scale() has multiplied. If those of all actors are
  /// finite, all step; else all leave it out, and scaler.update() lowers the scale. True if it was made. A
  /// round of messages before the step, unless unscale_() (context_gradients.h) has been there. The scaler
  /// has to live until then.
  bool step(const autograd::Context& context, LossScaler& scaler) {
    return step_async(context, scaler).get();
  }
  Future<bool> step_async(const autograd::Context& context, LossScaler& scaler);

  /// Scales the gradients that `context` has for the parameters of all actors so that their norm, as if they
  /// were one vector, is at most max_norm; returns the norm before. Bit for bit what clip_norm_ does with the
  /// gradients in the order of the actors; its errors, with nothing changed, as there. Two rounds of
  /// messages, the second only if there is something to scale. Gradients of values in servers are not those
  /// of these actors, and so not in the norm: clip_grad_norm(context, {optimizer, gradients_of(served)}, ..)
  /// of optim counts both, and several optimizers (context_gradients.h).
  double clip_grad_norm(const autograd::Context& context, double max_norm, const ClipOptions& options = {});

  /// Those of all actors, for norms that count others besides; while this optimizer lives.
  ContextGradients gradients();
  operator ContextGradients() { return gradients(); }
  /// Its part in a step that others make, too (step_all.h); while this optimizer lives.
  StepPart part();
  operator StepPart() { return part(); }

  /// What each group is for: "0.bias of Layer#0:3 on w1". Waits for the actors.
  std::vector<std::vector<std::string>> parameters_by_group();

  /// What steps have left behind: Optimizer::state() of each actor, in order, by the names of parameters.
  std::vector<std::map<std::string, Tensor>> state();
  /// State of one actor alone: others may be lost.
  std::map<std::string, Tensor> state_of(size_t actor);
  /// Goes on from a state(), also one of another cluster: the options as well. `invalid` if there are not as
  /// many states as actors, or a state does not fit its actor, which then keeps what it had.
  void load_state(const std::vector<std::map<std::string, Tensor>>& states);
  /// The same in a file for each actor, written (whole or not at all) and read by its worker:
  /// folder/optimizer-0-of-2.safetensors. The folder is made if need be.
  void save(const std::string& folder);
  void load(const std::string& folder);

  size_t group_count() const override;
  ValueMap options_map(size_t group) const override;
  void change_options(size_t group, const ValueMap& changed) override;

  const std::vector<AnyRef>& actors() const& { return actors_; }
  std::vector<AnyRef> actors() && { return std::move(actors_); }
  /// Not for users: those alive that have these actors, in the order of their construction. `invalid` if one
  /// has some of them only.
  static std::vector<DistributedOptimizer*> all_of(const std::vector<AnyRef>& actors);
  /// Not for users: `watch` goes along with its steps; null: nobody.
  void set_watch(std::shared_ptr<StepWatch> watch) { watch_ = std::move(watch); }
  /// Not for users: makes its parts at actors that are new. What follow() takes.
  using NamesByGroup = std::vector<std::vector<std::string>>;  // of the parameters of an actor
  std::vector<NamesByGroup> create_at(const std::vector<AnyRef>& newcomers);
  /// Not for users: these actors in the place of those, which it has. A newcomer's names are its part of what
  /// create_at() gave; in their order.
  void follow(const std::vector<AnyRef>& before, const std::vector<AnyRef>& now,
              const std::vector<NamesByGroup>& names_of_newcomers);

 private:
  using Send = std::function<Future<Value>(size_t)>;  // a message to actor i
  struct Made;
  std::vector<ValueMap> all_options() const;
  Future<StepReport> step_by(const autograd::Context& context, double factor);
  /// In the active context, and nobody watches.
  Future<StepReport> make_step(double factor);
  /// The answers of all actors, once all have ended.
  Future<std::vector<Result<Value>>> ask(const Send& send);
  /// The values, or the error that names all that failed.
  Future<ValueList> ask_all_async(const char* what, const Send& send);
  ValueList ask_all(const char* what, const Send& send);
  void take_options(ValueList of_owners);

  std::vector<AnyRef> actors_;
  std::vector<OwnerReport> owners_;  // their names
  std::string key_;
  const std::string name_;  // of its kind
  const std::vector<Group> groups_;
  std::shared_ptr<StepWatch> watch_;
  std::unique_ptr<Optimizer> options_;  // without parameters: holds and checks them
  Future<std::shared_ptr<const Made>> made_;
};

/// Distributed<SGD> opt({a, b}, {.lr = 0.1}): one optimizer of type O for the parameters() of each actor,
/// beside the actor. Belongs to one thread.
///
/// Parameters in groups have options of their own; the first options are for the rest, which is group 0. A
/// parameter of several groups belongs to the first of them:
///
///   optim::AdamW::Options all{.lr = 1e-3, .weight_decay = 0.1}, plain = all;
///   plain.weight_decay = 0;
///   Distributed<AdamW> opt({a, b}, all, {{{"*.bias", "norm*"}, plain}});
template <class O>
class Distributed : public DistributedOptimizer {
 public:
  struct Group {
    ParameterFilter params;
    typename O::Options options = {};
  };
  /// `invalid` on options out of range, and if an actor is given twice, at once; by every step, if a group is
  /// for no parameter of any actor. Waits for the actors' names if a group has a function.
  Distributed(std::vector<AnyRef> actors, typename O::Options options = {}, std::vector<Group> groups = {});

 private:
  static std::vector<DistributedOptimizer::Group> by_name(std::vector<Group> groups) {
    std::vector<DistributedOptimizer::Group> all;
    for (Group& g : groups) all.push_back({std::move(g.params), O::map_of(std::move(g.options))});
    return all;
  }
};

template <class O>
Distributed<O>::Distributed(std::vector<AnyRef> actors, typename O::Options options,
                            std::vector<Group> groups)
    : DistributedOptimizer(std::move(actors), O::kName, O::map_of(std::move(options)),
                           by_name(std::move(groups))) {}

extern template class Distributed<SGD>;
extern template class Distributed<Adam>;
extern template class Distributed<AdamW>;
extern template class Distributed<Adamax>;
extern template class Distributed<LAMB>;
extern template class Distributed<Adafactor>;
extern template class Distributed<Muon>;
extern template class Distributed<NAdam>;
extern template class Distributed<RAdam>;
extern template class Distributed<Lion>;
extern template class Distributed<RMSprop>;
extern template class Distributed<Adagrad>;
extern template class Distributed<Adadelta>;
extern template class Distributed<Rprop>;

}  // namespace troupe::optim
