// Functions of one's own: their gradients beside those of the operators that do the same, and what is
// refused.
#include "autograd/function.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "autograd/autograd.h"
#include "autograd/split_pass.h"
#include "core/base/generator.h"
#include "core/graph/anomaly.h"
#include "ops/inplace.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;
using autograd::Function, autograd::FunctionCtx;
using Catch::Contains;
using testing::difference, testing::invalid_text;

namespace {

struct Square : Function<Square> {
  static Tensor forward(Ctx& ctx, Tensor x) {
    ctx.save_for_backward({x});
    return x * x;
  }
  static Tensors backward(Ctx& ctx, Tensors grads) { return {grads[0] * 2 * ctx.saved_tensors()[0]}; }
};

// Saves its result.
struct Exp : Function<Exp> {
  static Tensor forward(Ctx& ctx, const Tensor& x) {
    Tensor y = ops::exp(x);
    ctx.save_for_backward({y});
    return y;
  }
  static Tensor backward(Ctx& ctx, const Tensors& grads) { return grads[0] * ctx.saved_tensors()[0]; }
};

// x to a power, which its Ctx keeps; the gradient of w x is broadcast.
struct ScaledPower : Function<ScaledPower> {
  struct Ctx : FunctionCtx {
    double power = 0;
  };
  static Tensor forward(Ctx& ctx, Tensor x, double power, std::optional<Tensor> w) {
    ctx.power = power;
    ctx.save_for_backward({x, w.value_or(Tensor())});
    const Tensor y = ops::pow(x, power);
    return w ? y * *w : y;
  }
  static Tensors backward(Ctx& ctx, Tensors grads) {
    const Tensor &x = ctx.saved_tensors()[0], &w = ctx.saved_tensors()[1], &g = grads[0];
    Tensor gx, gw;
    if (ctx.needs_input_grad(0)) gx = g * ctx.power * ops::pow(x, ctx.power - 1);
    if (gx.defined() && w.defined()) gx = gx * w;
    if (ctx.needs_input_grad(2)) gw = g * ops::pow(x, ctx.power);
    return {gx, Tensor(), gw};
  }
};

// Several results of several tensors: the sum, the product, and where the larger ones are.
struct SumAndProduct : Function<SumAndProduct> {
  static Tensors forward(Ctx& ctx, Tensors pair) {
    ctx.save_for_backward(pair);
    Tensor rank = ops::mul(pair[0], 0.0);
    ctx.mark_non_differentiable({rank});
    return {pair[0] + pair[1], pair[0] * pair[1], rank, ops::gt(pair[0], pair[1])};
  }
  static Tensors backward(Ctx& ctx, Tensors grads) {
    const Tensor &a = ctx.saved_tensors()[0], &b = ctx.saved_tensors()[1];
    for (const Tensor& g : grads) CHECK(g.defined());
    return {grads[0] + grads[1] * b, grads[0] + grads[1] * a};
  }
};

Tensor leaf(const Shape& shape, uint64_t seed, DType dtype = float64) {
  Generator g(seed);
  return ops::to(ops::rand(shape, g, float64) + 0.5, dtype).requires_grad_();
}

bool near(const Tensor& a, const Tensor& b) { return difference(a, b, 1e-12, 1e-12).empty(); }

}  // namespace

TEST_CASE("a function gives the gradients of its rule, of first and second order") {
  Tensor x = leaf({2, 3}, 1);
  const Tensor y = Square::apply(x);
  CHECK(y.requires_grad());
  CHECK(y.grad_fn().node->name() == "Square");
  autograd::backward(ops::sum(y));
  CHECK(near(x.grad(), x.detach() * 2));

  for (const bool twice : {false, true}) {
    const auto check = twice ? autograd::gradgradcheck : autograd::gradcheck;
    const double eps = 1e-6, tolerance = twice ? 1e-5 : 1e-6;
    const Tensors two{leaf({2, 3}, 2), leaf({3}, 3)};
    const auto report = [&](const std::function<Tensor(const Tensors&)>& f) {
      const auto r = check(f, two, eps, tolerance);
      INFO(r.text);
      CHECK(r.ok);
      CHECK(r.entries == 9);
    };
    report([](const Tensors& in) { return Square::apply(in[0]) * Square::apply(in[1]); });
    report([](const Tensors& in) { return Exp::apply(Exp::apply(in[0] * 0.3) * in[1]); });
    report([](const Tensors& in) { return ScaledPower::apply(in[0], 3, in[1]); });
    report([](const Tensors& in) {
      const Tensors out = SumAndProduct::apply(Tensors{in[0], ops::expand(in[1], {2, 3})});
      return out[0] * out[1];
    });
  }
}

