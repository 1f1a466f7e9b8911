// Random programs of calls and backward passes, some of them recorded, so that later ones differentiate them:
// on actors, and beside them on one thread without any. Elements are small integers, so sums have the same
// bits in any order.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "autograd/checkpoint.h"
#include "autograd/hooks.h"
#include "core/base/generator.h"
#include "troupe/troupe.h"

namespace troupe::testing::derivatives {

inline constexpr int64_t kUnits = 5, kSteps = 8;
/// Where the units live.
inline constexpr WorkerId kPlaces[kUnits] = {1, 1, 2, 3, 0};

inline Tensor numbers(double a, double b) { return tensor({a, b}, float64); }
inline Tensor squared(const Tensor& g) { return ops::mul(g, g); }

/// The weight of a unit. With a hook: one that is only right if it sees whole gradients.
struct Weight {
  explicit Weight(int64_t start, bool hooked) : w(numbers(double(start), 1 - double(start))) {
    w.requires_grad_();
    if (hooked) hook = autograd::register_hook(w, squared);
  }
  Tensor w;
  autograd::HookHandle hook;
};

/// What a unit does, in number `step`; `gradient`: of its weight, in the context.
template <class Gradient>
Tensors step_of(int64_t step, const Tensor& w, const Tensors& in, Gradient gradient) {
  const Tensor &x = in[0], &y = in[1];
  switch (step) {
    case 0:
      return {ops::mul(x, w)};
    case 1:
      return {ops::add(ops::mul(x, y), w)};
    case 2:
      return {ops::mul(x, w), ops::mul(x, x)};  // one of them may stay unused
    case 3: {
      Tensor z = ops::sub(x, w);
      if (z.requires_grad()) autograd::register_hook(z, squared).keep();
      return {ops::add(z, y)};  // a caller may ask for gradients of what it got, not of what has the hook
    }
    case 4:
      return {autograd::checkpoint([w](const Tensor& t) { return ops::mul(ops::mul(t, t), w); }, x)};
    case 5: {
      const Tensor g = gradient();
      return {ops::mul(x, g.defined() ? g : w)};
    }
    case 6:
      return {ops::mul(w, w)};
    default:
      return {ops::add(x, y)};
  }
}

inline Tensors inputs_of(const Tensor& w, const Tensor& last) {
  return last.defined() && last.requires_grad() ? Tensors{w, last} : Tensors{w};
}

/// What results of units that need gradients go through before they leave; null: nothing. It changes neither
/// numbers nor gradients. For tests that run on one thread.
inline Tensor (*result_step)(const Tensor&) = nullptr;

struct Weighted : Actor {
  Weighted(int64_t start, bool hooked) : weight(start, hooked) {}
  Tensors run(int64_t step, Tensors in) {
    Tensors out = step_of(step, weight.w, in, [&] { return autograd::context_gradient(weight.w); });
    for (Tensor& t : out)
      if (result_step && t.requires_grad()) t = result_step(t);
    last = out[0];
    return out;
  }
  /// Through another one.
  Task<Tensors> through(int64_t step, Tensors in, RRef<Weighted> next) {
    Tensors out = run(step, in);
    Tensors there{out[0], in[1]};
    out[0] = ops::add((co_await next.call<&Weighted::run>(0, there))[0], in[0]);
    last = out[0];
    co_return out;
  }
  Tensor gradient(bool take) {
    return take ? autograd::take_context_gradient(weight.w) : autograd::context_gradient(weight.w);
  }
  /// Passes with only inputs stop at the weight and at the last result.
  void set_inputs() { autograd::set_context_inputs(inputs_of(weight.w, last)); }
  Tensor gradient_of_last(bool take) {
    if (!last.defined()) return {};
    return take ? autograd::take_context_gradient(last) : autograd::context_gradient(last);
  }
  Weight weight;
  Tensor last;
  static constexpr auto remote = methods<&Weighted::run, &Weighted::through, &Weighted::gradient,
                                         &Weighted::set_inputs, &Weighted::gradient_of_last>;
};

/// A program's surroundings without actors.
class OnOneThread {
 public:
  void begin(const std::vector<std::pair<int64_t, bool>>& units) {
    for (const auto& [start, hooked] : units) weights_.push_back(std::make_unique<Weight>(start, hooked));
  }
  Tensors run(size_t unit, int64_t step, const Tensors& in) {
    const Tensor& w = weights_[unit]->w;
    Tensors out = step_of(step, w, in, [&] { return sums_[w.impl()]; });
    last_[unit] = out[0];
    return out;
  }
  Tensors through(size_t unit, int64_t step, const Tensors& in, size_t next) {
    Tensors out = run(unit, step, in);
    out[0] = ops::add(run(next, 0, {out[0], in[1]})[0], in[0]);
    last_[unit] = out[0];
    return out;
  }
  void backward(const Tensors& roots, const Tensors& grads, const Tensors& leaves,
                const autograd::BackwardOptions& how) {
    Tensors all = leaves;
    if (how.only_inputs) all.resize(1);
    for (size_t i = 0; i < weights_.size(); ++i)
      for (const Tensor& t : how.only_inputs ? inputs_[i] : Tensors{weights_[i]->w}) all.push_back(t);
    const Tensors got = grad(roots, all, grads, how);
    for (size_t i = 0; i < all.size(); ++i) {
      Tensor& sum = sums_[all[i].impl()];
      if (got[i].defined()) sum = sum.defined() ? ops::add(sum, got[i]) : got[i];
    }
  }
  Tensors grad(const Tensors& roots, const Tensors& inputs, const Tensors& grads,
               const autograd::BackwardOptions& how) {
    return autograd::grad(roots, inputs, grads, {.retain_graph = true, .create_graph = how.create_graph});
  }
  Tensor gradient(const Tensor& leaf, bool take) {
    Tensor& sum = sums_[leaf.impl()];
    return take ? std::exchange(sum, Tensor()) : sum;
  }
  Tensor gradient(size_t unit, bool take) { return gradient(weights_[unit]->w, take); }
  void set_inputs(const Tensor&) {
    for (size_t i = 0; i < weights_.size(); ++i) inputs_[i] = inputs_of(weights_[i]->w, last_[i]);
  }
  Tensor gradient_of_last(size_t unit, bool take) {
    return last_[unit].defined() ? gradient(last_[unit], take) : Tensor();
  }

