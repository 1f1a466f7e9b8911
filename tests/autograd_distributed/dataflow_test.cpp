// Graphs that wander over workers, beside the same graphs on one. Elements are small integers: every order of
// sums has the same bits.
#include <catch2/catch.hpp>

#include "autograd/hooks.h"
#include "ops/embedding_bag.h"
#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

struct Math : Actor {
  Tensor add(Tensor a, Tensor b) { return ops::add(a, b); }
  Tensor mul(Tensor a, Tensor b) { return ops::mul(a, b); }
  Tensor stack(std::vector<Tensor> parts) { return ops::stack(parts, 0); }
  Tensor matmul(Tensor a, Tensor b) { return ops::matmul(a, b); }
  Tensor wide(Tensor a) { return ops::to(a, DType::float64); }
  static constexpr auto remote = methods<&Math::add, &Math::mul, &Math::stack, &Math::matmul, &Math::wide>;
};

struct Table : Actor {
  explicit Table(Tensor start) : w(start.detach().clone_data()) { w.requires_grad_(); }
  Tensor bags(Tensor ids, Tensor offsets) { return ops::embedding_bag(ids, w, offsets); }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor w;
  static constexpr auto remote = methods<&Table::bags, &Table::gradient>;
};

// Gives gradients that have a history.
struct Hooked : Actor {
  Tensor forward(Tensor x) {
    Tensor y = ops::mul(x, w);
    autograd::register_hook(x, [this](const Tensor&) { return w; }).keep();
    return y;
  }
  Tensor w = full({2}, 5.0).requires_grad_();
  static constexpr auto remote = methods<&Hooked::forward>;
};

// Integers from -3 to 3.
Tensor numbers(const Shape& shape, int64_t first, DType dtype = DType::float32) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(float((i * 5 + first) % 7 - 3));
  return ops::to(tensor(v).reshape(shape), dtype);
}
Tensor leaf(Tensor t) {
  t.requires_grad_();
  return t;
}

}  // namespace

TEST_CASE("add, mul, stack and matmul over rotating workers have the gradients of a local run") {
  auto cluster = Cluster::in_process(4, hosting<Math>());
  std::vector<RRef<Math>> peers;
  for (const char* worker : {"w0", "w1", "w2", "w3"}) peers.push_back(cluster->spawn<Math>(worker));
  for (size_t first = 0; first < 4; ++first) {
    const auto peer = [&](size_t step) { return peers[(first + step) % 4]; };
    const Tensor t1 = leaf(numbers({3, 3}, 1)), t2 = numbers({3, 3}, 2), t3 = leaf(numbers({3, 3}, 4));
    autograd::Context context(*cluster);
    Tensor a = peer(0).call<&Math::add>(t1, t2).get();
    Tensor b = peer(1).call<&Math::mul>(a, t3).get();
    Tensor c = peer(2).call<&Math::stack>(std::vector{b, a, t2}).get();
    Tensor d = peer(3).call<&Math::matmul>(c, peer(0).call<&Math::matmul>(b, t1).get()).get();
    context.backward(d.sum());

    const Tensor l1 = leaf(numbers({3, 3}, 1)), l3 = leaf(numbers({3, 3}, 4));
    Tensor la = ops::add(l1, t2), lb = ops::mul(la, l3), lc = ops::stack({lb, la, t2}, 0);
    Tensor ld = ops::matmul(lc, ops::matmul(lb, l1));
    autograd::backward(ld.sum());
    CHECK(bit_equal(d.detach(), ld.detach()));
    CHECK(bit_equal(context.grad(t1), l1.grad()));
    CHECK(bit_equal(context.grad(t3), l3.grad()));
    CHECK_FALSE(t2.requires_grad());
    CHECK_FALSE(context.grad(t2).defined());  // no entry for who needs none
  }
}

TEST_CASE("gradients of a chain of products over workers have the shape and dtype of their tensors") {
  auto cluster = Cluster::in_process(3, hosting<Math>());
  auto a = cluster->spawn<Math>("w1"), b = cluster->spawn<Math>("w2");
  const auto chain = [](Tensor x, Tensor y, Tensor z, auto product, auto wide) {
    return product(wide(product(x, y)), z);
  };
  const Tensor x = leaf(numbers({2, 3}, 1)), y = leaf(numbers({3, 4}, 2)),
               z = leaf(numbers({4, 5}, 3, DType::float64));
  autograd::Context context(*cluster);
  Tensor remote = chain(
      x, y, z, [&](Tensor p, Tensor q) { return b.call<&Math::matmul>(p, q).get(); },
      [&](Tensor p) { return a.call<&Math::wide>(p).get(); });
  context.backward(remote.sum());
  const Tensor lx = leaf(numbers({2, 3}, 1)), ly = leaf(numbers({3, 4}, 2)),
               lz = leaf(numbers({4, 5}, 3, DType::float64));
  autograd::backward(
      chain(lx, ly, lz, ops::matmul, [](Tensor p) { return ops::to(p, DType::float64); }).sum());
  CHECK(context.grad(x).dtype() == DType::float32);
  CHECK(context.grad(z).dtype() == DType::float64);
  CHECK(context.grad(y).shape() == Shape{3, 4});
  CHECK(bit_equal(context.grad(x), lx.grad()));
  CHECK(bit_equal(context.grad(y), ly.grad()));
  CHECK(bit_equal(context.grad(z), lz.grad()));
}

