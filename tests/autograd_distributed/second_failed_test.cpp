// Recorded passes that fail leave nothing of what they recorded; sums with histories keep them.
#include <catch2/catch.hpp>

#include "autograd/distributed/context_state.h"
#include "autograd/hooks.h"
#include "core/base/generator.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using autograd::ContextState;
using testing::error_of;
using testing::nothing_left;

namespace {

struct Cube : Actor {
  explicit Cube(double start) : w(full({1}, start, DType::float64)) { w.requires_grad_(); }
  Tensor forward(Tensor x) {
    Tensor y = ops::mul(ops::mul(x, x), ops::mul(x, w));
    autograd::register_hook(x, [this](const Tensor&) -> Tensor {
      if (fail) throw std::runtime_error("bad gradient");
      return {};
    }).keep();
    return y;
  }
  void set_fail(bool on) { fail = on; }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor w;
  bool fail = false;
  static constexpr auto remote = methods<&Cube::forward, &Cube::set_fail, &Cube::gradient>;
};

Tensor leaf(double v) {
  Tensor t = tensor({v}, float64);
  t.requires_grad_();
  return t;
}
int64_t count(Cluster& cluster, const std::string& what) {
  int64_t n = 0;
  for (const auto& name : cluster.workers()) n += cluster.metrics(name)[what];
  return n;
}
constexpr uint64_t pass(uint64_t worker, uint64_t count) { return worker << 40 | count; }

ContextState::Send send_of(const Tensor& t, const autograd::LiveCount& live, uint64_t pair, uint64_t pass) {
  return {make_ref<autograd::SendNode>(0, pair, Edges{t.gradient_edge()},
                                       std::vector<std::pair<DType, Shape>>{{t.dtype(), t.shape()}}, live),
          nullptr, pass};
}

}  // namespace

