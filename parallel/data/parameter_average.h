// Members that learn by themselves, whose parameters become their mean every so many steps.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/cell/task.h"
#include "autograd/distributed/optim/state_of_steps.h"
#include "collective/group.h"
#include "core/graph/stateful.h"
#include "parallel/data/reducer_names.h"

namespace troupe::parallel {

/// How often, and what becomes of the mean. Local SGD: `every` alone. Post-local SGD (Lin et al. 2020): with
/// `after`. DiLoCo (Douillard et al. 2023): with outer_lr = 0.7 and outer_momentum = 0.9.
struct Averaging {
  /// Steps between two means. 0: there is none, and gradients are summed in each step.
  int64_t every = 0;
  /// Gradients are summed in so many steps before.
  int64_t after = 0;
  /// The mean is a step of an outer optimizer, SGD, whose gradient is what the mean is off the parameters
  /// after the mean before. With 1 and no momentum parameters become the mean.
  double outer_lr = 1, outer_momentum = 0;
  bool nesterov = true;  ///< the outer momentum looks ahead

  bool on() const { return every > 0; }
  bool has_outer() const { return outer_lr != 1 || outer_momentum != 0; }
  /// `invalid`, saying what was expected.
  void check() const;
  /// "every 4 steps, after 100, outer_lr 0.7, outer_momentum 0.9".
  std::string str() const;
  bool operator==(const Averaging&) const = default;
};

/// For members that begin with equal parameters, each with an optimizer of its own. In methods of all:
///
///   parallel::ParameterAverage average{group, parameters(), {.every = 16}};
///   ...
///   autograd::backward(cross_entropy(net(x), y));
///   optimizer->step();
///   const auto averaging = average.step();
///   co_await averaging;
///
/// They send each other nothing but parameters, in each 16th step. State of the actor: in its checkpoints.
class ParameterAverage final : public Stateful, public optim::StateOfSteps {
 public:
  /// A parameter that is frozen as a mean is taken stays as it is; the same on all members. `name`: of
  /// several in one group, each has another.
  ParameterAverage(Group group, const Tensors& parameters, const Averaging& how,
                   const std::string& name = "average");
  ParameterAverage(const ParameterAverage&) = delete;

  /// A step of this member's optimizer is over; the n-th steps of all belong together. True if the parameters
  /// have changed: where a mean was due. `invalid`, on all, if members bring other options or parameters.
  /// Who writes `after` sums gradients, while is_local() is false, by a GradientReducer.
  Task<bool> step();
  /// A mean now, of the n-th calls of all.
  Task<void> average();

  /// Whether members learn by themselves now. From any thread.
  bool is_local() const { return steps_.load() >= how_.after; }
  int64_t means() const { return means_; }  ///< so far
  const Averaging& how() const& { return how_; }
  Averaging how() && { return how_; }

  StateDict state() const override;
  void load_state(const StateDict& state) override;

  // ---- not for users: what replicas do, by the word of their driver
  void count_step(uint64_t context);
  bool is_due() const { return since_ >= how_.every; }
  /// Parameters are those of a file, say: the outer optimizer goes on from there.
  void begin_anew();
  /// Before a step: what it begins with is what the outer optimizer goes on from, if it has nothing.
  void remember();
  Task<void> average_as(std::string tag);
  /// All take what that member has: they have missed a mean.
  Task<void> take_from(size_t rank, std::string tag);

 private:
  using Kinds = std::vector<std::vector<size_t>>;  // numbers of parameters of one dtype and device
  Kinds kinds() const;
  CollectiveOptions options_of(const std::string& tag) const;
  void take_mean(const Tensors& mean);
  Task<void> compare(std::string tag) const;
  const ReducerNames::Use use_;
  const Group group_;
  const Averaging how_;
  Tensors parameters_;
  Tensors anchors_, momenta_;  // of the outer optimizer, by parameter, or none
  std::atomic<int64_t> steps_ = 0;
  int64_t since_ = 0, means_ = 0;
  uint64_t calls_ = 0, last_context_ = 0;
};

}  // namespace troupe::parallel
