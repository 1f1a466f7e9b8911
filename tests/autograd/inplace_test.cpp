// Writes in place are recorded as PyTorch records them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "core/graph/node.h"
#include "core/memory/storage.h"
#include "core/tensor/indexing.h"
#include "ops/gradient_rules.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;
using testing::invalid_text;

namespace {

using Doubles = std::vector<double>;

// One write in place and what it stands for.
struct Write {
  const char* name;
  std::function<Tensor(const Tensor&y, const Tensor&other)> in_place, out_of_place;
};

const Tensor kMask = tensor({{1, 0, 0}, {1, 0, 1}}, boolean);

#define BY_TENSOR(op)                                                                                  \
  {                                                                                                    \
#op "_", [](const Tensor& y,                                                                       \
                const Tensor& o) { return y.op##_(o); }, [](const Tensor& y,                           \
                                                            const Tensor& o) { return ops::op(y, o); } \
  }
#define BY_NUMBER(op, s)                                                                               \
  {                                                                                                    \
#op "_ " #s, [](const Tensor& y,                                                                   \
                    const Tensor&) { return y.op##_(s); }, [](const Tensor& y,                         \
                                                              const Tensor&) { return ops::op(y, s); } \
  }
#define UNARY(op)                                                                                            \
  {                                                                                                          \
#op "_", [](const Tensor& y, const Tensor&) { return y.op##_(); },                                       \
                                                                    [](const Tensor& y,                      \
                                                                       const Tensor&) { return ops::op(y); } \
  }

