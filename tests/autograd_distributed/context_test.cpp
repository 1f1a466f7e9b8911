// The life of contexts: who knows of them, and what is left after their end.
#include <catch2/catch.hpp>

#include <set>

#include "actors/worker/worker.h"
#include "autograd/distributed/ended_contexts.h"
#include "core/base/generator.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using testing::nothing_left;

namespace {

struct Scale : Actor {
  explicit Scale(double start) : w(full({2}, start)) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return mul(x, w); }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensors parameters() override { return {w}; }
  Task<Tensor> through(RRef<Scale> next, Tensor x) { co_return co_await next.call<&Scale::forward>(x); }
  void nothing() {}
  Tensor w;
  static constexpr auto remote = methods<&Scale::forward, &Scale::gradient, &Scale::through, &Scale::nothing>;
};

// Calls made while it is there belong to a context of that number, whatever it is.
CallFrame in_context(Cluster& cluster, uint64_t number) {
  CallFrame f = frame();
  f.worker = &cluster.worker();
  f.context = number;
  return f;
}

}  // namespace

TEST_CASE("ended contexts are a set of numbers, kept as intervals") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Generator random(seed);
    autograd::EndedContexts ended;
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
  Tensor x = tensor({1, 2}, float32);
  x.requires_grad_();
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
  const Tensor x = tensor({1, 2}, float32);
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

TEST_CASE(
    "the end of a context is its end wherever it was: with gradients, without, without tensors, nested") {
  const int kind = GENERATE(0, 1, 2, 3);
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2.0), b = cluster->spawn<Scale>("w2", 3.0);
  const Tensor x = tensor({1, 2}, float32);
  uint64_t number = 0;
  {
    autograd::Context context(*cluster);
    number = context.id();
    if (kind == 0) {
      context.backward(a.call<&Scale::forward>(x).get().sum());
      CHECK(a.call<&Scale::gradient>().get().defined());
    } else if (kind == 1) {
      NoGradGuard guard;
      a.call<&Scale::forward>(x).get();
    } else if (kind == 2) {
      a.call<&Scale::nothing>().get();
    } else {
      context.backward(a.call<&Scale::through>(b, x).get().sum());
      CHECK(b.call<&Scale::gradient>().get().defined());
    }
    CHECK(cluster->metrics("w1")["contexts"] == (kind == 0 || kind == 3));
    CHECK(cluster->metrics("w2")["contexts"] == (kind == 3));
    CHECK_FALSE(context.workers().empty());
    context.end().get();
  }
  nothing_left(*cluster);
  // Those that it came to know that it is over: what comes late is refused.
  CallFrameScope late(in_context(*cluster, number));
  const Error e = error_of([&] { a.call<&Scale::forward>(x).get(); });
  CHECK(e.kind() == ErrorKind::invalid);
  CHECK_THAT(e.what(), Catch::Contains("the context has ended") && Catch::Contains("Scale::forward on w1 ("));
  nothing_left(*cluster);
}

TEST_CASE("a number that is no context's is refused, and leaves nothing") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2.0), b = cluster->spawn<Scale>("w2", 3.0);
  Tensor x = tensor({1, 2}, float32);
  x.requires_grad_();
  Tensor y;
  {
    autograd::Context context(*cluster);
    y = a.call<&Scale::forward>(x).get().sum();  // looks recorded
  }
  const auto refused = [&](uint64_t number, const char* why) {
    INFO(number);
    CallFrameScope scope(in_context(*cluster, number));
    for (const auto& use : std::vector<std::function<void()>>{
             [&] { a.call<&Scale::forward>(x).get(); }, [&] { b.call<&Scale::through>(a, x).get(); },
             [&] { autograd::context_backward(y).get(); }, [&] { (void)autograd::context_gradient(x); }}) {
      const Error e = error_of(use);
      CHECK(e.kind() == ErrorKind::invalid);
      CHECK_THAT(e.what(), Catch::Contains(why));
    }
  };
  refused((uint64_t{0} << 40) | 12345, "has made no context of number 12345");
  refused((uint64_t{77} << 40) | 1, "no member of this cluster");
  {  // only w1 can say that this is none of its own
    CallFrameScope scope(in_context(*cluster, (uint64_t{1} << 40) | 999));
    CHECK_THAT(error_of([&] { a.call<&Scale::forward>(x).get(); }).what(),
               Catch::Contains("worker w1 has made no context of number 999"));
  }
  y = {};  // it keeps its receive node
  nothing_left(*cluster);
}
