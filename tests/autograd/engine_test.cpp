// The engine on graphs of every form.
#include "autograd/engine.h"

#include <catch2/catch.hpp>

#include "autograd/add_gradient.h"
#include "autograd/hooks.h"
#include "autograd/region.h"
#include "core/graph/enable_grad_guard.h"
#include "tests/autograd/graph.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;
using Values = std::vector<double>;

namespace {

Values grad_of(const Tensor& t) { return t.grad().to_vector<double>(); }

struct CountingSink : internal::autograd::Sink {
  std::vector<std::pair<Tensor, Tensor>> got;
  void accumulate(const Tensor& leaf, const Tensor& grad) override { got.emplace_back(leaf, grad); }
};

}  // namespace

TEST_CASE("a product gives each factor the other") {
  Tensor a = leaf({2, 3}), b = leaf({5, 7});
  autograd::backward(mul(a, b), tensor({1, 10}, float64));
  CHECK(grad_of(a) == Values{5, 70});
  CHECK(grad_of(b) == Values{2, 30});
}

TEST_CASE("a leaf that is used twice gets both gradients") {
  Tensor a = leaf({3});
  autograd::backward(mul(a, a));
  CHECK(grad_of(a) == Values{6});
}

TEST_CASE("gradients accumulate over passes, without sharing elements with the graph or the caller") {
  Tensor a = leaf({1, 2}), b = leaf({3, 4});
  const Tensor seed = tensor({1, 1}, float64);
  autograd::backward(add(a, b), seed);
  CHECK(a.grad().storage() != b.grad().storage());
  CHECK(a.grad().storage() != seed.storage());
  autograd::backward(add(a, b), seed);
  CHECK(grad_of(a) == Values{2, 2});
  CHECK(grad_of(b) == Values{2, 2});
  CHECK(seed.to_vector<double>() == Values{1, 1});
}

TEST_CASE("a diamond runs its shared node once, after both sides") {
  Journal j;
  Tensor x = leaf({2});
  Tensor s = mul(x, x, &j, "shared");
  Tensor left = mul(s, s, &j, "left"), right = add(s, s, &j, "right");
  autograd::backward(add(left, right, &j, "top"));
  CHECK(j.ran == std::vector<std::string>{"top", "right", "left", "shared"});  // later steps first
  CHECK(j.released == j.ran);
  CHECK(grad_of(x) == Values{40});  // x^4 + 2 x^2 at 2
}

TEST_CASE("several roots run in one pass, also when one is inside the other's graph") {
  Journal j;
  Tensor x = leaf({3});
  Tensor inner = mul(x, x, &j, "inner");
  Tensor outer = mul(inner, x, &j, "outer");
  autograd::backward(Tensors{inner, outer, inner}, {});
  CHECK(j.ran == std::vector<std::string>{"outer", "inner"});
  CHECK(grad_of(x) == Values{27 + 2 * 6});
}

TEST_CASE("a leaf may be a root, and so may the same leaf twice") {
  Tensor x = leaf({3});
  autograd::backward(Tensors{x, x}, Tensors{tensor({2}, float64), tensor({5}, float64)});
  CHECK(grad_of(x) == Values{7});
}