const std::vector<Write>& writes() {
  static const std::vector<Write> all{
      BY_TENSOR(add),
      BY_TENSOR(sub),
      BY_TENSOR(mul),
      BY_TENSOR(div),
      BY_TENSOR(pow),
      BY_NUMBER(add, 1.5),
      BY_NUMBER(sub, 1.5),
      BY_NUMBER(mul, -3.0),
      BY_NUMBER(div, 2.0),
      BY_NUMBER(pow, 3.0),
      UNARY(neg),
      UNARY(abs),
      UNARY(square),
      UNARY(exp),
      UNARY(log),
      UNARY(log1p),
      UNARY(expm1),
      UNARY(floor),
      UNARY(ceil),
      UNARY(round),
      UNARY(sqrt),
      UNARY(rsqrt),
      UNARY(reciprocal),
      UNARY(sin),
      UNARY(cos),
      UNARY(relu),
      UNARY(tanh),
      UNARY(sigmoid),
      {"add_ alpha", [](const Tensor& y, const Tensor& o) { return y.add_(o, 2); },
       [](const Tensor& y, const Tensor& o) { return y + o * 2; }},
      {"sub_ alpha", [](const Tensor& y, const Tensor& o) { return y.sub_(o, 2); },
       [](const Tensor& y, const Tensor& o) { return y - o * 2; }},
      {"clamp_", [](const Tensor& y, const Tensor&) { return y.clamp_(0.9, 1.5); },
       [](const Tensor& y, const Tensor&) { return y.clamp(0.9, 1.5); }},
      {"addcmul_", [](const Tensor& y, const Tensor& o) { return y.addcmul_(o, o.square(), 0.5); },
       [](const Tensor& y, const Tensor& o) { return y + o * 0.5 * o.square(); }},
      {"addcdiv_", [](const Tensor& y, const Tensor& o) { return y.addcdiv_(o, o.square() + 1, 0.5); },
       [](const Tensor& y, const Tensor& o) { return y + o * 0.5 / (o.square() + 1); }},
      {"lerp_", [](const Tensor& y, const Tensor& o) { return y.lerp_(o, 0.25); },
       [](const Tensor& y, const Tensor& o) { return y + (o - y) * 0.25; }},
      {"lerp_ tensor", [](const Tensor& y, const Tensor& o) { return y.lerp_(o, o); },
       [](const Tensor& y, const Tensor& o) { return y + (o - y) * o; }},
      {"maximum_", [](const Tensor& y, const Tensor& o) { return ops::maximum_(y, o), y; },
       [](const Tensor& y, const Tensor& o) { return ops::maximum(y, o); }},
      {"minimum_", [](const Tensor& y, const Tensor& o) { return ops::minimum_(y, o), y; },
       [](const Tensor& y, const Tensor& o) { return ops::minimum(y, o); }},
      {"copy_", [](const Tensor& y, const Tensor& o) { return y.copy_(o); },
       [](const Tensor& y, const Tensor& o) { return y * 0.0 + o; }},
      {"copy_ number", [](const Tensor& y, const Tensor& o) { return y.copy_(o.sum()); },
       [](const Tensor& y, const Tensor& o) { return y * 0.0 + o.sum(); }},
      {"fill_", [](const Tensor& y, const Tensor&) { return y.fill_(2.5); },
       [](const Tensor& y, const Tensor&) { return y * 0.0 + 2.5; }},
      {"fill_ tensor", [](const Tensor& y, const Tensor& o) { return y.fill_(o.sum()); },
       [](const Tensor& y, const Tensor& o) { return y * 0.0 + o.sum(); }},
      {"zero_", [](const Tensor& y, const Tensor&) { return y.zero_(); },
       [](const Tensor& y, const Tensor&) { return y * 0.0; }},
      {"masked_fill_", [](const Tensor& y, const Tensor&) { return y.masked_fill_(kMask, 4); },
       [](const Tensor& y, const Tensor&) { return y.masked_fill(kMask, 4); }},
      {"masked_fill_ tensor", [](const Tensor& y, const Tensor& o) { return y.masked_fill_(kMask, o.sum()); },
       [](const Tensor& y, const Tensor& o) { return ops::where(kMask, o.sum(), y); }},
      {"+=", [](const Tensor& y, const Tensor& o) { return y += o; },
       [](const Tensor& y, const Tensor& o) { return y + o; }},
      {"-=", [](const Tensor& y, const Tensor& o) { return y -= o; },
       [](const Tensor& y, const Tensor& o) { return y - o; }},
      {"*=", [](const Tensor& y, const Tensor& o) { return (y *= o) *= 2.0; },
       [](const Tensor& y, const Tensor& o) { return y * o * 2.0; }},
      {"/=", [](const Tensor& y, const Tensor& o) { return y /= o; },
       [](const Tensor& y, const Tensor& o) { return y / o; }},
  };
  return all;
}

struct Ran {
  Tensor result, of_x, of_other;
};

// The result of f(x, other), and gradients of it in random directions.
template <class F>
Ran run(F&& f) {
  Tensor x = ops::sample({2, 3}, 0.6, 2), other = ops::sample({2, 3}, 0.7, 1.4, 1);
  x.requires_grad_(), other.requires_grad_();
  const Tensor result = f(x, other);
  REQUIRE(result.requires_grad());
  autograd::backward(ops::sum(result * ops::sample(result.shape(), -1, 1, 5)));
  return {result.detach(), x.grad(), other.grad()};
}

void check_same(const Ran& got, const Ran& wanted) {
  const auto near = [](const Tensor& a, const Tensor& b) {
    const Tensor zero = zeros({2, 3}, float64);  // no gradient
    const Tensor distance = (a.defined() ? a : zero) - (b.defined() ? b : zero);
    return ops::abs(distance).amax().item() <= 1e-12;
  };
  CHECK(near(got.result, wanted.result));
  CHECK(near(got.of_x, wanted.of_x));
  CHECK(near(got.of_other, wanted.of_other));
}

}  // namespace

TEST_CASE("a write in place is recorded") {
  Tensor w = tensor({1, 2}, float32);
  w.requires_grad_();
  const Tensor y = w * 2;
  CHECK(y.mul_(3).is_same(y));
  autograd::backward(y.sum());
  CHECK(w.grad().to_vector<float>() == std::vector<float>{6, 6});
}