TEST_CASE("a third derivative, through a result that was saved") {
  Tensor x = leaf({3}, 4), g = Exp::apply(x * 2);
  for (int i = 0; i < 3; ++i) g = autograd::grad({ops::sum(g)}, {x}, {}, {.create_graph = true})[0];
  CHECK(difference(g, ops::exp(x.detach() * 2) * 8, 1e-12, 0) == "");
}

TEST_CASE("random programs with functions of one's own are those with operators") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    Tensors grads[2], seconds[2], values[2];
    for (const bool own : {false, true}) {
      Generator random(seed);
      const auto pick = [&](int64_t n) {
        return static_cast<size_t>(random.below(static_cast<uint64_t>(n)));
      };
      Tensors leaves{leaf({2, 3}, seed), leaf({3}, seed + 100), leaf({2, 1}, seed + 200)};
      Tensors known = leaves;
      for (int step = 0; step < 8; ++step) {
        const Tensor a = known[pick(int64_t(known.size()))], b = known[pick(int64_t(known.size()))];
        switch (pick(5)) {
          case 0:
            known.push_back(own ? Square::apply(ops::tanh(a)) : ops::square(ops::tanh(a)));
            break;
          case 1:
            known.push_back(own ? Exp::apply(ops::tanh(a)) : ops::exp(ops::tanh(a)));
            break;
          case 2:
            known.push_back(own ? ScaledPower::apply(ops::sigmoid(a), 2, ops::tanh(b))
                                : ops::pow(ops::sigmoid(a), 2.0) * ops::tanh(b));
            break;
          case 3: {
            const Tensor p = ops::expand(ops::tanh(a), {2, 3}), q = ops::expand(b, {2, 3});
            const Tensors out = own ? SumAndProduct::apply(Tensors{p, q}) : Tensors{p + q, p * q};
            known.push_back(out[pick(2)]);
            break;
          }
          default:
            known.push_back(a * ops::sigmoid(b) + a);
        }
      }
      const Tensor loss = ops::sum(ops::tanh(known.back())) + ops::mean(known[known.size() - 2]);
      grads[own] = autograd::grad({loss}, leaves, {}, {.create_graph = true});
      Tensor energy = tensor(0, float64);
      for (const Tensor& g : grads[own])
        if (g.defined()) energy = energy + ops::sum(ops::square(g));
      if (energy.requires_grad()) seconds[own] = autograd::grad({energy}, leaves);
      values[own] = {loss};
    }
    CHECK(near(values[0][0], values[1][0]));
    REQUIRE(seconds[0].size() == seconds[1].size());
    const auto same = [](const Tensor& a, const Tensor& b, double tolerance) {  // undefined: zero
      const Tensor& one = a.defined() ? a : b;
      if (!one.defined()) return std::string();
      const Tensor zero = zeros(one.shape(), float64);
      return difference(a.defined() ? a : zero, b.defined() ? b : zero, tolerance, tolerance);
    };
    for (size_t i = 0; i < 3; ++i) CHECK(same(grads[1][i], grads[0][i], 1e-10) == "");
    for (size_t i = 0; i < seconds[0].size(); ++i) CHECK(same(seconds[1][i], seconds[0][i], 1e-9) == "");
  }
}

TEST_CASE("results without a gradient, and arguments without one") {
  Tensor x = leaf({3}, 5);
  const Tensor y = leaf({3}, 6).detach();
  const Tensors out = SumAndProduct::apply(Tensors{x, y});
  CHECK(out[0].requires_grad());
  CHECK(!out[2].requires_grad());
  CHECK(!out[3].requires_grad());
  CHECK(out[3].dtype() == boolean);
  autograd::backward(ops::sum(out[1]));  // no gradient comes for the first result: zeros
  CHECK(near(x.grad(), y));
  for (const Tensor& t : SumAndProduct::apply(Tensors{y, y})) CHECK(!t.requires_grad());
  NoGradGuard off;
  CHECK(!Square::apply(x).requires_grad());
}

