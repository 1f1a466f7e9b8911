// What second derivatives are for, on a model whose halves are two actors: penalties, higher derivatives in
// the input, products with the Hessian, and a step of meta-learning, beside one thread without actors.
#include <catch2/catch.hpp>

#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using testing::nothing_left;

namespace {

Tensor start(const Shape& shape, uint64_t seed) {
  Generator random(seed);
  Tensor t = ops::to(ops::randn(shape, random), DType::float64);
  t.requires_grad_();
  return t;
}

// tanh(x w + c)
struct Half : Actor {
  Half(int64_t in, int64_t out, int64_t seed)
      : w(start({in, out}, uint64_t(seed))), c(start({out}, uint64_t(seed) + 100)) {}
  Tensor forward(Tensor x) { return ops::tanh(ops::add(ops::matmul(x, w), c)); }
  Tensor linear(Tensor x) { return ops::matmul(x, w); }
  Tensors gradients() { return {autograd::context_gradient(w), autograd::context_gradient(c)}; }
  /// Of the gradients, which the context then has no more, with `v`: a scalar with a history.
  Tensor dot(Tensors v) {
    return ops::add(ops::mul(autograd::take_context_gradient(w), v[0]).sum(),
                    ops::mul(autograd::take_context_gradient(c), v[1]).sum());
  }
  /// As forward(), after a step along the gradients of the context.
  Tensor adapted(Tensor x, double lr) {
    const Tensor w1 = ops::sub(w, ops::mul(autograd::context_gradient(w), lr)),
                 c1 = ops::sub(c, ops::mul(autograd::context_gradient(c), lr));
    return ops::tanh(ops::add(ops::matmul(x, w1), c1));
  }
  void forget() { autograd::take_context_gradient(w), autograd::take_context_gradient(c); }
  /// The mean square of the gradient of what comes of x through `next`, with respect to x.
  Task<Tensor> penalty(Tensor x, RRef<Half> next) {
    Tensor y = co_await next.call<&Half::forward>(forward(x));
    const Tensors outputs{y.sum()}, inputs{x};
    const Tensors got = co_await autograd::context_grad(outputs, inputs, Tensors{}, {.create_graph = true});
    co_return ops::mul(got[0], got[0]).sum();
  }
  Tensor w, c;
  static constexpr auto remote = methods<&Half::forward, &Half::linear, &Half::gradients, &Half::dot,
                                         &Half::adapted, &Half::forget, &Half::penalty>;
};

constexpr int64_t kIn = 3, kMiddle = 5, kOut = 2;

struct Split {
  std::unique_ptr<Cluster> cluster = Cluster::in_process(3, hosting<Half>());
  RRef<Half> a = cluster->spawn<Half>("w1", kIn, kMiddle, 1),
             b = cluster->spawn<Half>("w2", kMiddle, kOut, 2);
  Tensor forward(const Tensor& x) {
    const auto h = a.call<&Half::forward>(x);  // through here, whatever the timing: messages are counted
    return b.call<&Half::forward>(h).get();
  }
  Tensors gradients() {
    Tensors all = a.call<&Half::gradients>().get();
    for (const Tensor& t : b.call<&Half::gradients>().get()) all.push_back(t);
    return all;
  }
};

struct Whole {
  Half a{kIn, kMiddle, 1}, b{kMiddle, kOut, 2};
  Tensor forward(const Tensor& x) { return b.forward(a.forward(x)); }
  Tensors parameters() { return {a.w, a.c, b.w, b.c}; }
};

Tensor square_sum(const Tensor& t) { return ops::mul(t, t).sum(); }

void same_bits(const Tensors& got, const Tensors& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("tensor " << i);
    REQUIRE(got[i].defined() == want[i].defined());
    if (got[i].defined()) CHECK(bit_equal(got[i].detach(), want[i].detach()));
  }
}

void close(const Tensors& got, const Tensors& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("tensor " << i);
    const auto a = got[i].detach().to_vector<double>(), b = want[i].detach().to_vector<double>();
    REQUIRE(a.size() == b.size());
    for (size_t k = 0; k < a.size(); ++k) CHECK(std::abs(a[k] - b[k]) <= 1e-12 * (1 + std::abs(b[k])));
  }
}

