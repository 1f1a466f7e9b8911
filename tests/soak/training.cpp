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
  enum class Kind { input, forward, fetched, in_vain, second, via, add, scale } kind = Kind::input;
  size_t a = 0, b = 0;  // earlier values
  size_t shard = 0, next = 0;
  double factor = 1;
  Pair value{};
};

// Results of one call: forward, fetched and in_vain are x w, second is x + w, the other one unused.
bool multiplies(Step::Kind kind) {
  return kind == Step::Kind::forward || kind == Step::Kind::fetched || kind == Step::Kind::in_vain;
}

struct Model {
  std::vector<RRef<Shard>> shards;
  std::vector<Pair> weights;

  Pair value(const std::vector<Step>& steps, const Step& s) const {
    Pair out{};
    for (size_t i = 0; i < 2; ++i) {
      const double x = steps[s.a].value[i];
      if (multiplies(s.kind)) out[i] = x * weights[s.shard][i];
      if (s.kind == Step::Kind::second) out[i] = x + weights[s.shard][i];
      if (s.kind == Step::Kind::via) out[i] = x * weights[s.shard][i] * (1 + weights[s.next][i]);
      if (s.kind == Step::Kind::add) out[i] = x + steps[s.b].value[i];
      if (s.kind == Step::Kind::scale) out[i] = x * s.factor;
    }
    return out;
  }
  /// Gradients of the sum of values, each by its weight: of the shards. `of`: of the values; as given, the
  /// weights.
  std::vector<Pair> gradients(const std::vector<Step>& steps, std::vector<Pair>& of) const {
    std::vector<Pair> out(shards.size(), Pair{});
    for (size_t n = steps.size(); n-- > 1;) {
      const Step& s = steps[n];
      for (size_t i = 0; i < 2; ++i) {
        const double g = of[n][i], x = steps[s.a].value[i];
        const double w = weights[s.shard][i], v = weights[s.next][i];
        if (multiplies(s.kind)) of[s.a][i] += g * w, out[s.shard][i] += g * x;
        if (s.kind == Step::Kind::second) of[s.a][i] += g, out[s.shard][i] += g;
        if (s.kind == Step::Kind::via) {
          of[s.a][i] += g * w * (1 + v);
          out[s.shard][i] += g * x * (1 + v);
          out[s.next][i] += g * x * w;
        }
        if (s.kind == Step::Kind::add) of[s.a][i] += g, of[s.b][i] += g;
        if (s.kind == Step::Kind::scale) of[s.a][i] += g * s.factor;
      }
    }
    return out;
  }
};

