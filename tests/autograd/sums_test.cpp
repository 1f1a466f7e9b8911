// Gradients that are added up while they are made: the product that gives a weight's gradient adds to the
// sum.
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <map>

#include "autograd/add_gradient.h"
#include "autograd/engine.h"
#include "autograd/hooks.h"
#include "autograd/ready_hooks.h"
#include "autograd/region.h"
#include "autograd/split_pass.h"
#include "core/base/error.h"
#include "core/graph/anomaly.h"
#include "ops/ops.h"
#include "tests/support/near.h"
#include "tests/support/received.h"

using namespace troupe;
using troupe::testing::difference;

namespace {

constexpr int64_t kIn = 48, kOut = 96, kRows = 20;  // a weight of 4608 elements: large enough

Tensor random(const Shape& shape, uint64_t seed) {
  Generator g(seed);
  return ops::randn(shape, g);
}
Tensor parameter(const Shape& shape, uint64_t seed) { return random(shape, seed).requires_grad_(); }

// Keeps sums, and counts what it was told of each leaf by itself.
struct Sums : internal::autograd::Sink {
  std::map<const TensorImpl*, Tensor> of;
  std::map<const TensorImpl*, int> told;
  void accumulate(const Tensor& leaf, const Tensor& grad) override {
    ++told[leaf.impl()];
    internal::autograd::add_gradient(of[leaf.impl()], grad);
  }
  Tensor sum_of(const Tensor& leaf) override {
    const auto at = of.find(leaf.impl());
    return at == of.end() ? Tensor() : at->second;
  }
};

Tensor gradient(const Tensor& y, const Tensor& leaf, const Tensor& seed = {}) {
  return autograd::grad({y}, {leaf}, seed.defined() ? Tensors{seed} : Tensors{})[0];
}

// Two passes over f, whose inputs differ: the sums, and whether the second pass told of `weight` by itself.
void adds_up(const Tensors& parameters, const Tensor& weight, const std::function<Tensor(int)>& f) {
  Sums sums;
  Tensors wanted(parameters.size());
  for (int pass = 0; pass < 2; ++pass) {
    const Tensor y = f(pass), seed = random(y.shape(), 90 + uint64_t(pass));
    for (size_t i = 0; i < parameters.size(); ++i)
      internal::autograd::add_gradient(wanted[i], gradient(f(pass), parameters[i], seed));
    internal::autograd::run({y.gradient_edge()}, {seed}, sums);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    INFO("parameter " << i);
    CHECK(difference(sums.of.at(parameters[i].impl()), wanted[i], 1e-5, 1e-5) == "");
  }
  CHECK(sums.told.at(weight.impl()) == 1);
}

}  // namespace

TEST_CASE("linear layers and embeddings add to the sum of their weight's gradients") {
  const Tensor w = parameter({kOut, kIn}, 1), b = parameter({kOut}, 2);
  const auto x = [](int pass) { return random({2, kRows, kIn}, 10 + uint64_t(pass)); };
  SECTION("linear") {
    adds_up({w, b}, w, [&](int pass) { return ops::linear(x(pass), w, b); });
  }
  SECTION("without a bias, and of one dimension") {
    adds_up({w}, w, [&](int pass) { return ops::linear(random({kIn}, uint64_t(pass)), w); });
  }
  SECTION("no rows") {
    adds_up({w, b}, w, [&](int pass) { return ops::linear(random({pass ? 0 : 3, kIn}, 3), w, b); });
  }
  SECTION("relu") {
    adds_up({w, b}, w, [&](int pass) { return ops::linear_relu(x(pass), w, b); });
  }
  SECTION("gelu") {
    adds_up({w, b}, w, [&](int pass) { return ops::linear_gelu(x(pass), w, b); });
  }
  SECTION("with a residual") {
    const Tensor r = random({2, kRows, kOut}, 5);
    adds_up({w, b}, w, [&](int pass) { return ops::linear_add(x(pass), w, b, r); });
  }
  SECTION("embedding") {
    adds_up({w}, w, [&](int pass) { return ops::embedding(tensor({3, 7, 3, pass, 95}, int64), w); });
  }
}

TEST_CASE("a weight that several steps use gets all of its gradients") {
  const Tensor w = parameter({64, 64}, 1);
  const auto f = [&](int pass) {
    return ops::linear(ops::linear(random({kRows, 64}, uint64_t(pass)), w), ops::mul(w, 0.5));
  };
  Sums sums;
  Tensor wanted;
  for (int pass = 0; pass < 3; ++pass) {
    const Tensor y = f(pass), seed = random(y.shape(), 7);
    internal::autograd::add_gradient(wanted, gradient(f(pass), w, seed));
    internal::autograd::run({y.gradient_edge()}, {seed}, sums);
  }
  CHECK(difference(sums.of.at(w.impl()), wanted, 1e-5, 1e-3) == "");
}