namespace {

struct Undefined : Function<Undefined> {
  static Tensors forward(Ctx& ctx, Tensor x) {
    ctx.set_materialize_grads(false);
    return {x * 2, x * 3};
  }
  static Tensors backward(Ctx&, Tensors grads) {
    CHECK(!grads[0].defined());
    return {grads[1] * 3};
  }
};

struct Identity : Function<Identity> {
  static Tensor forward(Ctx&, Tensor x) { return x; }
  static Tensors backward(Ctx&, Tensors grads) { return {grads[0] * 5}; }
};

struct Rows : Function<Rows> {
  static Tensors forward(Ctx&, Tensor x) { return (x * 2).chunk(2); }
  static Tensors backward(Ctx&, Tensors grads) { return {ops::cat(grads, 0) * 2}; }
};

}  // namespace

TEST_CASE("set_materialize_grads(false) leaves gradients undefined that did not come") {
  Tensor x = leaf({3}, 7);
  autograd::backward(ops::sum(Undefined::apply(x)[1]));
  CHECK(near(x.grad(), full({3}, 3, float64)));
}

TEST_CASE("an argument that is the result keeps its own history, and what shares elements is not written") {
  Tensor x = leaf({3}, 8);
  const Tensor h = x * 2, y = Identity::apply(h);
  CHECK(h.grad_fn().node->name() != "Identity");
  CHECK_THROWS_WITH(y.mul_(2), Contains("the forward() of an autograd::Function gave it"));
  autograd::backward(ops::sum(y));
  CHECK(near(x.grad(), full({3}, 10, float64)));

  Tensor z = leaf({4, 2}, 9);
  const Tensors rows = Rows::apply(z);
  CHECK_THROWS_WITH(rows[1].add_(1), Contains("the forward() of an autograd::Function gave it"));
  autograd::backward(ops::sum(rows[1] * 3));
  CHECK(near(z.grad(), ops::cat({zeros({2, 2}, float64), full({2, 2}, 6, float64)}, 0)));

  Tensor w = leaf({3}, 8);  // a leaf, given back without grad mode, is not the leaf
  NoGradGuard off;
  CHECK(!Identity::apply(w).requires_grad());
  CHECK(w.requires_grad());
}

TEST_CASE("a result of one's own can be written in place afterwards") {
  Tensor x = leaf({3}, 10);
  const Tensor y = Square::apply(x);
  y.mul_(3);
  autograd::backward(ops::sum(y));
  CHECK(near(x.grad(), x.detach() * 6));
}

TEST_CASE("saved tensors that were written since are refused, and nothing has changed then") {
  Tensor x = leaf({2}, 11);
  const Tensor h = x * 1, y = Square::apply(h), z = Exp::apply(x);
  h.add_(1);
  CHECK_THAT(invalid_text([&] { autograd::backward(ops::sum(y)); }),
             Contains("[Square] tensor 0 of save_for_backward (float64 [2]) was changed in place by add_"));
  z.add_(1);
  CHECK_THAT(invalid_text([&] { autograd::backward(ops::sum(z)); }),
             Contains("[Exp] tensor 0 of save_for_backward (float64 [2]) was changed in place by add_"));
  CHECK(!x.grad().defined());

  const Tensor again = Square::apply(x);
  autograd::backward(ops::sum(again));
  CHECK_THAT(invalid_text([&] { autograd::backward(ops::sum(again)); }),
             Contains("[Square] the backward pass of this step was already run"));
  const Tensor kept = Square::apply(x);
  autograd::backward(ops::sum(kept), {}, {.retain_graph = true});
  autograd::backward(ops::sum(kept));
}

