// Schedules of the learning rate: functions of the step.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/graph/stateful.h"
#include "optim/tunable.h"

namespace troupe::optim {

/// (initial rate, step from 0) -> rate of that step. Without state: to go on from step n, ask for step n. The
/// values are those of PyTorch's scheduler of the same kind. All below are `invalid` on sizes below 1 and
/// numbers out of range.
using Schedule = std::function<double(double base, int64_t step)>;

/// Times gamma every `size` steps (StepLR).
Schedule step_decay(int64_t size, double gamma = 0.1);
/// Times gamma at each of the milestones, which ascend (MultiStepLR).
Schedule multi_step(std::vector<int64_t> milestones, double gamma = 0.1);
/// Times gamma every step (ExponentialLR).
Schedule exponential(double gamma);
/// Half a cosine from the initial rate to `floor` in `steps` steps (CosineAnnealingLR), then `floor`.
Schedule cosine(int64_t steps, double floor = 0);
/// Linear from start * rate to the rate in `steps` steps (LinearLR), then `then` from its step 0 on; without
/// `then`, the rate.
Schedule warm_up(int64_t steps, Schedule then = {}, double start = 0);

/// OneCycleLR; the optimizer's rate is the highest one.
struct OneCycleOptions {
  double pct_start = 0.3;         ///< share of the steps that the rate rises
  double div_factor = 25;         ///< highest over first
  double final_div_factor = 1e4;  ///< first over last
  bool linear = false;            ///< lines in place of half cosines
};
/// Up from rate / div_factor to the rate, then down, in `steps` steps; then it stays.
Schedule one_cycle(int64_t steps, const OneCycleOptions& options = {});
/// What goes with it for "momentum" or "beta1": from `most` down to `least` and back.
Schedule one_cycle_momentum(int64_t steps, double least = 0.85, double most = 0.95,
                            const OneCycleOptions& options = {});

/// Sets an option of all groups of an optimizer, local or distributed, step by step, from what it is at
/// first.
class Scheduler final : public Stateful {
 public:
  /// Sets the values of step 0. The optimizer must outlive it. `invalid` if `option` is no number.
  Scheduler(Tunable& optimizer, Schedule schedule, std::string option = "lr");
  /// On to the next step; call it after each step of the optimizer.
  void step();
  int64_t count() const { return count_; }

  /// "step" (int64, 0-d) and "base" (float64, [groups]).
  StateDict state() const override;
  /// Goes on from a state(), and sets the values of that step. `invalid`, with nothing changed, if it does
  /// not fit.
  void load_state(const StateDict& state) override;

 private:
  void apply();
  Tunable* optimizer_;
  Schedule schedule_;
  std::string option_;
  std::vector<double> base_;
  int64_t count_ = 0;
};

/// Lowers the rate when a measure stops getting better (ReduceLROnPlateau).
class Plateau final : public Stateful {
 public:
  struct Options {
    bool larger_is_better = false;
    double factor = 0.1;            ///< new rate over old, below 1
    int64_t patience = 10;          ///< measures without a better one that are let pass
    double threshold = 1e-4;        ///< by how much a measure must be better to count
    bool absolute = false;          ///< the threshold is a difference, not a share of the best
    int64_t cooldown = 0;           ///< measures after a change that do not count
    double min_lr = 0, eps = 1e-8;  ///< changes smaller than eps are not made
  };
  /// `invalid` on options out of range.
  explicit Plateau(const Options& options);
  Plateau() : Plateau(Options{}) {}

  /// Takes the next measure, and lowers the rates of all groups if it is time. True if it was.
  bool step(Tunable& optimizer, double measure);
  double best() const { return best_; }  ///< infinite before the first

  /// "best" (float64), "bad" and "cooldown" (int64), 0-d.
  StateDict state() const override;
  void load_state(const StateDict& state) override;

 private:
  bool better(double measure) const;
  Options options_;
  double best_;
  int64_t bad_ = 0, cooldown_ = 0;
};

}  // namespace troupe::optim