 private:
  std::vector<std::unique_ptr<Weight>> weights_;
  Tensor last_[kUnits];
  Tensors inputs_[kUnits];
  std::map<const TensorImpl*, Tensor> sums_;
};

/// The same with actors, in a context. `spawn(worker, start, hooked)` makes one; `wait(future)` gives its
/// value, or throws.
template <class Spawn, class Wait>
class OnActors {
 public:
  OnActors(autograd::Context& context, Spawn spawn, Wait wait)
      : context_(context), spawn_(spawn), wait_(wait) {}
  void begin(const std::vector<std::pair<int64_t, bool>>& units) {
    for (size_t i = 0; i < units.size(); ++i)
      units_.push_back(spawn_(kPlaces[i], units[i].first, units[i].second));
  }
  Tensors run(size_t unit, int64_t step, const Tensors& in) {
    return wait_(units_[unit].template call<&Weighted::run>(step, in));
  }
  Tensors through(size_t unit, int64_t step, const Tensors& in, size_t next) {
    return wait_(units_[unit].template call<&Weighted::through>(step, in, units_[next]));
  }
  void backward(const Tensors& roots, const Tensors& grads, const Tensors&,
                const autograd::BackwardOptions& how) {
    wait_(context_.backward_async(roots, grads, how));
  }
  Tensors grad(const Tensors& roots, const Tensors& inputs, const Tensors& grads,
               const autograd::BackwardOptions& how) {
    return wait_(context_.grad_async(roots, inputs, grads, how));
  }
  Tensor gradient(const Tensor& leaf, bool take) {
    return take ? autograd::take_context_gradient(leaf) : context_.grad(leaf);
  }
  Tensor gradient(size_t unit, bool take) {
    return wait_(units_[unit].template call<&Weighted::gradient>(take));
  }
  void set_inputs(const Tensor& leaf) {
    autograd::set_context_inputs({leaf});
    for (auto& unit : units_) wait_(unit.template call<&Weighted::set_inputs>());
  }
  Tensor gradient_of_last(size_t unit, bool take) {
    return wait_(units_[unit].template call<&Weighted::gradient_of_last>(take));
  }