TEST_CASE("backward adds to .grad in place and says so to whoever saved it") {
  const Tensor w = parameter({kOut, kIn}, 1), x = random({kRows, kIn}, 2);
  const auto backward = [&] { autograd::backward(ops::sum(ops::linear(x, w))); };
  backward();
  const Tensor first = w.grad().clone_data();
  const auto place = w.grad().storage();
  const Tensor other = random({kOut, kIn}, 3).requires_grad_(), reads = ops::mul(w.grad(), other);
  backward();
  CHECK(w.grad().storage() == place);
  CHECK(difference(w.grad(), ops::mul(first, 2), 1e-6, 1e-6) == "");
  try {
    autograd::backward(ops::sum(reads));
    FAIL("went through");
  } catch (const Error& e) {
    CHECK_THAT(e.what(), Catch::Contains("accumulation of gradients"));
  }
}

TEST_CASE("hooks see each gradient by itself, watchers the sum") {
  const Tensor w = parameter({kOut, kIn}, 1), x = random({kRows, kIn}, 2);
  std::vector<Tensor> seen, sums;
  auto hook =
      autograd::register_hook(w, [&](const Tensor& g) { return seen.push_back(g.clone_data()), Tensor(); });
  size_t calls = 2;
  SECTION("a hook on the leaf, and a watcher") {}
  SECTION("a watcher alone") {
    hook.remove();
    calls = 0;
  }
  const auto watch = autograd::register_post_accumulate_grad_hook(
      w, [&](const Tensor& g) { sums.push_back(g.clone_data()); });
  for (int pass = 0; pass < 2; ++pass) autograd::backward(ops::sum(ops::linear(x, w)));
  CHECK(seen.size() == calls);
  for (const Tensor& g : seen) CHECK(difference(g, seen[0], 0, 0) == "");
  REQUIRE(sums.size() == 2);
  CHECK(difference(sums[1], ops::mul(sums[0], 2), 1e-6, 1e-6) == "");
}

TEST_CASE("a step that reads the sum does not add to it on the way") {
  const Tensor w = parameter({64, 64}, 1);
  autograd::backward(ops::sum(ops::square(w)));
  const Tensor before = w.grad().clone_data();
  SECTION("as its input") {
    const Tensor y = ops::linear(w.grad(), w);
    autograd::backward(ops::sum(y));
    CHECK(difference(w.grad(), ops::add(before, ops::matmul(ones({64, 64}), before)), 1e-5, 1e-4) == "");
  }
  SECTION("as the gradient of its result") {
    const Tensor x = random({64, 64}, 3);
    autograd::backward(ops::linear(x, w), w.grad());
    CHECK(difference(w.grad(), ops::add(before, ops::matmul(ops::transpose(before, 0, 1), x)), 1e-5, 1e-4) ==
          "");
  }
}

TEST_CASE("checks for NaN look at each gradient by itself") {
  const Tensor w = parameter({kOut, kIn}, 1), x = random({kRows, kIn}, 2);
  w.set_grad(full({kOut, kIn}, std::numeric_limits<double>::quiet_NaN(), float32));
  const AnomalyGuard checks;
  autograd::backward(ops::sum(ops::linear(x, w)));  // the NaN was there before: no fault of this pass
  CHECK(std::isnan(w.grad().to_vector<double>()[0]));
}

TEST_CASE("the second part of a split pass adds as one pass does") {
  const Tensor w = parameter({kOut, kIn}, 1), v = parameter({kIn, kOut}, 2), b = parameter({kOut}, 3);
  Sums whole, split;
  for (uint64_t i = 0; i < 3; ++i) {
    const Tensor x = random({kRows, kIn}, 20 + i).requires_grad_(), seed = random({kRows, kIn}, 30 + i);
    const auto f = [&] { return ops::linear(ops::linear_gelu(x, w, b), v); };
    internal::autograd::run({f().gradient_edge()}, {seed}, whole);
    internal::autograd::SplitPass pass({f()}, {x});
    (void)pass.inputs({seed});
    pass.rest(split);
  }
  for (const Tensor& p : {w, v, b})
    CHECK(difference(split.of.at(p.impl()), whole.of.at(p.impl()), 0, 0) == "");
  CHECK(split.told.at(w.impl()) == 1);
  CHECK(split.told.at(v.impl()) == 1);
}