Step random_step(Script& s, const Model& model, const std::vector<Step>& steps) {
  Step step;
  using Kind = Step::Kind;
  constexpr Kind kinds[] = {Kind::forward, Kind::forward, Kind::fetched, Kind::in_vain, Kind::second,
                            Kind::via,     Kind::via,     Kind::add,     Kind::scale};
  step.kind = kinds[s.pick(std::size(kinds))];
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
    case Step::Kind::fetched:
      return left_there<&Shard::forward>(model.shards[s.shard], x).to_here();
    case Step::Kind::in_vain:
      return tracked<&Shard::in_vain>(model.shards[s.shard], model.shards[s.next], x);
    case Step::Kind::second:
      return tracked<&Shard::two>(model.shards[s.shard], x).then([](const Tensors& two) { return two[1]; });
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

// Roots of a pass: the last value and maybe another one; how often it runs; and what comes of it.
struct Roots {
  std::vector<Pair> weights;  // of the values
  int passes = 1;
};

// The gradient of one value, by itself, without a trace in the context.
Task<bool> check_input(Script& s, autograd::Context& context, const Model& model,
                       const std::vector<Step>& steps, const Tensors& values, const Roots& roots,
                       const Tensors& tensors, const Tensors& grads) {
  std::vector<Pair> wanted = roots.weights;
  (void)model.gradients(steps, wanted);
  const size_t input = s.pick(values.size());
  const Tensors inputs{values[input]};  // g++ 12 takes no lists in a co_await
  const autograd::BackwardOptions retain{.retain_graph = true};
  const auto got = co_await settled(context.grad_async(tensors, inputs, grads, retain));
  if (!fine(s, "a gradient of a given input", got)) co_return false;
  if (!same(got.value().at(0), wanted[input])) s.cluster.wrong("the gradient of a given input is wrong");
  co_return true;
}

// Backward from here.
Task<bool> run_back(Script& s, autograd::Context& context, const Model& model, const std::vector<Step>& steps,
                    const Tensors& values, Roots& roots) {
  Tensors tensors{values.back().sum()}, grads{Tensor()};
  roots.weights.back() = {1, 1};
  if (s.chance(3)) {
    const size_t extra = 1 + s.pick(values.size() - 1);
    tensors.push_back(values[extra]), grads.push_back(full({2}, 0.5));
    for (double& weight : roots.weights[extra]) weight += 0.5;
  }
  if (s.chance(4)) {
    const bool right = co_await check_input(s, context, model, steps, values, roots, tensors, grads);
    if (!right) co_return false;
  }
  if (s.chance(4)) roots.passes = 2;
  for (int pass = 1; pass <= roots.passes; ++pass) {
    const autograd::BackwardOptions how{.retain_graph = pass < roots.passes};
    const auto back = co_await settled(context.backward_async(tensors, grads, how));
    if (!fine(s, "a backward pass", back)) co_return false;
  }
  co_return true;
}

// Backward from a value that no one has seen: one shard has it, another starts the pass.
Task<bool> run_back_there(Script& s, const Model& model, std::vector<Step>& steps, const Tensors& values,
                          Roots& roots) {
  Step step;
  step.kind = Step::Kind::fetched;
  step.a = values.size() - 1;
  step.shard = s.pick(model.shards.size());
  step.value = model.value(steps, step);
  steps.push_back(step);
  roots.weights.push_back({1, 1});
  const auto root = left_there<&Shard::forward>(model.shards[step.shard], values.back());
  const auto back =
      co_await settled(tracked<&Shard::backward_of>(model.shards[s.pick(model.shards.size())], root));
  co_return fine(s, "a backward pass elsewhere", back);
}

// One forward and backward pass, and an optimizer step. True if nothing failed.
Task<bool> train(Script& s, Model& model, optim::DistributedOptimizer& optimizer, size_t length) {
  autograd::Context context(*s.process.worker);
  Tensor x = s.tensor();
  x.requires_grad_();
  const auto start = x.to_vector<double>();
  Tensors values{x};
  std::vector<Step> steps(1);
  steps[0].value = {start[0], start[1]};
  while (steps.size() <= length) {
    if (s.chance(20)) {  // an error inside a context
      const auto r = co_await settled(tracked<&Shard::throws>(model.shards[0], model.shards.back(), x));
      if (!r.ok()) s.judge("a forward pass that throws", r.error(), kThrows);
    }
    if (s.chance(12)) {  // a call that is given up while it records
      const auto unwanted = tracked<&Shard::via>(model.shards[0], model.shards.back(), x);
      co_await s.cluster.sleep(Duration(static_cast<int64_t>(s.random.below(5'000'000))));
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
  Roots roots{std::vector<Pair>(steps.size(), Pair{})};
  bool done = false;
  if (s.chance(5))
    done = co_await run_back_there(s, model, steps, values, roots);
  else
    done = co_await run_back(s, context, model, steps, values, roots);
  if (!done || !s.alive()) co_return false;
  auto gradients = model.gradients(steps, roots.weights);
  gradients.push_back(roots.weights[0]);  // of the input
  for (Pair& g : gradients)
    for (double& element : g) element *= roots.passes;
  if (!same(context.grad(x), gradients.back())) s.cluster.wrong("the gradient of the input is wrong");
  gradients.pop_back();
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