int64_t count(Cluster& cluster, const std::string& what) {
  int64_t n = 0;
  for (const auto& name : cluster.workers()) n += cluster.metrics(name)[what];
  return n;
}

}  // namespace

TEST_CASE("a gradient penalty over two workers has the bits of a local run") {
  Split split;
  Whole whole;
  for (uint64_t round = 0; round < 3; ++round) {
    autograd::Context step(*split.cluster);
    const Tensor x = start({4, kIn}, 7 + round), lx = start({4, kIn}, 7 + round);
    Tensor y = split.forward(x);
    const Tensor g = step.grad({y.sum()}, {x}, {}, {.create_graph = true})[0];
    CHECK(g.requires_grad());
    CHECK_FALSE(step.grad(x).defined());
    step.backward(ops::add(square_sum(y), square_sum(g)));

    Tensor ly = whole.forward(lx);
    const Tensor lg = autograd::grad({ly.sum()}, {lx}, {}, {.create_graph = true})[0];
    Tensors inputs = whole.parameters();
    inputs.push_back(lx);
    const Tensors want = autograd::grad({ops::add(square_sum(ly), square_sum(lg))}, inputs);
    same_bits({g}, {lg});
    Tensors got = split.gradients();
    got.push_back(step.grad(x));
    same_bits(got, want);
    step.end().get();
  }
}

TEST_CASE(
    "two derivatives in the input have the bits of a local run, a third and those of parameters follow") {
  Split split;
  Whole whole;
  {
    autograd::Context step(*split.cluster);
    const Tensor x = start({4, kIn}, 7), lx = start({4, kIn}, 7);
    Tensor d = split.forward(x), ld = whole.forward(lx);
    for (int order = 1; order <= 3; ++order) {
      d = step.grad({d.sum()}, {x}, {}, {.create_graph = true})[0];
      ld = autograd::grad({ld.sum()}, {lx}, {}, {.create_graph = true})[0];
      INFO("order " << order);
      if (order < 3)
        same_bits({d}, {ld});
      else  // more than two gradients meet, and are summed as they come
        close({d}, {ld});
    }
    step.backward(square_sum(d));
    close(split.gradients(), autograd::grad({square_sum(ld)}, whole.parameters()));
    step.end().get();
  }
  nothing_left(*split.cluster);
}

TEST_CASE("a product with the Hessian of all parameters stays beside them") {
  Split split;
  Whole whole;
  const Tensors v{start({kIn, kMiddle}, 31), start({kMiddle}, 32), start({kMiddle, kOut}, 33),
                  start({kOut}, 34)};
  const auto plain = [&](size_t i) { return v[i].detach(); };
  {
    autograd::Context step(*split.cluster);
    const Tensor x = start({4, kIn}, 7).detach();
    step.backward(square_sum(split.forward(x)), {}, {.create_graph = true});
    const Tensor along = ops::add(split.a.call<&Half::dot>(Tensors{plain(0), plain(1)}).get(),
                                  split.b.call<&Half::dot>(Tensors{plain(2), plain(3)}).get());
    for (const Tensor& t : split.gradients()) CHECK_FALSE(t.defined());
    step.backward(along);

    const Tensors first =
        autograd::grad({square_sum(whole.forward(x))}, whole.parameters(), {}, {.create_graph = true});
    Tensor local;
    for (size_t i = 0; i < 4; ++i) {
      const Tensor part = ops::mul(first[i], plain(i)).sum();
      local = local.defined() ? ops::add(local, part) : part;
    }
    close(split.gradients(), autograd::grad({local}, whole.parameters()));
    step.end().get();
  }
  nothing_left(*split.cluster);
}