TEST_CASE("gradients that another process has are kept as they are until somebody adds to them") {
  using troupe::testing::received;
  const Tensor a = random({100, 50}, 1), b = random({100, 50}, 2), sum = ops::add(a, b);
  Tensor kept;
  const Tensor came = received(a);
  internal::autograd::add_gradient(kept, came);
  CHECK(kept.bytes() == came.bytes());
  internal::autograd::add_gradient(kept, received(b));
  CHECK(bit_equal(kept, sum));
  CHECK(bit_equal(came, a));
  CHECK_FALSE(kept.storage()->borrowed());
  CHECK(bit_equal(internal::autograd::sum_gradients(received(a), received(b)), sum));
  CHECK(bit_equal(internal::autograd::sum_gradients(received(a), b), sum));

  // The product adds to the sum, whoever made that.
  const Tensor w = parameter({kOut, kIn}, 3), x = random({kRows, kIn}, 4), seed = random({kRows, kOut}, 5),
               before = random({kOut, kIn}, 6);
  Sums sums;
  sums.of[w.impl()] = received(before);
  const auto pass = [&] { return ops::linear(x, w); };
  internal::autograd::run({pass().gradient_edge()}, {received(seed)}, sums);
  CHECK(sums.told[w.impl()] == 0);
  CHECK(difference(sums.of[w.impl()], ops::add(before, gradient(pass(), w, seed)), 1e-5, 1e-5) == "");
}

// By the pass that adds on the way, and by one that looks at each gradient by itself.
static std::pair<Tensors, Tensors> both_ways(const Tensors& leaves,
                                             const std::function<Tensor(const Tensors&)>& f,
                                             const Tensor& seed) {
  const auto pass = [&] {
    for (const Tensor& t : leaves) t.set_grad({});
    autograd::backward(f(leaves), seed);
    Tensors out;
    for (const Tensor& t : leaves) out.push_back(t.grad());
    return out;
  };
  const Tensors got = pass();
  const AnomalyGuard each_by_itself;
  return {got, pass()};
}

TEST_CASE("a norm adds its gradient to what has come for its input, with the bits of an addition") {
  const auto norm = [](const Tensors& v, const Tensor& x) { return ops::layer_norm(x, {64}, v[1], v[2]); };
  const auto rms = [](const Tensors& v, const Tensor& x) { return ops::rms_norm(x, {64}, v[1]); };
  const std::pair<const char*, std::function<Tensor(const Tensors&)>> graphs[] = {
      {"around a norm",
       [&](const Tensors& v) {
         const Tensor x = ops::mul(v[0], 2);
         return ops::add(x, ops::linear(norm(v, x), v[3]));
       }},
      {"the very gradient of the result",
       [&](const Tensors& v) {
         const Tensor x = ops::mul(v[0], 2);
         return ops::add(x, norm(v, x));
       }},
      {"three norms of one tensor, and twice itself",
       [&](const Tensors& v) {
         const Tensor x = ops::mul(v[0], 2);
         return ops::add(ops::add(ops::mul(x, x), ops::mul(norm(v, x), rms(v, x))), ops::add(x, norm(v, x)));
       }},
      {"what came lies the other way round", [&](const Tensors& v) {
         const Tensor x = ops::mul(v[0], 2);
         return ops::add(ops::sum(ops::mul(ops::transpose(x, 0, 1), ops::transpose(v[0], 0, 1))),
                         ops::sum(norm(v, x)));
       }}};
  for (const DType t : {float32, float64, bfloat16})
    for (const auto& [what, f] : graphs) {
      INFO(name(t) << ", " << what);
      Tensors leaves;
      for (const auto& shape : {Shape{96, 64}, Shape{64}, Shape{64}, Shape{64, 64}})
        leaves.push_back(ops::to(random(shape, leaves.size() + 1), t).requires_grad_());
      const Tensor y = f(leaves);
      const auto [got, wanted] = both_ways(leaves, f, ops::to(random(y.shape(), 9), t));
      for (size_t i = 0; i < leaves.size(); ++i) {
        INFO("gradient " << i);
        REQUIRE(got[i].defined() == wanted[i].defined());
        if (got[i].defined()) CHECK(bit_equal(got[i], wanted[i]));
      }
    }
}

TEST_CASE("hooks see the whole gradient of a norm's input, and its history is whole") {
  const Tensor w = parameter({64}, 1), leaf = parameter({96, 64}, 2);
  const auto graph = [&](Tensor& x) {
    x = ops::mul(leaf, 2);
    return ops::sum(ops::add(ops::square(x), ops::layer_norm(x, {64}, w)));
  };
  Tensor x, seen;
  const Tensor y = graph(x);
  const auto hook =
      autograd::register_hook(x, [&](const Tensor& g) { return seen = g.clone_data(), Tensor(); });
  autograd::backward(y);
  CHECK(bit_equal(leaf.grad(), ops::mul(seen, 2)));
  Tensor other;
  const Tensor again = graph(other);
  const Tensor recorded = autograd::grad({again}, {leaf}, {}, {.create_graph = true})[0];
  CHECK(difference(recorded.detach(), leaf.grad(), 1e-5, 1e-5) == "");
  CHECK(recorded.requires_grad());
}