TEST_CASE(
    "twenty recorded passes that fail leave no node and no gradient, and good ones after them are right") {
  const bool backward = GENERATE(false, true);
  auto cluster = Cluster::in_process(4, hosting<Cube>());
  auto a = cluster->spawn<Cube>("w1", 1), bad = cluster->spawn<Cube>("w2", 1),
       b = cluster->spawn<Cube>("w3", 1);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(2);
    Tensor y = b.call<&Cube::forward>(bad.call<&Cube::forward>(a.call<&Cube::forward>(x))).get();  // x^27
    const int64_t sends = count(*cluster, "send_nodes");
    const autograd::BackwardOptions how{.create_graph = true};
    bad.call<&Cube::set_fail>(true).get();
    for (int i = 0; i < 20; ++i) {
      const Error e =
          error_of([&] { backward ? context.backward(y, {}, how) : void(context.grad({y}, {x}, {}, how)); });
      CHECK_THAT(e.what(), Catch::Contains("bad gradient") && Catch::Contains("backward on w2 ("));
      CHECK(count(*cluster, "send_nodes") == sends);
      CHECK_FALSE(context.grad(x).defined());
      CHECK_FALSE(b.call<&Cube::gradient>().get().defined());
    }
    bad.call<&Cube::set_fail>(false).get();
    Tensor first;
    if (backward) {
      context.backward(y, {}, how);
      first = autograd::take_context_gradient(x);
      CHECK(a.call<&Cube::gradient>().get().requires_grad());
    } else {
      first = context.grad({y}, {x}, {}, how)[0];
    }
    CHECK(first.item() == 27 * double(1 << 26));
    CHECK(count(*cluster, "send_nodes") > sends);
    // A recorded pass over that, which fails, takes only its own away.
    const int64_t recorded = count(*cluster, "send_nodes");
    bad.call<&Cube::set_fail>(true).get();
    CHECK_THROWS(context.backward(first, {}, how));
    CHECK(count(*cluster, "send_nodes") == recorded);
    bad.call<&Cube::set_fail>(false).get();
    CHECK(context.grad({first}, {x}, {}, {.retain_graph = true})[0].item() == 27 * 26 * double(1 << 25));
    context.backward(first);
    CHECK(context.grad(x).item() == 27 * 26 * double(1 << 25));
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a recorded pass and an ordinary one add up in the context, which keeps the history of the first") {
  auto cluster = Cluster::in_process(2, hosting<Cube>());
  auto a = cluster->spawn<Cube>("w1", 1);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(3);
    Tensor y = a.call<&Cube::forward>(x).get();  // x^3
    context.backward(y, {}, {.create_graph = true});
    context.backward(y, {}, {.create_graph = true});
    {
      NoGradGuard off;  // merging must not lose a history, whoever asks for it
      CHECK(context.grad(x).item() == 2 * 27);
      context.backward(y, {}, {.retain_graph = true});
    }
    const Tensor sum = context.grad(x);
    CHECK(sum.item() == 3 * 27);
    const Tensor taken = autograd::take_context_gradient(x);
    CHECK_FALSE(context.grad(x).defined());
    CHECK(context.grad({taken}, {x})[0].item() == 2 * 18);
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("what a pass that is dropped had recorded goes with it, and it records nothing more") {
  const auto live = std::make_shared<std::atomic<int64_t>>(0);
  ContextState state;
  const Tensor x = leaf(1), y = ops::mul(x, x);
  CHECK_FALSE(state.add_send(1, send_of(ops::mul(x, x), live, 1, 0)));
  state.add_send(2, send_of(y, live, 2, pass(1, 1)));
  state.add_send(3, send_of(y, live, 3, pass(1, 2)));
  state.add_send(4, send_of(y, live, 4, pass(2, 1)));
  state.add_send(5, send_of(y, live, 5, pass(1, 1)));
  CHECK(state.shared());
  state.drop_send(5);  // it could not be sent
  CHECK(*live == 4);
  state.drop_pass(pass(1, 1));
  CHECK(*live == 3);
  CHECK_FALSE(state.find_send(2).node);
  CHECK(error_of([&] { state.add_send(6, send_of(y, live, 6, pass(1, 1))); }).kind() == ErrorKind::cancelled);
  CHECK(*live == 3);
  state.forget_pass(pass(1, 2));  // it has ended well
  CHECK(*live == 3);
  state.commit(pass(1, 3));
  state.drop_pass(pass(1, 2));  // no more: it has ended
  CHECK(state.find_send(3).node);
  CHECK(state.find_send(4).node);
  state.drop_pass(pass(2, 1));
  CHECK(*live == 2);
}

TEST_CASE("sums of gradients with and without histories differentiate as they should, in any order") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Generator random(seed);
    ContextState state;
    const Tensor x = leaf(3);
    double value = 0, slope = 0;
    uint64_t next[3] = {1, 1, 1};
    for (int i = 0; i < 40; ++i) {
      const uint64_t worker = 1 + random.below(2);
      const double weight = double(1 + random.below(5));
      const uint64_t number = pass(worker, next[worker]++);
      const bool recorded = random.below(2), fails = random.below(4) == 0;
      for (uint64_t k = 0; k < random.below(3); ++k) {
        const GradMode mode(recorded);
        state.accumulate(number, x, ops::mul(ops::mul(x, x), weight));
        if (fails) continue;
        value += 9 * weight;
        if (recorded) slope += 6 * weight;
      }
      if (fails) state.drop_pass(number);
      const GradMode mode(random.below(2) == 0);  // of whoever asks
      state.commit(pass(worker, next[worker]));
      const bool take = random.below(5) == 0;
      const Tensor sum = take ? state.exchange_gradient(x, {}) : state.gradient(x);
      REQUIRE((sum.defined() ? sum.item() : 0) == value);
      REQUIRE((sum.defined() && sum.requires_grad()) == (slope != 0));
      if (slope) REQUIRE(autograd::grad({sum}, {x}, {}, {.retain_graph = true})[0].item() == slope);
      if (take) value = slope = 0;
    }
  }
}
