// A .grad with a history holds its leaf, which holds it.
#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "autograd/gradient_cycle.h"
#include "autograd/hooks.h"
#include "core/base/log.h"
#include "tests/autograd/graph.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

TEST_CASE("a .grad with a history is warned of once, and what it holds is freed where it is let go of") {
  static std::vector<std::string> said;
  internal::log::set_sink([](internal::log::Level, const std::string& text) { said.push_back(text); });
  const bool before = autograd::gradient_cycle_told().exchange(false);
  std::weak_ptr<int> freed;
  for (int i = 0; i < 3; ++i) {
    const auto held = std::make_shared<int>(i);
    freed = held;
    const Tensor x = leaf({1, 2});
    const Tensor y = mul(x, x);
    autograd::register_hook(y, [held](const Tensor&) { return Tensor(); }).keep();
    autograd::backward(mul(y, y), tensor({1, 1}, float64), {.create_graph = true});
    CHECK(x.grad().requires_grad());
    CHECK(x.grad().to_vector<double>() == std::vector<double>{4, 32});
    x.set_grad({});  // as zero_grad() does
  }
  CHECK(freed.expired());
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Contains("neither is freed until zero_grad()") && Contains("autograd::grad()"));

  autograd::gradient_cycle_told() = false;
  const Tensor x = leaf({3});
  CHECK(autograd::grad({mul(x, x)}, {x}, {}, {.create_graph = true})[0].requires_grad());
  autograd::backward(mul(x, tensor({2}, float64)), {}, {.create_graph = true});  // it depends on no leaf
  autograd::backward(mul(x, x));
  CHECK(said.size() == 1);
  CHECK_FALSE(autograd::gradient_cycle_told());
  internal::log::set_sink(nullptr);
  autograd::gradient_cycle_told() = before;
}
