// Hooks on gradients.
#include "autograd/hooks.h"

#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "tests/autograd/graph.h"

using namespace troupe;
using namespace troupe::testing;
using autograd::register_hook;
using Catch::Contains;

TEST_CASE("a hook on a leaf sees its whole gradient before it is accumulated, and may replace it") {
  Tensor x = leaf({3});
  std::vector<double> seen;
  const auto handle = register_hook(x, [&](const Tensor& g) {
    seen.push_back(g.item());
    return tensor({100}, float64);
  });
  autograd::backward(mul(x, x));
  autograd::backward(mul(x, x));
  CHECK(seen == std::vector<double>{6, 6});
  CHECK(x.grad().item() == 200);
}

TEST_CASE("a hook on a result sees the sum of what reaches it") {
  Tensor x = leaf({3});
  Tensor y = mul(x, x);
  double seen = 0;
  const auto handle = register_hook(y, [&](const Tensor& g) {
    seen = g.item();
    return Tensor();
  });
  autograd::backward(add(y, y));
  CHECK(seen == 2);
  CHECK(x.grad().item() == 12);
}

TEST_CASE("hooks run in order of registration, each on what the one before returned") {
  Tensor x = leaf({1});
  const auto twice = [](const Tensor& g) { return add(g, g); };
  const auto squared = [](const Tensor& g) { return mul(g, g); };
  const auto a = register_hook(x, twice), b = register_hook(x, squared), c = register_hook(x, twice);
  autograd::backward(add(x, x));
  CHECK(x.grad().item() == 32);  // 2 (2 * 2)^2
}

TEST_CASE("grad() sees what hooks made of a gradient") {
  Tensor x = leaf({1});
  Tensor y = add(x, x);
  const auto handle = register_hook(y, [](const Tensor& g) { return add(g, g); });
  const Tensors got = autograd::grad({add(y, y)}, {y, x});
  CHECK(got[0].item() == 4);
  CHECK(got[1].item() == 8);
}

TEST_CASE("a hook goes with its handle, from inside itself too, unless kept") {
  Tensor x = leaf({1});
  Tensor y = add(x, x);
  int calls = 0;
  const auto count = [&](const Tensor&) { return ++calls, Tensor(); };
  const auto run = [&] { autograd::backward(y, {}, {.retain_graph = true}); };
  {
    auto handle = register_hook(y, count);
    run();
    CHECK(calls == 1);
  }
  run();
  CHECK(calls == 1);
  autograd::HookHandle self;
  self = register_hook(x, [&](const Tensor&) {
    ++calls;
    self.remove();
    return Tensor();
  });
  run();
  run();
  CHECK(calls == 2);
  register_hook(y, count).keep();
  run();
  run();
  CHECK(calls == 4);
}

TEST_CASE("a kept hook on a leaf stays as long as the leaf, whatever graphs there were when it was kept") {
  const auto tripled = [](const Tensor& g) { return add(g, add(g, g)); };
  std::weak_ptr<int> alive;
  {
    Tensor none = leaf({1}), held = leaf({1});
    Tensor y = add(held, held);  // a graph that reaches it
    auto counter = std::make_shared<int>(0);
    alive = counter;
    register_hook(none, tripled).keep();
    register_hook(held, tripled).keep();
    register_hook(held, [counter](const Tensor&) { return ++*counter, Tensor(); }).keep();
    autograd::backward(y);
    y = {};
    for (int i = 0; i < 3; ++i) {  // graphs that come and go
      autograd::backward(add(none, none));
      autograd::backward(add(held, held));
    }
    CHECK(none.grad().item() == 3 * 2 * 3);
    CHECK(held.grad().item() == 4 * 2 * 3);
    CHECK(*counter == 4);
    CHECK(autograd::grad({add(none, none)}, {none})[0].item() == 6);
    counter.reset();
    CHECK_FALSE(alive.expired());
  }
  CHECK(alive.expired());  // it went with the leaf
}

TEST_CASE("faulty hooks and hooks on tensors without gradient are errors") {
  Tensor x = leaf({1});
  const auto handle = register_hook(x, [](const Tensor&) { return tensor({1, 2}, float64); });
  CHECK_THAT(testing::text_of([&] { autograd::backward(add(x, x)); }),
             Contains("got the gradient float64 [1] and returned float64 [2]"));
  const Tensor plain = tensor({1}, float64);
  const auto none = [](const Tensor&) { return Tensor(); };
  CHECK_THAT(testing::text_of([&] { static_cast<void>(register_hook(plain, none)); }),
             Contains("needs no gradient"));
  CHECK_THAT(testing::text_of([&] { static_cast<void>(register_hook({}, none)); }), Contains("undefined"));
  CHECK_THAT(testing::text_of([&] { static_cast<void>(register_hook(x, nullptr)); }), Contains("empty"));
}