TEST_CASE("roots that are results of one node share its run") {
  Tensor x = leaf({1});
  int runs = 0;
  auto node = make_ref<Step>(
      "pair",
      [&](const Tensors& g) {
        ++runs;
        REQUIRE(g.size() == 2);
        return Tensors{zip(g[0], g[1], [](double a, double b) { return a + 10 * b; })};
      },
      nullptr, 2);
  node->set_next({x.gradient_edge()});
  CountingSink sink;
  const Edge first{node, 0}, second{node, 1};
  internal::autograd::run({first, second}, {tensor({1}, float64), tensor({2}, float64)}, sink);
  CHECK(runs == 1);
  REQUIRE(sink.got.size() == 1);
  CHECK(sink.got[0].first.is_same(x));
  CHECK(sink.got[0].second.item() == 21);
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("the saved values go after the pass unless they are kept") {
  Tensor x = leaf({3});
  Tensor y = mul(x, x);
  autograd::backward(y, {}, {.retain_graph = true});
  autograd::backward(y);
  CHECK(grad_of(x) == Values{12});
  CHECK_THAT(testing::text_of([&] { autograd::backward(y); }), Contains("mul runs a second time"));
}

TEST_CASE("nothing is recorded during a pass unless asked for") {
  Tensor x = leaf({3});
  Tensor y = mul(mul(x, x), x);
  autograd::backward(y, {}, {.retain_graph = true});
  CHECK_FALSE(x.grad().requires_grad());
  CHECK(grad_enabled());
  const Tensors first = autograd::grad({y}, {x}, {}, {.create_graph = true});
  CHECK(first[0].item() == 27);
  REQUIRE(first[0].requires_grad());
  const Tensors second = autograd::grad({first[0]}, {x}, {}, {.create_graph = true});
  CHECK(second[0].item() == 18);  // 6 x
  CHECK(autograd::grad({second[0]}, {x})[0].item() == 6);
}

TEST_CASE("a gradient given with a history leaves none behind") {
  Tensor x = leaf({3}), g = leaf({2});
  autograd::backward(add(x, x), g);
  CHECK(grad_of(x) == Values{4});
  CHECK_FALSE(x.grad().requires_grad());
  CHECK_FALSE(g.grad().defined());
}

TEST_CASE("grad() takes results of operators, touches no .grad and runs only what is between") {
  Journal j;
  Tensor x = leaf({2}), w = leaf({7});
  Tensor below = mul(x, x, &j, "below");
  Tensor middle = mul(below, w, &j, "middle");
  Tensor side = mul(x, w, &j, "side");
  Tensor top = add(middle, side, &j, "top");
  const Tensors got = autograd::grad({top}, {middle, w, top, middle});
  CHECK(got[0].item() == 1);
  CHECK(got[1].item() == 4 + 2);
  CHECK(got[2].item() == 1);
  CHECK(got[3].item() == 1);
  CHECK(j.ran == std::vector<std::string>{"top", "side", "middle"});  // not "below"
  CHECK_FALSE(x.grad().defined());
  CHECK_FALSE(w.grad().defined());
}

TEST_CASE("grad() gives nothing where an input is not reached") {
  Tensor x = leaf({2}), other = leaf({3});
  const Tensors got = autograd::grad({mul(x, x)}, {other, x});
  CHECK_FALSE(got[0].defined());
  CHECK(got[1].item() == 4);
}

TEST_CASE("a node that no gradient reaches is passed over, and what waits for it still runs") {
  Journal j;
  Tensor x = leaf({2});
  Tensor a = mul(x, x, &j, "a");
  Tensor dead = mul(a, a, &j, "dead");
  Tensor live = mul(a, a, &j, "live");
  auto cut = make_ref<Step>(
      "cut",
      [](const Tensors& g) {
        return Tensors{Tensor(), g[0]};
      },
      nullptr);
  cut->set_next({dead.gradient_edge(), live.gradient_edge()});
  CountingSink sink;
  internal::autograd::run({Edge{cut, 0}}, {tensor({1}, float64)}, sink);
  CHECK(j.ran == std::vector<std::string>{"live", "a"});
  REQUIRE(sink.got.size() == 1);
  CHECK(sink.got[0].second.item() == 32);  // d(x^4)/dx
}

TEST_CASE("an undefined root gradient and an empty root are no gradient") {
  Tensor x = leaf({2});
  CountingSink sink;
  internal::autograd::run({mul(x, x).gradient_edge(), Edge{}}, {Tensor(), tensor({1}, float64)}, sink);
  CHECK(sink.got.empty());
}

TEST_CASE("a chain of 100,000 nodes runs forward, backward and away") {
  Tensor x = leaf({1});
  Tensor y = x, one = tensor({1}, float64);
  for (int i = 0; i < 100000; ++i) y = mul(y, one);
  autograd::backward(y);
  CHECK(grad_of(x) == Values{1});
  const Tensors chained = autograd::grad({add(x, x)}, {x});
  y = {};
  CHECK(chained[0].item() == 2);
}

TEST_CASE("a wide graph sums in one order: two passes give the same bits") {
  const auto run = [] {
    Tensor x = leaf({0.1, 0.3});
    Tensor sum = mul(x, x);
    for (int i = 1; i < 300; ++i) sum = add(sum, mul(x, tensor({1.0 / i, 1e-3 * i}, float64)));
    autograd::backward(sum, tensor({1, 1}, float64));
    return x.grad();
  };
  CHECK(bit_equal(run(), run()));
}

TEST_CASE("a pass may run another pass from inside a node") {
  Tensor x = leaf({3});
  Tensor y = record(
      tensor({9}, float64), {x},
      [&](const Tensors& g) {
        Tensor inner = tensor({x.item()}, float64);
        inner.requires_grad_();
        GradMode on(true);
        const Tensor again = mul(inner, inner);
        return Tensors{autograd::grad({again}, {inner}, {g[0]})[0]};
      },
      "recompute", nullptr);
  autograd::backward(y);
  CHECK(grad_of(x) == Values{6});
}

TEST_CASE("a tensor without history cannot be a root, and the error says why") {
  const Tensor plain = tensor({1}, float64);
  const std::string text = testing::text_of([&] { autograd::backward(plain); });
  CHECK_THAT(text, Contains("[backward] the tensor (float64 [1]) needs no gradient"));
  CHECK_THAT(text, Contains("inside an autograd context"));
  Tensor x = leaf({1});
  CHECK_THAT(testing::text_of([&] {
               autograd::grad({mul(x, x)}, {x, plain});
             }),
             Contains("[grad] tensor 1 (float64 [1])"));
  CHECK_THAT(testing::text_of([&] { autograd::backward(Tensor()); }), Contains("undefined"));
  CHECK_THAT(testing::text_of([&] { (void)autograd::register_hook(plain, {}); }),
             Contains("[register_hook] the tensor (float64 [1]) needs no gradient: nothing that it was"));
  NoGradGuard off;
  CHECK_THAT(testing::text_of([&] { autograd::backward(mul(x, x)); }),
             Contains("needs no gradient: grad mode is off here") && Contains("open an EnableGradGuard"));
  {
    EnableGradGuard on;
    autograd::backward(mul(x, x));
    CHECK(grad_of(x) == Values{2});
  }
  CHECK_FALSE(grad_enabled());
}

TEST_CASE("root gradients must fit the roots") {
  Tensor x = leaf({1, 2});
  Tensor y = mul(x, x);
  CHECK_THAT(testing::text_of([&] { autograd::backward(y); }), Contains("has shape [2]: give its gradient"));
  CHECK_THAT(testing::text_of([&] { autograd::backward(y, tensor({1}, float64)); }),
             Contains("(float64 [2] on cpu) cannot have the gradient float64 [1]"));
  CHECK_THAT(testing::text_of([&] {
               autograd::backward(y, tensor({1, 1}, float32));
             }),
             Contains("float32 [2]"));
  CHECK_THAT(testing::text_of([&] {
               autograd::backward(Tensors{y, y}, {tensor({1, 1}, float64)});
             }),
             Contains("1 gradients for 2 tensors"));
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("faulty nodes are named") {
  Tensor x = leaf({1, 2});
  const auto with = [&](Step::Rule rule) {
    return record(tensor({1}, float64), {x}, std::move(rule), "faulty", nullptr);
  };
  CHECK_THAT(testing::text_of([&] { autograd::backward(with([](const Tensors&) { return Tensors{}; })); }),
             Contains("faulty gave 0 gradients for its 1 inputs"));
  CHECK_THAT(testing::text_of([&] { autograd::backward(with([](const Tensors& g) { return g; })); }),
             Contains("leaf float64 [2] came out as float64 [1]"));
  Tensor sum = add(x, x);
  CountingSink sink;
  CHECK_THAT(testing::text_of([&] {
               const Edge edge = sum.gradient_edge();
               internal::autograd::run({edge, edge}, {tensor({1, 1}, float64), tensor({1}, float64)}, sink);
             }),
             Contains("gradients of one tensor differ: float64 [2] and float64 [1]"));
  CHECK_THAT(testing::text_of([&] { internal::autograd::run({sum.gradient_edge()}, {}, sink); }),
             Contains("0 gradients for 1 roots"));
  Edge outside = sum.gradient_edge();
  outside.input = 4;
  CHECK_THAT(testing::text_of([&] {
               internal::autograd::run({outside}, {tensor({1, 1}, float64)}, sink);
             }),
             Contains("a gradient came for result 4"));
}

TEST_CASE("an error in a node leaves grad mode as it was and memory free") {
  const size_t before = allocator_stats().in_use;
  {
    Tensor x = leaf({1});
    Tensor y = mul(record(
                       tensor({1}, float64), {x},
                       [](const Tensors&) -> Tensors { throw_invalid("[step] no"); }, "thrower", nullptr),
                   x);
    CHECK_THAT(testing::text_of([&] { autograd::backward(y); }), Contains("[step] no"));
    CHECK(grad_enabled());
  }
  CHECK(allocator_stats().in_use == before);
}

TEST_CASE("the first gradient is taken over if nobody else has it, else copied") {
  Tensor kept;
  Tensor given = tensor({1, 2}, float64);
  const auto* elements = given.bytes();
  const Tensor moved = std::move(given);
  internal::autograd::add_gradient(kept, moved);
  CHECK(kept.bytes() == elements);
  Tensor other;
  internal::autograd::add_gradient(other, moved);  // `kept` has it too
  CHECK(other.bytes() != elements);
  const Tensor row = tensor({1, 2, 3, 4}, float64).alias({2}, {0}, 1);  // not dense
  Tensor third;
  internal::autograd::add_gradient(third, row);
  CHECK(third.is_contiguous());
  CHECK(third.to_vector<double>() == Values{2, 2});
  const uint32_t version = third.version();
  internal::autograd::add_gradient(third, row);
  CHECK(third.to_vector<double>() == Values{4, 4});
  CHECK(third.version() > version);
}