TEST_CASE("gradients through a step along gradients (meta-learning with one inner step)") {
  Split split;
  Whole whole;
  const double lr = 0.25;
  {
    autograd::Context task(*split.cluster);
    const Tensor support = start({4, kIn}, 7).detach(), query = start({4, kIn}, 8).detach();
    task.backward(square_sum(split.forward(support)), {}, {.create_graph = true});
    Tensor y = split.b.call<&Half::adapted>(split.a.call<&Half::adapted>(query, lr), lr).get();
    all(std::vector{split.a.call<&Half::forget>(), split.b.call<&Half::forget>()}).get();
    task.backward(square_sum(y));

    const Tensors g =
        autograd::grad({square_sum(whole.forward(support))}, whole.parameters(), {}, {.create_graph = true});
    Tensors fast;
    for (size_t i = 0; i < 4; ++i) fast.push_back(ops::sub(whole.parameters()[i], ops::mul(g[i], lr)));
    const Tensor h = ops::tanh(ops::add(ops::matmul(query, fast[0]), fast[1]));
    const Tensor ly = ops::tanh(ops::add(ops::matmul(h, fast[2]), fast[3]));
    close(split.gradients(), autograd::grad({square_sum(ly)}, whole.parameters()));
    task.end().get();
  }
  nothing_left(*split.cluster);
}

TEST_CASE("an actor computes a penalty in the context of its caller, through another actor") {
  Split split;
  Whole whole;
  {
    autograd::Context step(*split.cluster);
    const Tensor x = start({4, kIn}, 7), lx = start({4, kIn}, 7);
    step.backward(split.a.call<&Half::penalty>(x, split.b).get());
    const Tensor g = autograd::grad({whole.forward(lx).sum()}, {lx}, {}, {.create_graph = true})[0];
    Tensors inputs = whole.parameters();
    inputs.push_back(lx);
    const Tensors want = autograd::grad({square_sum(g)}, inputs);
    Tensors got = split.gradients();
    got.push_back(step.grad(x));
    close(got, want);
    step.end().get();
  }
  nothing_left(*split.cluster);
}

TEST_CASE("messages of recorded passes: linear stages stay fast, others go by pairs") {
  Split split;
  {
    autograd::Context step(*split.cluster);
    const Tensor x = start({4, kIn}, 7).detach();
    const auto h = split.a.call<&Half::linear>(x);
    Tensor y = split.b.call<&Half::linear>(h).get();
    step.backward(y, y, {.create_graph = true});
    CHECK(count(*split.cluster, "gradient_messages_sent") == 3);  // x needs none
    CHECK(count(*split.cluster, "reach_messages_sent") == 0);
    CHECK(count(*split.cluster, "send_nodes") == 3 + 3);  // the gradient of y has a history
    step.end().get();
  }
  {
    autograd::Context step(*split.cluster);
    const int64_t before = count(*split.cluster, "gradient_messages_sent");
    const Tensor x = start({4, kIn}, 7);
    Tensor y = split.forward(x);
    CHECK(count(*split.cluster, "send_nodes") == 4);
    const Tensor g = step.grad({y.sum()}, {x}, {}, {.create_graph = true})[0];
    CHECK(count(*split.cluster, "send_nodes") == 4 + 3);  // the first gradient is a constant
    CHECK(count(*split.cluster, "gradient_messages_sent") == before + 4);
    step.backward(ops::add(square_sum(y), square_sum(g)));
    CHECK(count(*split.cluster, "gradient_messages_sent") == before + 4 + 7);
    CHECK(count(*split.cluster, "send_nodes") == 4 + 3);  // an ordinary pass records nothing
    step.end().get();
  }
  nothing_left(*split.cluster);
}

TEST_CASE("the pass after a recorded one frees both graphs, and what is undefined stays so") {
  Split split;
  autograd::Context step(*split.cluster);
  const Tensor x = start({4, kIn}, 7), other = start({1}, 1);
  Tensor y = split.forward(x);
  const Tensors g = step.grad({y.sum()}, {x, other}, {}, {.create_graph = true});
  CHECK_FALSE(g[1].defined());
  step.backward(square_sum(g[0]));
  CHECK_THAT(error_of([&] { step.backward(square_sum(g[0])); }).what(), Catch::Contains("retain_graph"));
  // A gradient that depends on nothing has no history: that of a sum.
  const Tensor z = split.a.call<&Half::linear>(x).get();
  const Tensor one = step.grad({z.sum()}, {z}, {}, {.create_graph = true})[0];
  CHECK_FALSE(one.requires_grad());
}