namespace {

struct Wrong : Function<Wrong> {
  static Tensor forward(Ctx& ctx, Tensor x, int what) {
    ctx.save_for_backward({x});
    if (what == 4) x.mul_(2);
    if (what == 5) ctx.mark_non_differentiable({x.clone()});
    if (what == 6) ctx.saved_tensors();
    how = what;
    return x * 2;
  }
  static Tensors backward(Ctx&, Tensors grads) {
    const Tensor g = grads[0];
    switch (how) {
      case 0:
        return {g, g};
      case 1:
        return {g};
      case 2:
        return {ops::cat({g, g}, 0), Tensor()};
      case 3:
        return {ops::gt(g, g), Tensor()};
      case 7:
        throw std::runtime_error("no such luck");
      default:
        return {g, Tensor(), Tensor(), Tensor()};  // too many, but undefined
    }
  }
  static inline int how = 0;
};

struct Nothing : Function<Nothing> {
  static Tensors forward(Ctx&, Tensor) { return {}; }
  static Tensors backward(Ctx&, Tensors) { return {}; }
};

}  // namespace

TEST_CASE("a rule that is wrong is named, with what it gave and what was expected") {
  const auto text = [](int what) {
    Tensor x = leaf({3}, 12);
    return invalid_text([&] { autograd::backward(ops::sum(Wrong::apply(x * 1, what))); });
  };
  CHECK_THAT(text(0),
             Contains("[Wrong] backward() gave a gradient (float64 [3]) for argument 1, which is no tensor"));
  CHECK_THAT(text(1),
             Contains("[Wrong] backward() gave 1 gradients, expected one for each of the 2 arguments"));
  CHECK_THAT(
      text(2),
      Contains("[Wrong] backward() gave the gradient float64 [6] for argument 0, which is float64 [3]"));
  CHECK_THAT(text(3), Contains("[Wrong] backward() gave the gradient bool [3] for argument 0"));
  CHECK_THAT(text(4), Contains("[Wrong] forward() wrote to argument 0 (float64 [3]) in place, by mul_"));
  CHECK_THAT(text(5), Contains("[Wrong] mark_non_differentiable() got float64 [3], which is no result"));
  CHECK_THAT(text(6), Contains("[Function] saved_tensors() are there in backward() only"));
  Tensor x = leaf({3}, 12);
  CHECK_THROWS_WITH(autograd::backward(ops::sum(Wrong::apply(x, 7))), Contains("no such luck"));
  autograd::backward(ops::sum(Wrong::apply(x, 8)));
  CHECK(near(x.grad(), ones({3}, float64)));
  CHECK_THAT(invalid_text([&] { Nothing::apply(x); }), Contains("[Nothing] forward() gave no tensors"));
}

namespace {

struct Widened : Function<Widened> {  // its gradient is of another shape and dtype than its argument
  static Tensor forward(Ctx&, Tensor x) { return ops::to(x, float64) + zeros({4, 3}, float64); }
  static Tensors backward(Ctx&, Tensors grads) { return grads; }
};

// Computes in loops of its own.
struct Cube : Function<Cube> {
  static constexpr bool once_differentiable = true;
  static Tensor forward(Ctx& ctx, Tensor x) {
    ctx.save_for_backward({x});
    Tensor y = empty(x.shape(), float64);
    const auto values = x.to_vector<double>();
    for (size_t i = 0; i < values.size(); ++i) y.data<double>()[i] = std::pow(values[i], 3);
    return y;
  }
  static Tensors backward(Ctx& ctx, Tensors grads) {
    CHECK(!grad_enabled());
    const auto x = ctx.saved_tensors()[0].to_vector<double>(), g = grads[0].to_vector<double>();
    Tensor out = empty(grads[0].shape(), float64);
    for (size_t i = 0; i < x.size(); ++i) out.data<double>()[i] = 3 * x[i] * x[i] * g[i];
    return {out};
  }
};

}  // namespace

TEST_CASE("gradients are summed over what was broadcast, in the dtype of the argument") {
  Tensor x = leaf({3}, 13, float32);
  autograd::backward(ops::sum(Widened::apply(x)));
  CHECK(x.grad().dtype() == float32);
  CHECK(near(x.grad(), full({3}, 4.0)));
}