TEST_CASE("of a stack of three whose slices are used in part the unused tensor gets zeros") {
  auto cluster = Cluster::in_process(2, hosting<Math>());
  for (const char* worker : {"w0", "w1"}) {
    auto math = cluster->spawn<Math>(worker);
    const Tensor x = leaf(numbers({2}, 1)), y = leaf(numbers({2}, 2)), z = leaf(numbers({2}, 3));
    autograd::Context context(*cluster);
    Tensor all = math.call<&Math::stack>(std::vector{x, y, z}).get();
    Tensor used = ops::add(ops::select(all, 0, 0), ops::mul(ops::select(all, 0, 2), full({2}, 2.0)));
    context.backward(used.sum());
    CHECK(context.grad(x).to_vector<float>() == std::vector<float>{1, 1});
    REQUIRE(context.grad(y).defined());
    CHECK(context.grad(y).to_vector<float>() == std::vector<float>{0, 0});
    CHECK(context.grad(z).to_vector<float>() == std::vector<float>{2, 2});
  }
}

TEST_CASE("a hook that gives a tensor with a history gets nothing recorded by an ordinary pass") {
  for (const char* worker : {"w0", "w1"}) {                    // a message within, and one to another worker
    auto cluster = Cluster::in_process(2, hosting<Hooked>());  // no node of before is still on its way out
    auto hooked = cluster->spawn<Hooked>(worker);
    const Tensor x = leaf(numbers({2}, 1));
    autograd::Context context(*cluster);
    Tensor y = hooked.call<&Hooked::forward>(x).get();
    const auto nodes = [&](const char* what) {
      return cluster->metrics("w0")[what] + cluster->metrics("w1")[what];
    };
    const int64_t sends = nodes("send_nodes"), receives = nodes("receive_nodes");
    context.backward(y.sum());
    CHECK(nodes("send_nodes") == sends);
    CHECK(nodes("receive_nodes") == receives);
    CHECK(context.grad(x).to_vector<float>() == std::vector<float>{5, 5});
    CHECK_FALSE(context.grad(x).requires_grad());
    y = {};
    context.end().get();
  }
}

TEST_CASE("local passes and passes of contexts leave each other's gradients alone") {
  auto cluster = Cluster::in_process(2, hosting<Math>());
  auto math = cluster->spawn<Math>("w1");
  const Tensor x = leaf(numbers({3}, 1)), y = numbers({3}, 2);
  autograd::backward(ops::mul(x, y).sum());
  const Tensor local = x.grad(), copy = local.clone_data();
  autograd::Context context(*cluster);
  context.backward(math.call<&Math::add>(x, y).get().sum());
  CHECK(x.grad().storage() == local.storage());
  CHECK(bit_equal(x.grad(), copy));
  const Tensor remote = context.grad(x).clone_data();
  CHECK(remote.to_vector<float>() == std::vector<float>{1, 1, 1});
  autograd::backward(ops::mul(x, y).sum());
  CHECK(bit_equal(context.grad(x), remote));
  CHECK(bit_equal(x.grad(), ops::add(copy, copy)));
}

TEST_CASE("bags of a table on another worker: two passes add up to those of a local table") {
  auto cluster = Cluster::in_process(2, hosting<Table>());
  const Tensor start = numbers({6, 2}, 1);
  auto table = cluster->spawn<Table>("w1", start);
  const std::vector<std::pair<Tensor, Tensor>> batches = {{tensor({0, 3, 3, 5}), tensor({0, 2})},
                                                          {tensor({5, 1}), tensor({0, 1})}};
  autograd::Context context(*cluster);
  const Tensor local = leaf(start.clone_data());
  for (const auto& [ids, offsets] : batches) {
    Tensor remote = table.call<&Table::bags>(ids, offsets).get(),
           here = ops::embedding_bag(ids, local, offsets);
    CHECK(bit_equal(remote.detach(), here.detach()));
    context.backward(ops::mul(remote, numbers({2, 2}, 3)).sum());
    autograd::backward(ops::mul(here, numbers({2, 2}, 3)).sum());
  }
  CHECK(bit_equal(table.call<&Table::gradient>().get(), local.grad()));
}