TEST_CASE("every write in place gives the values and gradients of the program without") {
  for (const Write& w : writes()) {
    INFO(w.name);
    const Ran plain = run([&](const Tensor& x, const Tensor& o) { return w.in_place(x * 1.5, o); });
    check_same(plain, run([&](const Tensor& x, const Tensor& o) { return w.out_of_place(x * 1.5, o); }));
    // To a view of a view; what the base and a sibling show is used.
    const auto through = [&](const Tensor& x, const Tensor& o, bool in_place) {
      const Tensor rest = x.square(),
                   wide = ops::cat({x.transpose(0, 1), rest.transpose(0, 1)}, 1);  // [3, 4]
      if (!in_place) {
        const Tensor written = w.out_of_place(x, o).transpose(0, 1);
        return ops::cat({written, rest.transpose(0, 1)}, 1) + written.sum();
      }
      const Tensor part = wide.slice(1, 0, 2), sibling = wide.slice(1, 0, 2);
      w.in_place(part.transpose(0, 1), o);
      return wide + sibling.sum();
    };
    check_same(run([&](const Tensor& x, const Tensor& o) {
                 return through(x, o, true).slice(0, 0, 2).slice(1, 0, 3);
               }),
               run([&](const Tensor& x, const Tensor& o) {
                 return through(x, o, false).slice(0, 0, 2).slice(1, 0, 3);
               }));
  }
}

TEST_CASE("every write in place without history gives the same values, as does a number of another dtype") {
  for (const Write& w : writes()) {
    INFO(w.name);
    NoGradGuard off;
    for (const DType t : {float32, float64, bfloat16}) {
      const Tensor x = ops::to(ops::sample({2, 3}, 0.6, 2), t),
                   o = ops::to(ops::sample({2, 3}, 0.7, 1.4, 1), t);
      const Tensor y = x.clone();
      const uint32_t version = y.version();
      CHECK(w.in_place(y, o).is_same(y));
      CHECK(y.version() > version);
      CHECK(y.dtype() == t);
      const double close = t == bfloat16 ? 0.05 : t == float32 ? 1e-6 : 1e-14;
      const Tensor wanted = w.out_of_place(x, o);
      CHECK(ops::abs(ops::to(y, float64) - ops::to(wanted, float64)).amax().item() <=
            close * std::max(1.0, ops::abs(ops::to(wanted, float64)).amax().item()));
    }
  }
}

TEST_CASE("second derivatives go through writes in place, to tensors and to views") {
  const Tensor x = ops::sample({2, 3}, 0.6, 2), o = ops::sample({2, 3}, 0.7, 1.4, 1);
  for (const Write& w : writes()) {
    INFO(w.name);
    const auto whole = [&](const Tensors& in) { return w.in_place(in[0].square(), in[1]).square(); };
    const auto part = [&](const Tensors& in) {
      const Tensor base = ops::cat({in[0], in[1]}, 0).square(), view = base.slice(0, 1, 3);
      w.in_place(view, in[1]);
      return base.square() + view.select(0, 0).sum();
    };
    for (const std::function<Tensor(const Tensors&)>& f :
         {std::function<Tensor(const Tensors&)>(whole), {part}}) {
      const auto first = autograd::gradcheck(f, {x, o}), second = autograd::gradgradcheck(f, {x, o});
      INFO(first.text << "; " << second.text);
      CHECK(first.ok);
      CHECK(second.ok);
    }
  }
}

