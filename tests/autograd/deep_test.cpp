// Deep graphs of operators: no recursion anywhere, and memory that goes as the pass proceeds.
#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "core/base/small_vector.h"
#include "ops/ops.h"
#include "tests/autograd/graph.h"

using namespace troupe;

namespace {

constexpr int kDeep = 100'000;

Tensor one() { return tensor(1.0).requires_grad_(); }

// Runs backward through what `build` makes of a leaf, and lets go of it; then lets go of another one unused.
template <class F>
double derivative(F build) {
  build(one());
  Tensor x = one();
  Tensor y = build(x);
  autograd::backward(y);
  y = {};
  return x.grad().item();
}

}  // namespace

TEST_CASE("100,000 operators in a row run forward, backward and away") {
  const size_t before = allocator_stats().in_use;
  CHECK(derivative([](Tensor y) {
          for (int i = 0; i < kDeep; ++i) y = ops::mul(y, 1.0);
          return y;
        }) == 1);
  const Tensor scale = tensor(1.0);
  CHECK(derivative([&](Tensor y) {  // through saved inputs
          for (int i = 0; i < kDeep; ++i) y = ops::mul(y, scale);
          return y;
        }) == 1);
  CHECK(derivative([](Tensor y) {  // through saved results
          for (int i = 0; i < kDeep; ++i) y = ops::relu(y);
          return y;
        }) == 1);
  CHECK(allocator_stats().in_use == before + 64);  // `scale`
}

TEST_CASE("100,000 diamonds in a row") {
  CHECK(derivative([](Tensor y) {
          for (int i = 0; i < kDeep; ++i) y = ops::mul(ops::add(ops::mul(y, 1.0), ops::mul(y, 3.0)), 0.25);
          return y;
        }) == 1);
}

TEST_CASE("100,000 steps of two results in a row") {
  CHECK(derivative([](Tensor y) {
          Tensor a = y, b = ops::mul(y, 0.0);
          for (int i = 0; i < kDeep; ++i) {
            auto node = make_ref<testing::Step>(
                "swap",
                [](const Tensors& g) {
                  return Tensors{g[1], g[0]};
                },
                nullptr, 2);
            node->set_next({a.gradient_edge(), b.gradient_edge()});
            Tensor c = b.detach(), d = a.detach();
            c.set_grad_fn({node, 0});
            d.set_grad_fn({node, 1});
            a = c, b = d;
          }
          return ops::add(a, b);
        }) == 1);
}

TEST_CASE("deep graphs inside one checkpoint, and of many checkpoints") {
  const auto deep = [](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < kDeep; ++i) y = ops::relu(y);
    return y;
  };
  CHECK(derivative([&](Tensor y) { return autograd::checkpoint(deep, ops::mul(y, 1.0)); }) == 1);
  CHECK(derivative([&](Tensor y) {
          for (int i = 0; i < kDeep; ++i)
            y = autograd::checkpoint([](const Tensor& t) { return ops::relu(t); }, y);
          return y;
        }) == 1);
}

TEST_CASE("what steps saved is freed as the pass proceeds") {
  constexpr int kSteps = 20;
  constexpr size_t kBytes = 1 << 20;
  Tensor x = full({kBytes / 4}, 0.5).requires_grad_();
  const size_t before = allocator_stats().in_use;
  std::vector<size_t> held;  // in units of one saved tensor, at each step from the last to the first
  Tensor y = x;
  for (int i = 0; i < kSteps; ++i) {
    y = ops::exp(ops::mul(y, 0.1));
    autograd::register_hook(y, [&](const Tensor&) {
      held.push_back((allocator_stats().in_use - before) / kBytes);
      return Tensor();
    }).keep();
  }
  Tensor loss = ops::sum(y);
  y = {};
  SECTION("without retain_graph") {
    autograd::backward(loss);
    REQUIRE(held.size() == kSteps);
    for (int i = 0; i < kSteps; ++i)
      CHECK(held[static_cast<size_t>(i)] <= static_cast<size_t>(kSteps - i) + 2);
    CHECK((allocator_stats().in_use - before) / kBytes == 1);  // x.grad(), though the graph is there
  }
  SECTION("with it all stay") {
    autograd::backward(loss, {}, {.retain_graph = true});
    for (const size_t units : held) CHECK(units >= kSteps);
  }
}

TEST_CASE("an error that is seen before the pass leaves gradients and graph as they were") {
  Tensor a = one(), b = one();
  const Tensor shared = ops::exp(a), first = ops::mul(shared, 2.0), second = ops::mul(shared, b);
  autograd::backward(first);  // frees `shared`
  const double got = a.grad().item();
  CHECK_THAT(testing::text_of([&] { autograd::backward(second); }),
             Catch::Contains("[exp] the backward pass of this step was already run; pass retain_graph"));
  CHECK_FALSE(b.grad().defined());  // though its part came before
  CHECK(a.grad().item() == got);
  CHECK(autograd::grad({second}, {b})[0].item() == Approx(std::exp(1.0)));  // this part is whole
}
