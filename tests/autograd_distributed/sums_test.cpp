// What a context adds up, from which roots, and whose memory the sums are kept in.
#include <catch2/catch.hpp>

#include "autograd/hooks.h"
#include "ops/embedding_bag.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::nothing_left;

namespace {

struct Scale : Actor {
  explicit Scale(Tensor start) : w(start.detach().clone_data()) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return ops::mul(x, w); }
  Tensor bags(Tensor ids, Tensor offsets) { return ops::embedding_bag(ids, w, offsets); }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor w;
  static constexpr auto remote = methods<&Scale::forward, &Scale::bags, &Scale::gradient>;
};

// Small integers: every order of sums has the same bits.
Tensor numbers(const Shape& shape, int64_t first) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(float((i * 5 + first) % 7 - 3));
  return tensor(v).reshape(shape);
}
Tensor leaf(Tensor t) {
  t.requires_grad_();
  return t;
}

// Where the elements are of the gradient that reaches a leaf; nobody holds it because of this.
struct Seen {
  explicit Seen(const Tensor& leaf)
      : hook(autograd::register_hook(leaf, [this](const Tensor& g) {
          elements = g.bytes();
          return Tensor();
        })) {}
  const void* elements = nullptr;
  autograd::HookHandle hook;
};

}  // namespace

TEST_CASE("a pass without any call has the gradients of a local one, in the context") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  const Tensor w = leaf(numbers({4, 3}, 1)), b = leaf(numbers({3}, 2)), x = numbers({5, 4}, 3);
  {
    autograd::Context context(*cluster);
    const Tensor loss = ops::sum(ops::relu(ops::add(ops::matmul(x, w), b)));
    context.backward(loss, {}, {.retain_graph = true});
    CHECK_FALSE(w.grad().defined());
    autograd::backward(loss);
    CHECK(bit_equal(context.grad(w), w.grad()));
    CHECK(bit_equal(context.grad(b), b.grad()));
    CHECK(context.workers().empty());
    for (const char* what : {"gradient_messages_sent", "reach_messages_sent"})
      CHECK(cluster->metrics("w0")[what] == 0);
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("four roots of four calls add up in one pass") {
  const bool shared = GENERATE(false, true);  // fast and exact
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", tensor({2, 3}, float32)),
       b = cluster->spawn<Scale>("w2", tensor({5, 7}, float32));
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(tensor({1, 10}, float32)), y = leaf(tensor({3, 4}, float32));
    Tensor first = a.call<&Scale::forward>(x).get(), second = b.call<&Scale::forward>(x).get(),
           third = a.call<&Scale::forward>(y).get(), fourth = b.call<&Scale::forward>(y).get();
    if (shared) first = ops::add(first, a.call<&Scale::forward>(first).get());  // x a + x a^2
    context.backward({first.sum(), second, third.sum(), fourth},
                     {Tensor(), tensor({1, 100}, float32), tensor(10.0), tensor({1, 1}, float32)});
    using Values = std::vector<float>;
    CHECK(context.grad(x).to_vector<float>() ==
          (shared ? Values{2 + 4 + 5, 3 + 9 + 700} : Values{2 + 5, 3 + 700}));
    CHECK(context.grad(y).to_vector<float>() == Values{20 + 5, 30 + 7});
    CHECK(a.call<&Scale::gradient>().get().to_vector<float>() ==
          (shared ? Values{1 + 4 + 30, 10 + 60 + 40} : Values{1 + 30, 10 + 40}));
    CHECK(b.call<&Scale::gradient>().get().to_vector<float>() == Values{1 + 3, 1000 + 4});
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("bags of a large table of which few rows are used, two passes over one graph") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  const Tensor start = numbers({500, 4}, 1), weights = numbers({2, 4}, 3);
  const Tensor ids = tensor({7, 499, 7, 0}), offsets = tensor({0, 2});
  auto table = cluster->spawn<Scale>("w1", start);
  const Tensor local = leaf(start.clone_data());
  autograd::Context context(*cluster);
  const Tensor remote_loss = ops::sum(ops::mul(table.call<&Scale::bags>(ids, offsets).get(), weights));
  const Tensor local_loss = ops::sum(ops::mul(ops::embedding_bag(ids, local, offsets), weights));
  for (int pass = 0; pass < 2; ++pass) {
    context.backward(remote_loss, {}, {.retain_graph = true});
    autograd::backward(local_loss, {}, {.retain_graph = true});
    CHECK(bit_equal(table.call<&Scale::gradient>().get(), local.grad()));
  }
}

TEST_CASE("the first gradient of a context is taken over if nobody else has it, else copied") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", tensor({2, 3}, float32));
  autograd::Context context(*cluster);
  const Tensor factor = tensor({5, 7}, float32);

  SECTION("computed here, and computed there") {
    const Tensor x = leaf(tensor({1, 1}, float32)), y = leaf(tensor({1, 1}, float32));
    const Seen at_x(x), at_y(y);
    context.backward({ops::mul(x, factor), a.call<&Scale::forward>(y).get()}, {factor, factor});
    REQUIRE(at_x.elements);
    const Tensor of_x = context.grad(x), of_y = context.grad(y);
    CHECK(of_x.bytes() == at_x.elements);
    REQUIRE(at_y.elements);
    CHECK(of_y.bytes() == at_y.elements);
  }
  SECTION("somebody keeps it") {
    const Tensor x = leaf(tensor({1, 1}, float32));
    Tensor kept;
    auto hook = autograd::register_hook(x, [&](const Tensor& g) {
      if (!kept.defined()) kept = g;
      return Tensor();
    });
    const Tensor y = a.call<&Scale::forward>(x).get().sum();
    context.backward(y, {}, {.retain_graph = true});
    CHECK(context.grad(x).storage() != kept.storage());
    const Tensor early = context.grad(x);
    for (int i = 0; i < 10; ++i) context.backward(y, {}, {.retain_graph = true});
    CHECK(context.grad(x).to_vector<float>() == std::vector<float>{22, 33});
    CHECK(kept.to_vector<float>() == std::vector<float>{2, 3});
    CHECK(early.to_vector<float>() == std::vector<float>{2, 3});  // what was handed out stays as it was
  }
  SECTION("it goes to two leaves") {
    const Tensor x = leaf(tensor({1, 1}, float32)), y = leaf(tensor({1, 1}, float32));
    const Tensor sum = ops::add(x, y);
    context.backward(ops::mul(sum, factor), factor, {.retain_graph = true});
    CHECK(context.grad(x).storage() != context.grad(y).storage());
    for (int i = 0; i < 10; ++i) context.backward(ops::mul(ops::add(x, x), factor), factor);
    CHECK(context.grad(x).to_vector<float>() == std::vector<float>{21 * 25, 21 * 49});
    CHECK(context.grad(y).to_vector<float>() == std::vector<float>{25, 49});
  }
  SECTION("its elements lie in another order") {
    const Tensor x = leaf(numbers({2, 3}, 1)), g = numbers({3, 2}, 2);
    context.backward(ops::transpose(x, 0, 1), g);
    CHECK(context.grad(x).is_contiguous());
    CHECK(bit_equal(context.grad(x), ops::transpose(g, 0, 1)));
    for (int i = 0; i < 10; ++i) context.backward(ops::transpose(x, 0, 1), g);
    CHECK(bit_equal(context.grad(x), ops::mul(ops::transpose(g, 0, 1), full({2, 3}, 11.0))));
    CHECK(bit_equal(g, numbers({3, 2}, 2)));  // the gradient that was given is the caller's
  }
}