TEST_CASE("a tensor without history gets one from what is written to it, and so do its views") {
  Tensor w = tensor({1, 2, 3}, float64);
  w.requires_grad_();
  const Tensor buffer = zeros({2, 3}, float64), before = buffer.select(0, 1), other = buffer.select(0, 0);
  buffer.select(0, 1).copy_(w * 2);
  CHECK(buffer.requires_grad());
  CHECK(before.requires_grad());
  CHECK_FALSE(before.is_leaf());
  CHECK(other.requires_grad());  // as in PyTorch: a view of something that needs a gradient
  before.mul_(w);                // a view that was made before
  CHECK(buffer.to_vector<double>() == Doubles{0, 0, 0, 2, 8, 18});
  autograd::backward(buffer.sum() + before.square().sum() + other.sum());
  // d/dw of 2 w^2 and of (2 w^2)^2
  CHECK(w.grad().to_vector<double>() == Doubles{4 + 16, 8 + 128, 12 + 432});
}

TEST_CASE("views of views, siblings and expanded views follow what is written") {
  const Tensor x = ops::sample({4, 3});
  const auto f = [](const Tensors& in) {
    const Tensor base = in[0].square();
    const Tensor rows = base.slice(0, 0, 4, 2), corner = rows.transpose(0, 1).slice(0, 1, 3).select(1, 0);
    const Tensor wide = base.select(0, 0).unsqueeze(0).expand({5, 3});
    corner.mul_(base.select(0, 1).slice(0, 0, 2).clone());
    rows += 1.0;
    base.select(1, 2).copy_(rows.sum({0}).sum());
    corner.tanh_();
    return ops::cat({base.reshape({12}), wide.square().reshape({15}), corner, rows.reshape({6})}, 0);
  };
  const auto first = autograd::gradcheck(f, {x}), second = autograd::gradgradcheck(f, {x});
  INFO(first.text << "; " << second.text);
  CHECK(first.ok);
  CHECK(second.ok);
}

TEST_CASE("a base that does not lie in rows is written through its views") {
  const auto f = [](const Tensors& in) {
    const Tensor turned = in[0].square().transpose(0, 1).detach();  // a base of its own
    turned.select(0, 1).copy_(in[0].sum({1}));
    turned.select(1, 0).mul_(in[0].select(0, 1));
    return turned.square();
  };
  Tensor x = ops::sample({2, 3});
  x.requires_grad_();
  const Tensor y = f({x});
  autograd::backward(y.sum());
  // turned[1][c] = sum of row c; turned[r][0] *= x[1][r]; the rest does not depend on x.
  const Doubles v = x.to_vector<double>(), g = x.grad().to_vector<double>();
  const double s0 = v[0] + v[1] + v[2], s1 = v[3] + v[4] + v[5];
  CHECK(g[0] == Approx(2 * s0 * v[4] * v[4]));
  CHECK(g[3] == Approx(2 * s1 + 2 * std::pow(v[0], 4) * v[3]));
  CHECK(g[4] == Approx(2 * s1 + 2 * s0 * s0 * v[4]));
  CHECK(g[5] == Approx(2 * s1 + 2 * std::pow(v[2], 4) * v[5]));
}

TEST_CASE("flatten of one dimension is the tensor itself, also without grad mode") {
  Tensor w = tensor({1, 2}, float64);
  w.requires_grad_();
  NoGradGuard off;
  CHECK(w.flatten().is_same(w));
  CHECK(w.unsqueeze(0).flatten(1).shape() == Shape{1, 2});
}

TEST_CASE("what is overwritten gets zeros, as in PyTorch") {
  for (const bool through_view : {false, true}) {
    Tensor w = tensor({1, 2}, float64);
    w.requires_grad_();
    const Tensor y = w * 2, t = through_view ? y.slice(0, 0, 2) : y;
    t.fill_(3);
    CHECK(y.requires_grad());
    autograd::backward(t.sum());
    CHECK(w.grad().to_vector<double>() == Doubles{0, 0});
  }
}

