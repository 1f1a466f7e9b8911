#include "optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "optim/saved_state.h"

namespace troupe::optim {
namespace {

void check_steps(const char* name, int64_t steps) {
  if (steps < 1) throw_invalid(fmt::format("[{}] needs at least 1 step, got {}", name, steps));
}

// `what` in [low, high].
void check_number(const char* name, const char* what, double value, double low, double high = HUGE_VAL) {
  if (std::isfinite(value) && value >= low && value <= high) return;
  throw_invalid(fmt::format("[{}] {} must be a number from {} to {}, got {}", name, what, low, high, value));
}

// From `from` at 0 to `to` at 1.
double along(double from, double to, double part, bool linear) {
  if (linear) return from + (to - from) * part;
  return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * part));
}

// first -> peak -> last; the turn is at pct_start of all steps.
double cycle(int64_t steps, const OneCycleOptions& o, int64_t step, double first, double peak, double last) {
  const double end = static_cast<double>(steps) - 1, turn = o.pct_start * static_cast<double>(steps) - 1;
  const double at = std::min(static_cast<double>(step), end);
  if (at <= turn) return along(first, peak, turn > 0 ? at / turn : 1, o.linear);
  return along(peak, last, (at - turn) / (end - turn), o.linear);
}

void check_cycle(const char* name, int64_t steps, const OneCycleOptions& o) {
  check_steps(name, steps);
  check_number(name, "pct_start", o.pct_start, 0, 1);
  check_number(name, "div_factor", o.div_factor, 1);
  check_number(name, "final_div_factor", o.final_div_factor, 1);
}

}  // namespace

Schedule step_decay(int64_t size, double gamma) {
  check_steps("step_decay", size);
  check_number("step_decay", "gamma", gamma, 0);
  return [=](double base, int64_t step) { return base * std::pow(gamma, static_cast<double>(step / size)); };
}

Schedule multi_step(std::vector<int64_t> milestones, double gamma) {
  if (!std::is_sorted(milestones.begin(), milestones.end()))
    throw_invalid("[multi_step] the milestones must ascend");
  check_number("multi_step", "gamma", gamma, 0);
  return [=](double base, int64_t step) {
    const auto passed = std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
    return base * std::pow(gamma, static_cast<double>(passed));
  };
}

Schedule exponential(double gamma) {
  check_number("exponential", "gamma", gamma, 0);
  return [=](double base, int64_t step) { return base * std::pow(gamma, static_cast<double>(step)); };
}

Schedule cosine(int64_t steps, double floor) {
  check_steps("cosine", steps);
  check_number("cosine", "floor", floor, 0);
  return [=](double base, int64_t step) {
    if (step >= steps) return floor;
    return along(base, floor, static_cast<double>(step) / static_cast<double>(steps), false);
  };
}

Schedule warm_up(int64_t steps, Schedule then, double start) {
  check_steps("warm_up", steps);
  check_number("warm_up", "start", start, 0, 1);
  return [=](double base, int64_t step) {
    if (step < steps)
      return base * along(start, 1, static_cast<double>(step) / static_cast<double>(steps), true);
    return then ? then(base, step - steps) : base;
  };
}

Schedule one_cycle(int64_t steps, const OneCycleOptions& o) {
  check_cycle("one_cycle", steps, o);
  return [=](double base, int64_t step) {
    const double first = base / o.div_factor;
    return cycle(steps, o, step, first, base, first / o.final_div_factor);
  };
}

Schedule one_cycle_momentum(int64_t steps, double least, double most, const OneCycleOptions& o) {
  check_cycle("one_cycle_momentum", steps, o);
  check_number("one_cycle_momentum", "the largest value", most, 0);
  check_number("one_cycle_momentum", "the smallest value", least, 0, most);
  return [=](double, int64_t step) { return cycle(steps, o, step, most, least, most); };
}

Scheduler::Scheduler(Tunable& optimizer, Schedule schedule, std::string option)
    : optimizer_(&optimizer), schedule_(std::move(schedule)), option_(std::move(option)) {
  for (size_t g = 0; g < optimizer.group_count(); ++g) base_.push_back(optimizer.number(option_, g));
  apply();
}

void Scheduler::step() {
  ++count_;
  apply();
}

void Scheduler::apply() {
  for (size_t g = 0; g < base_.size(); ++g)
    optimizer_->change_options(g, {{option_, schedule_(base_[g], count_)}});
}

StateDict Scheduler::state() const {
  return {{"step", tensor(count_, int64)}, {"base", tensor(base_, float64)}};
}

void Scheduler::load_state(const StateDict& state) {
  const int64_t count = saved_count("scheduler", state, "step");
  const auto base =
      saved("scheduler", state, "base", {static_cast<int64_t>(base_.size())}, float64).to_vector<double>();
  for (const double b : base) check_number("scheduler", "state base", b, 0);
  count_ = count;
  base_ = base;
  apply();
}

Plateau::Plateau(const Options& o) : options_(o), best_(o.larger_is_better ? -HUGE_VAL : HUGE_VAL) {
  check_number("plateau", "factor", o.factor, 0, 1);
  if (o.factor == 1) throw_invalid("[plateau] the factor must be below 1");
  check_number("plateau", "threshold", o.threshold, 0);
  check_number("plateau", "min_lr", o.min_lr, 0);
  check_number("plateau", "eps", o.eps, 0);
  if (o.patience < 0 || o.cooldown < 0)
    throw_invalid(fmt::format("[plateau] patience and cooldown must be at least 0, got {} and {}", o.patience,
                              o.cooldown));
}

bool Plateau::better(double measure) const {
  const double sign = options_.larger_is_better ? 1 : -1;
  const double bar =
      options_.absolute ? best_ + sign * options_.threshold : best_ * (1 + sign * options_.threshold);
  return options_.larger_is_better ? measure > bar : measure < bar;
}

bool Plateau::step(Tunable& optimizer, double measure) {
  if (better(measure)) {
    best_ = measure;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_ = 0;
  }
  if (bad_ <= options_.patience) return false;
  for (size_t g = 0; g < optimizer.group_count(); ++g) {
    const double old = optimizer.lr(g), lowered = std::max(old * options_.factor, options_.min_lr);
    if (old - lowered > options_.eps) optimizer.change_options(g, {{"lr", lowered}});
  }
  cooldown_ = options_.cooldown;
  bad_ = 0;
  return true;
}

StateDict Plateau::state() const {
  return {
      {"best", tensor(best_, float64)}, {"bad", tensor(bad_, int64)}, {"cooldown", tensor(cooldown_, int64)}};
}

void Plateau::load_state(const StateDict& state) {
  const double best = saved_number("plateau", state, "best");
  const int64_t bad = saved_count("plateau", state, "bad");
  const int64_t cooldown = saved_count("plateau", state, "cooldown");
  best_ = best, bad_ = bad, cooldown_ = cooldown;
}

}  // namespace troupe::optim
