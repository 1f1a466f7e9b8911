// The life of contexts: who knows of them, and what is left after their end.
#include <catch2/catch.hpp>

#include <set>

#include "autograd/dist/ended.h"
#include "core/random.h"
#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;

namespace {

struct Scale : Actor {
  explicit Scale(double start) : w(Tensor::full({2}, start)) { w.set_requires_grad(); }
  Tensor forward(Tensor x) { return mul(x, w); }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensors parameters() override { return {w}; }
  Tensor w;
  static constexpr auto remote =
      methods<Scale, double>("forward", &Scale::forward, "gradient", &Scale::gradient);
};

}  // namespace

TEST_CASE("ended contexts are a set of numbers, kept as intervals") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Generator random(seed);
    autograd::Ended ended;
    std::set<uint64_t> want;
    for (int i = 0; i < 60; ++i) {
      if (random.below(8) == 0) {
        const uint64_t below = random.below(40);
        ended.add_below(below);
        for (uint64_t n = 0; n < below; ++n) want.insert(n);
      } else {
        const uint64_t n = random.below(100);
        ended.add(n);
        want.insert(n);
      }
      size_t runs = 0;
      for (uint64_t n = 0; n < 102; ++n) {
        REQUIRE(ended.contains(n) == want.contains(n));
        runs += want.contains(n) && !(n && want.contains(n - 1));
      }
      REQUIRE(ended.intervals() == runs);
    }
  }
}

TEST_CASE("a context that has ended says so, wherever it is used") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2.0);
  optim::Distributed<optim::SGD> optimizer({a}, {.lr = 0.5});
  autograd::Context context(*cluster);
  Tensor x = Tensor::of<float>({1, 2});
  x.set_requires_grad();
  Tensor loss = a.call<&Scale::forward>(x).get().sum();
  context.backward(loss);
  context.end().get();
  const auto says_so = [](const Error& e) {
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.what(), Catch::Contains("the context has ended"));
  };
  says_so(error_of([&] { (void)context.grad(x); }));
  says_so(error_of([&] { context.backward(loss); }));
  says_so(error_of([&] { optimizer.step(context); }));
  says_so(error_of([&] { a.call<&Scale::gradient>().get(); }));  // the owner of the parameter knows it too
  says_so(error_of([&] { a.call<&Scale::forward>(x).get(); }));
  CHECK(cluster->metrics("w1")["contexts"] == 0);
}

TEST_CASE("contexts within a long one are forgotten without a trace, and stay ended") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2.0);
  const Tensor x = Tensor::of<float>({1, 2});
  autograd::Context outer(*cluster);
  Tensor y = a.call<&Scale::forward>(x).get();
  for (int i = 0; i < 200; ++i) {
    autograd::Context inner(*cluster);
    CHECK(inner.id() >> 40 == cluster->worker().id());
    CHECK(inner.id() == outer.id() + 1 + static_cast<uint64_t>(i));
    if (i % 3 == 0) inner.backward(a.call<&Scale::forward>(x).get().sum());
    inner.end().get();
  }
  CHECK(cluster->metrics("w1")["contexts"] == 1);
  outer.backward(y.sum());
  CHECK(a.call<&Scale::gradient>().get().to_vector<float>() == std::vector<float>{1, 2});
}