 protected:
  autograd::Context& context_;
  Spawn spawn_;
  Wait wait_;
  std::vector<RRef<Weighted>> units_;
};

/// All numbers that a program gave, in order. An undefined gradient is zero.
using Numbers = std::vector<double>;

/// Too large for sums that are exact: such a program says nothing.
inline bool too_large(const Numbers& numbers) {
  for (double n : numbers)
    if (!(std::abs(n) < double(int64_t{1} << 36))) return true;
  return false;
}

/// Program number `seed`: two to four passes, each over what was computed so far, earlier gradients included.
template <class World>
Numbers play(uint64_t seed, World& world) {
  Generator random(seed);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random.below(n)); };
  const auto small = [&] { return pick(2) ? double(1 + pick(2)) : -double(1 + pick(2)); };
  Numbers out;
  Tensors leaves, values;
  const auto keep = [&](const Tensor& t) {
    values.push_back(t.defined() ? t : numbers(0, 0));
    for (double n : values.back().detach().template to_vector<double>()) out.push_back(n);
  };
  // A tensor of the program's own: gradients of it mean the same whether or not the pass gave a copy.
  const auto keep_gradient = [&](const Tensor& g) { keep(g.defined() ? ops::mul(g, numbers(1, 1)) : g); };
  const auto any = [&](bool recent) {
    const size_t n = recent ? std::min<size_t>(values.size(), 4) : values.size();
    return values[values.size() - 1 - pick(n)];
  };
  const auto recorded = [&](size_t count) {  // up to `count` tensors that need gradients
    Tensors some;
    for (size_t i = 0; i < count; ++i)
      if (Tensor t = any(i == 0); t.requires_grad()) some.push_back(t);
    return some;
  };

  std::vector<std::pair<int64_t, bool>> units;
  for (int64_t i = 0; i < kUnits; ++i) units.emplace_back(pick(2) ? 2 : -1, pick(6) == 0);
  world.begin(units);
  for (int i = 0; i < 2; ++i) {
    leaves.push_back(numbers(small(), small()));
    leaves.back().requires_grad_();
    values.push_back(leaves.back());
  }
  const size_t passes = 2 + pick(3);
  for (size_t pass = 0; pass < passes; ++pass) {
    for (size_t i = 0, n = 1 + pick(pass ? 3 : 5); i < n; ++i) {
      const Tensors in{any(true), any(false)};
      const size_t unit = pick(kUnits), next = pick(kUnits);
      const auto step = static_cast<int64_t>(pick(kSteps));
      Tensors made;
      if (pick(5) == 0)
        made = {pick(2) ? ops::mul(in[0], in[1]) : ops::add(in[0], in[1])};
      else if (pick(4) == 0 && next != unit)
        made = world.through(unit, step, in, next);
      else
        made = world.run(unit, step, in);
      for (const Tensor& t : made) keep(t);
    }
    const bool last = pass + 1 == passes;
    autograd::BackwardOptions how{.retain_graph = !last, .create_graph = !last && pick(8) != 0};
    const Tensors roots = recorded(1 + pick(3));
    Tensors grads;
    for (size_t i = 0; i < roots.size(); ++i) grads.push_back(pick(3) ? numbers(1, small()) : any(false));
    if (pick(2)) {
      const Tensors inputs = recorded(1 + pick(4));
      if (roots.empty() || inputs.empty()) continue;
      for (const Tensor& g : world.grad(roots, inputs, grads, how)) keep_gradient(g);
    } else {
      if (roots.empty()) continue;
      how.only_inputs = pick(3) == 0;
      if (how.only_inputs) world.set_inputs(leaves[0]);
      world.backward(roots, grads, leaves, how);
      for (const Tensor& leaf : leaves) keep_gradient(world.gradient(leaf, pick(2) == 0));
      for (size_t i = 0; i < kUnits; ++i) keep_gradient(world.gradient(i, pick(2) == 0));
      for (size_t i = 0; i < kUnits && how.only_inputs; ++i)
        keep_gradient(world.gradient_of_last(i, pick(2) == 0));
    }
  }
  return out;
}

}  // namespace troupe::testing::derivatives
