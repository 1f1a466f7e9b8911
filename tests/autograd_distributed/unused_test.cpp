// Calls that were recorded and are not used: a pass is right without them, and waits for none of them.
#include <catch2/catch.hpp>

#include "tests/support/nothing_left.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::nothing_left;

namespace {

struct Scale : Actor {
  explicit Scale(double start) : w(full({1}, start)) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return ops::mul(x, w); }
  Tensors five(Tensor x) {
    Tensors out;
    for (int i = 1; i <= 5; ++i) out.push_back(ops::mul(ops::mul(x, w), full({1}, i, float32)));
    return out;
  }
  Task<Tensor> asks_in_vain(Tensor x, RRef<Scale> next) {  // records a nested call and drops what it gives
    (void)co_await next.call<&Scale::forward>(ops::mul(x, w));
    co_return ops::mul(x, w);
  }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor w;
  static constexpr auto remote =
      methods<&Scale::forward, &Scale::five, &Scale::asks_in_vain, &Scale::gradient>;
};

Tensor leaf(float v) {
  Tensor t = tensor({v});
  t.requires_grad_();
  return t;
}

}  // namespace

TEST_CASE("recorded calls whose results are not used: backward ends, with the right gradients") {
  const bool shared = GENERATE(false, true);  // fast and exact
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2), b = cluster->spawn<Scale>("w2", 3);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(7);
    Tensor dropped = b.call<&Scale::forward>(x).get();                           // straight
    Tensor chained = b.call<&Scale::forward>(a.call<&Scale::forward>(x)).get();  // a's part of it as well
    Tensor y = a.call<&Scale::asks_in_vain>(x, b).get();                         // inside a method
    if (shared) y = ops::add(y, a.call<&Scale::forward>(y).get());
    context.backward(y);
    CHECK(context.grad(x).item() == (shared ? 2 + 4 : 2));
    CHECK(a.call<&Scale::gradient>().get().item() == (shared ? 7 + 2 * 7 * 2 : 7));
    CHECK_FALSE(b.call<&Scale::gradient>().get().defined());  // none, and not zeros
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("of five results of one call three are used") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2);
  autograd::Context context(*cluster);
  const Tensor x = leaf(7);
  const Tensors five = a.call<&Scale::five>(x).get();
  context.backward(ops::add(ops::add(five[0], five[2]), ops::mul(five[4], five[4])));
  // (1 + 3) x w + (5 x w)^2
  CHECK(context.grad(x).item() == 4 * 2 + 2 * 25 * 7 * 4);
  CHECK(a.call<&Scale::gradient>().get().item() == 4 * 7 + 2 * 25 * 49 * 2);
}

TEST_CASE("a worker that has died since is no matter to a pass that does not need its result") {
  SimulatedCluster cluster(1, 3, hosting<Scale>());
  auto a = cluster.here(0).spawn<Scale>(1, 2.0), b = cluster.here(0).spawn<Scale>(2, 3.0);
  autograd::Context context(cluster.worker(0));
  const Tensor x = leaf(7);
  Tensor unused = cluster.await(b.call<&Scale::forward>(x)).value();
  Tensor y = cluster.await(a.call<&Scale::forward>(x)).value();
  cluster.network().crash("w2");
  cluster.settle();
  REQUIRE(cluster.await(context.backward_async(y)).ok());
  CHECK(context.grad(x).item() == 2);
  const auto needed = cluster.await(context.backward_async(ops::add(unused, x)));
  REQUIRE_FALSE(needed.ok());
  CHECK(needed.error().worker() == "w2");
  cluster.settle();
  CHECK(context.grad(x).item() == 2);  // and what it had added is gone
}
