// Training steps whose graph wanders over workers at random, beside the same computation by hand.
#include <array>

#include "tests/soak/script.h"

namespace troupe::soak {
namespace {

using Pair = std::array<double, 2>;

bool same(const Tensor& t, const Pair& wanted) {
  const auto got = t.defined() ? t.to_vector<double>() : std::vector<double>{0, 0};
  const auto near = [](double a, double b) { return std::fabs(a - b) <= 1e-4 * (1 + std::fabs(b)); };
  return got.size() == 2 && near(got[0], wanted[0]) && near(got[1], wanted[1]);
}

// What was computed, so that gradients can be.
struct Step {
  enum class Kind { input, forward, via, add, scale } kind = Kind::input;
  size_t a = 0, b = 0;  // earlier values
  size_t shard = 0, next = 0;
  double factor = 1;
  Pair value{};
};

struct Model {
  std::vector<RRef<Shard>> shards;
  std::vector<Pair> weights;

  Pair value(const std::vector<Step>& steps, const Step& s) const {
    Pair out{};
    for (size_t i = 0; i < 2; ++i) {
      const double x = steps[s.a].value[i];
      if (s.kind == Step::Kind::forward) out[i] = x * weights[s.shard][i];
      if (s.kind == Step::Kind::via) out[i] = x * weights[s.shard][i] * (1 + weights[s.next][i]);
      if (s.kind == Step::Kind::add) out[i] = x + steps[s.b].value[i];
      if (s.kind == Step::Kind::scale) out[i] = x * s.factor;
    }
    return out;
  }
  /// Gradients of the sum of the last value: of the input, then of the shards.
  std::vector<Pair> gradients(const std::vector<Step>& steps) const {
    std::vector<Pair> of(steps.size(), Pair{}), out(1 + shards.size(), Pair{});
    of.back() = {1, 1};
    for (size_t n = steps.size(); n-- > 1;) {
      const Step& s = steps[n];
      for (size_t i = 0; i < 2; ++i) {
        const double g = of[n][i], x = steps[s.a].value[i];
        const double w = weights[s.shard][i], v = weights[s.next][i];
        if (s.kind == Step::Kind::forward) of[s.a][i] += g * w, out[1 + s.shard][i] += g * x;
        if (s.kind == Step::Kind::via) {
          of[s.a][i] += g * w * (1 + v);
          out[1 + s.shard][i] += g * x * (1 + v);
          out[1 + s.next][i] += g * x * w;
        }
        if (s.kind == Step::Kind::add) of[s.a][i] += g, of[s.b][i] += g;
        if (s.kind == Step::Kind::scale) of[s.a][i] += g * s.factor;
      }
    }
    out[0] = of[0];
    return out;
  }
};

Step random_step(Script& s, const Model& model, const std::vector<Step>& steps) {
  Step step;
  const size_t kind = s.pick(6);
  step.kind = kind < 3    ? Step::Kind::forward
              : kind == 3 ? Step::Kind::via
              : kind == 4 ? Step::Kind::add
                          : Step::Kind::scale;
  step.a = s.chance(3) ? s.pick(steps.size()) : steps.size() - 1;
  step.b = s.pick(steps.size());
  step.shard = s.pick(model.shards.size());
  step.next = s.pick(model.shards.size());
  step.factor = s.chance(2) ? 2 : 0.5;
  return step;
}

Future<Tensor> compute(const Model& model, const Step& s, const Tensors& values) {
  const Tensor& x = values[s.a];
  switch (s.kind) {
    case Step::Kind::forward:
      return tracked<&Shard::forward>(model.shards[s.shard], x);
    case Step::Kind::via:
      return tracked<&Shard::via>(model.shards[s.shard], model.shards[s.next], x);
    case Step::Kind::add:
      return Future<Tensor>::ready(ops::add(x, values[s.b]));
    default:
      return Future<Tensor>::ready(ops::mul(x, s.factor));
  }
}

// False: something failed, and has been judged.
template <class T>
bool fine(Script& s, const char* what, const Result<T>& r) {
  if (!r.ok()) s.judge(what, r.error());
  return r.ok();
}

Task<bool> compare(Script& s, const Model& model, const std::vector<Pair>& wanted, bool gradients) {
  for (size_t i = 0; i < model.shards.size(); ++i) {
    Future<Tensor> asked;  // g++ 12 destroys temporaries of a conditional operand of co_await twice
    if (gradients)
      asked = tracked<&Shard::gradient>(model.shards[i]);
    else
      asked = tracked<&Shard::weights>(model.shards[i]);
    const auto r = co_await settled(asked);
    if (!fine(s, gradients ? "asking for a gradient" : "asking for weights", r)) co_return false;
    if (same(r.value(), wanted[i])) continue;
    if (s.alive()) s.cluster.wrong(gradients ? "a gradient is wrong" : "weights after a step are wrong");
    co_return false;
  }
  co_return true;
}

// One forward and backward pass, and an optimizer step. True if nothing failed.
Task<bool> train(Script& s, Model& model, optim::DistributedOptimizer& optimizer, size_t length) {
  autograd::Context context(*s.process.worker);
  Tensor x = s.tensor();
  x.set_requires_grad();
  const auto start = x.to_vector<double>();
  Tensors values{x};
  std::vector<Step> steps(1);
  steps[0].value = {start[0], start[1]};
  while (steps.size() <= length) {
    if (s.chance(20)) {  // an error inside a context
      const auto r = co_await settled(tracked<&Shard::throws>(model.shards[0], model.shards.back(), x));
      if (!r.ok()) s.judge("a forward pass that throws", r.error(), kThrows);
    }
    Step step = random_step(s, model, steps);
    const auto y = co_await settled(compute(model, step, values));
    if (!fine(s, "a forward pass", y) || !s.alive()) co_return false;
    step.value = model.value(steps, step);
    if (!same(y.value(), step.value)) {
      s.cluster.wrong("a forward pass gave a wrong result");
      co_return false;
    }
    steps.push_back(step);
    values.push_back(y.value());
  }
  const Tensors roots{values.back().sum()};
  const auto back = co_await settled(context.backward_async(roots));
  if (!fine(s, "a backward pass", back)) co_return false;
  if (!s.alive()) co_return false;
  auto gradients = model.gradients(steps);
  if (!same(context.grad(x), gradients[0])) s.cluster.wrong("the gradient of the input is wrong");
  gradients.erase(gradients.begin());
  const bool right = co_await compare(s, model, gradients, true);
  if (!right || !s.alive()) co_return false;
  const auto stepped = co_await settled(optimizer.step_async(context));
  if (!fine(s, "an optimizer step", stepped)) co_return false;
  for (size_t i = 0; i < model.weights.size(); ++i)
    for (size_t j = 0; j < 2; ++j) model.weights[i][j] -= optimizer.lr() * gradients[i][j];
  if (s.alive() && s.chance(2)) {
    const auto ended = co_await settled(context.end());
    if (!fine(s, "the end of a context", ended)) co_return false;
  }
  if (!s.alive()) co_return false;
  co_return co_await compare(s, model, model.weights, false);
}

Model model_on(Script& s, const std::vector<WorkerId>& workers) {
  Model model;
  for (WorkerId w : workers) {
    const auto a = double(1 + s.random.below(3)), b = double(1 + s.random.below(3));
    model.shards.push_back(s.process.spawn<Shard>(w, a, b));
    model.weights.push_back({a, b});
  }
  return model;
}

std::vector<AnyRef> all_of(const Model& model) { return {model.shards.begin(), model.shards.end()}; }

}  // namespace

Task<void> training_program(Script& s) {
  std::vector<WorkerId> workers;
  for (size_t i = 0, n = 2 + s.pick(2); i < n; ++i) workers.push_back(s.any_worker());
  Model model = model_on(s, workers);
  optim::Distributed<optim::SGD> optimizer(all_of(model), {.lr = 0.125});
  for (size_t i = 0, n = 1 + s.pick(2); i < n && s.alive(); ++i) {
    const bool right = co_await train(s, model, optimizer, 1 + s.pick(4));
    if (!right) co_return;
  }
}

Task<bool> one_step(Script& s, WorkerId a, WorkerId b) {
  Model model = model_on(s, {a, b});
  optim::Distributed<optim::SGD> optimizer(all_of(model), {.lr = 0.125});
  co_return co_await train(s, model, optimizer, 3);
}

}  // namespace troupe::soak