TEST_CASE("a function that is once differentiable refuses a second derivative before anything runs") {
  Tensor x = leaf({3}, 14);
  CHECK(autograd::gradcheck([](const Tensors& in) { return Cube::apply(in[0]); }, {x}).ok);
  const Tensor g = autograd::grad({ops::sum(Cube::apply(x))}, {x}, {}, {.create_graph = true})[0];
  CHECK(g.requires_grad());
  CHECK_THAT(invalid_text([&] { autograd::backward(ops::sum(g) + ops::sum(x)); }),
             Contains("[Cube] its gradient cannot be differentiated again: it is once_differentiable"));
  CHECK(!x.grad().defined());
}

TEST_CASE("hooks, checkpoints, parts of passes and pictures take functions as they take operators") {
  Tensor x = leaf({3}, 15);
  const Tensor y = Square::apply(x);
  Tensor seen;
  const auto hook = autograd::register_hook(y, [&](const Tensor& g) {
    seen = g;
    return g * 2;
  });
  CHECK_THAT(autograd::graph_dot(y), Contains("Square\\nfloat64 [3]"));
  autograd::backward(ops::sum(y));
  CHECK(near(seen, ones({3}, float64)));
  CHECK(near(x.grad(), x.detach() * 4));

  const auto f = [](const Tensor& t) { return Exp::apply(Square::apply(ops::tanh(t))); };
  Tensor a = leaf({3}, 16), b = leaf({3}, 16);
  autograd::backward(ops::sum(f(a * 2)));
  autograd::backward(ops::sum(autograd::checkpoint(f, b * 2)));
  CHECK(bit_equal(a.grad(), b.grad()));

  Tensor in = leaf({3}, 17), w = leaf({3}, 18);
  const Tensor loss = ops::sum(ScaledPower::apply(in, 2, w));
  internal::autograd::SplitPass pass({loss}, {in});
  CHECK(near(pass.inputs()[0], in.detach() * 2 * w.detach()));
  CHECK(!w.grad().defined());
  struct : internal::autograd::Sink {
    void accumulate(const Tensor& to, const Tensor& grad) override { to.set_grad(grad.clone_data()); }
  } rest;
  pass.rest(rest);
  CHECK(near(w.grad(), ops::square(in.detach())));
  CHECK(!in.grad().defined());
}

namespace {

struct Root : Function<Root> {
  static Tensor forward(Ctx& ctx, Tensor x) {
    ctx.save_for_backward({x});
    return ops::sqrt(ops::abs(x)) + 1;
  }
  static Tensors backward(Ctx& ctx, Tensors grads) {
    const Tensor& x = ctx.saved_tensors()[0];
    return {grads[0] * x / (ops::abs(x) * ops::sqrt(ops::abs(x)) * 2)};
  }
};

struct Hole : Function<Hole> {
  static Tensor forward(Ctx&, Tensor x) {
    Tensor y = x.clone_data();
    y.data<double>()[1] = std::numeric_limits<double>::quiet_NaN();
    return y;
  }
  static Tensors backward(Ctx&, Tensors grads) { return grads; }
};

}  // namespace

TEST_CASE("anomaly checks name a function of one's own") {
  AnomalyGuard on;
  Tensor x = tensor({1, 0, 4}, float64).requires_grad_();
  CHECK_THROWS_WITH(
      autograd::backward(ops::sum(Root::apply(x))),
      Contains("[Root] backward: the gradient of input 0 (float64 [3]) has a NaN at [1]; inputs "
               "of the step: float64 [3]; recorded as step"));
  CHECK_THROWS_WITH(Hole::apply(x), Contains("[Hole] result 0 (float64 [3]) has a NaN at [1]"));
}

TEST_CASE("functions leave nothing behind") {
  const size_t before = allocator_stats().in_use;
  {
    Tensor x = leaf({64}, 19);
    const Tensor y = Exp::apply(Square::apply(x));
    const Tensor g = autograd::grad({ops::sum(y)}, {x}, {}, {.create_graph = true})[0];
    autograd::backward(ops::sum(g * g));
    const Tensor buffer = zeros({64}, float64);
    buffer.add_(Square::apply(x * buffer));  // the graph leads to the buffer, which it saved
  }
  CHECK(allocator_stats().in_use == before);
}