TEST_CASE("nothing is recorded under a NoGradGuard, nor for integers") {
  Tensor w = tensor({1, 2}, float64);
  w.requires_grad_();
  const Tensor y = w * 2;
  {
    NoGradGuard off;
    y.mul_(3);
    w.mul_(10);
    y.select(0, 0).add_(1);
  }
  CHECK(y.to_vector<double>() == Doubles{7, 12});
  CHECK(w.is_leaf());
  autograd::backward(y.sum());
  CHECK(w.grad().to_vector<double>() == Doubles{2, 2});
  const Tensor whole = zeros({2}, int64);
  whole.copy_(w);
  CHECK_FALSE(whole.requires_grad());
  CHECK(whole.to_vector<int64_t>() == std::vector<int64_t>{10, 20});
}

TEST_CASE("a view loses a leaf that is itself a view when the memory is written, as in PyTorch") {
  const Tensor memory = zeros({4}, float64);
  Tensor w = memory.slice(0, 0, 3);
  w.requires_grad_();
  const Tensor part = w.slice(0, 1, 3);
  Tensor quiet;
  {
    NoGradGuard off;
    quiet = w.slice(0, 0, 1);
    w.fill_(2);
  }
  CHECK_FALSE(quiet.requires_grad());  // of `memory`, which requires none
  CHECK(part.requires_grad());
  CHECK_FALSE(part.is_leaf());
  autograd::backward((part * 3).sum());
  CHECK_FALSE(w.grad().defined());
  autograd::backward((w.slice(0, 1, 3) * 3).sum());  // a view that was made after the write
  CHECK(w.grad().to_vector<double>() == Doubles{0, 3, 3});
}

TEST_CASE("what PyTorch refuses is refused before anything changes") {
  Tensor w = ops::sample({2, 3});
  w.requires_grad_();
  const Tensor y = w * 2, plain = zeros({2, 3}), whole = zeros({2, 3}, int64), one = zeros({1, 3}),
               wide = one.expand({2, 3}), of_leaf = w.select(0, 0), piece = y.split(1, 0)[0];
  Tensor quiet;
  {
    NoGradGuard off;
    quiet = y.select(0, 1);
  }
  const Tensors all{w, y, plain, whole, one, wide, of_leaf, piece, quiet};
  std::vector<Tensor> values;
  std::vector<uint32_t> versions;
  for (const Tensor& t : all) values.push_back(t.detach().clone()), versions.push_back(t.version());
  const Node* history = y.grad_fn().node.get();
  const auto refused = [&](const std::string& text, auto write) {
    CHECK_THAT(invalid_text(write), Contains(text));
    for (size_t i = 0; i < all.size(); ++i) {
      CHECK(bit_equal(all[i].detach(), values[i]));
      CHECK(all[i].version() == versions[i]);
    }
    CHECK(y.grad_fn().node.get() == history);
    CHECK(plain.is_leaf());
  };
  refused("[mul_] the leaf float64 [2, 3] requires a gradient", [&] { w.mul_(2); });
  refused("[fill_] the leaf", [&] { w.fill_(2); });
  refused("[copy_] the leaf", [&] { w.copy_(plain); });
  refused("[add_] the tensor float64 [3] is a view of a leaf that requires a gradient",
          [&] { of_leaf += 1.0; });
  refused("is a view of a leaf", [&] { w.index_put_({1}, 2.0); });
  refused("[mul_] several elements of the tensor", [&] { wide.mul_(2); });
  refused("[copy_] several elements", [&] { wide.copy_(plain); });
  refused("[mul_] the view float64 [1, 3] cannot be written: it is one of several views",
          [&] { piece.mul_(2); });
  refused("it is one of several views", [&] { ops::unbind(w.square(), 1)[0].mul_(2); });
  refused("it was made while grad mode was off", [&] { quiet.mul_(2); });
  refused("[add_] result type float32 can't be cast to int64", [&] { whole.add_(plain); });
  refused("[add_] the result has shape [4, 2, 3], which does not fit", [&] { plain.add_(zeros({4, 1, 1})); });
  refused("[copy_] shapes differ: [3] from [2, 3]", [&] { of_leaf.detach().copy_(y); });
  refused("undefined", [&] { plain.add_(Tensor()); });
  refused("undefined", [&] { Tensor().add_(1); });
  refused("0-d", [&] { plain.fill_(zeros({1})); });
  refused("shares some of its elements", [&] {
    const Tensor s = zeros({2, 2});
    s.add_(s.transpose(0, 1));
  });
  const Tensor square = zeros({4, 4});
  refused("shares some of its elements", [&] { square.mul_(square.select(1, 3)); });
  refused("shares some of its elements", [&] { square.slice(1, 0, 3).copy_(square.slice(1, 1, 4)); });
  refused("shares some of its elements", [&] { square.slice(1, 0, 4, 2).add_(square.slice(1, 0, 1)); });
  square.slice(1, 0, 4, 2).add_(square.slice(1, 1, 4, 2));  // they interleave
  square.slice(1, 0, 2).add_(square.slice(1, 2, 4));
  square.slice(1, 0, 2).add_(square.slice(1, 0, 2).unsqueeze(0).select(0, 0));  // the same places
  w.detach().mul_(1);  // a detached handle has no history: as in PyTorch
  piece.detach().mul_(1);
}

TEST_CASE("views whose history is not known are refused when they are used") {
  Tensor w = ops::sample({2, 3});
  w.requires_grad_();
  const Tensor y = w * 2, piece = y.split(1, 0)[0];
  Tensor quiet;
  {
    NoGradGuard off;
    quiet = y.select(0, 1);
  }
  CHECK(quiet.requires_grad());  // as in PyTorch, where it is a leaf that y has nothing to do with
  CHECK(quiet.is_leaf());
  y.mul_(2);
  CHECK_THAT(invalid_text([&] { quiet * 2.0; }), Contains("[view]") && Contains("grad mode was off"));
  CHECK_THAT(invalid_text([&] { piece * 2.0; }), Contains("[view]") && Contains("one of several views"));
}

TEST_CASE("what a step saved and a write changed is noticed, and what PyTorch copies is not") {
  Tensor w = tensor({1, 2}, float64), v = tensor({3, 5}, float64);
  w.requires_grad_(), v.requires_grad_();
  const auto complaint = [&](auto program) { return invalid_text([&] { autograd::backward(program()); }); };
  CHECK_THAT(complaint([&] {
               const Tensor y = (w * 2).exp_();
               y.add_(1);
               return y.sum();
             }),
             Contains("[exp] result 0") && Contains("changed in place by add_"));
  CHECK_THAT(complaint([&] {
               const Tensor y = w * 2;
               y.mul_(y);
               return y.sum();
             }),
             Contains("[mul] input 1") && Contains("changed in place by mul_"));
  CHECK_THAT(complaint([&] {
               const Tensor y = w * 2, z = y.exp_() * 1.0;
               y.copy_(y);
               return z.sum();
             }),
             Contains("changed in place by copy_"));
  CHECK_FALSE(w.grad().defined());
  const Tensor y = w * 2, c = tensor({7, 11}, float64);
  const Tensor z = y * c;  // needs c alone: v and y may change
  y.mul_(v);
  y.exp_();
  autograd::backward(y.log().sum() + z.sum());  // 2 w v + 2 c w
  CHECK(w.grad().to_vector<double>()[0] == Approx(6 + 14));
  CHECK(w.grad().to_vector<double>()[1] == Approx(10 + 22));
  CHECK(v.grad().to_vector<double>()[1] == Approx(4));
}

TEST_CASE("graphs with writes in place are freed") {
  const size_t before = allocator_stats().in_use;
  {
    Tensor w = ops::sample({50, 50});
    w.requires_grad_();
    const Tensor y = w * 2;
    y.mul_(y);      // saved, and changed
    y.add_(y * w);  // a history that leads to steps that saved y
    y.select(0, 1).mul_(w.select(0, 2));
    y.select(1, 0).exp_().add_(y.select(1, 1) * y.select(1, 2));
  }
  CHECK(allocator_stats().in_use == before);
}
