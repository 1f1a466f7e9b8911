// Scopes of contexts: inside each other, on other threads, around errors and during a pass.
#include <catch2/catch.hpp>

#include <thread>

#include "actors/worker/worker.h"
#include "autograd/hooks.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using testing::nothing_left;

namespace {

struct Scale : Actor {
  explicit Scale(double start) : w(full({1}, start)) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return ops::mul(x, w); }
  Tensor broken(Tensor) { throw std::runtime_error("line one\nline two"); }
  Task<Tensor> broken_there(Tensor x, RRef<Scale> next) {
    co_return co_await next.call<&Scale::broken>(ops::mul(x, w));
  }
  int64_t context() { return static_cast<int64_t>(frame().context); }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor w;
  static constexpr auto remote =
      methods<&Scale::forward, &Scale::broken, &Scale::broken_there, &Scale::context, &Scale::gradient>;
};

Tensor leaf(float v) {
  Tensor t = tensor({v});
  t.requires_grad_();
  return t;
}

}  // namespace

TEST_CASE("calls belong to the innermost context, and the outer one goes on after it") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 3);
  {
    autograd::Context outer(*cluster);
    const Tensor x = leaf(2);
    Tensor before = a.call<&Scale::forward>(x).get();
    {
      autograd::Context inner(*cluster);
      CHECK(inner.id() != outer.id());
      CHECK(a.call<&Scale::context>().get() == int64_t(inner.id()));
      inner.backward(a.call<&Scale::forward>(x).get().sum());
      CHECK(inner.grad(x).item() == 3);
      CHECK(a.call<&Scale::gradient>().get().item() == 2);
      CHECK_FALSE(outer.grad(x).defined());
      CHECK_THAT(error_of([&] { inner.backward(before.sum()); }).what(),
                 Catch::Contains("another autograd context"));
      inner.end().get();
    }
    CHECK(a.call<&Scale::context>().get() == int64_t(outer.id()));
    CHECK_FALSE(a.call<&Scale::gradient>().get().defined());
    outer.backward(ops::add(before, a.call<&Scale::forward>(x).get()).sum());
    CHECK(outer.grad(x).item() == 6);
    CHECK(a.call<&Scale::gradient>().get().item() == 4);
    outer.end().get();
  }
  CHECK(a.call<&Scale::context>().get() == 0);
  nothing_left(*cluster);
}

TEST_CASE("another thread records into a context under a guard, and so do its callbacks") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 3), b = cluster->spawn<Scale>("w2", 5);
  autograd::Context context(*cluster);
  const Tensor x = leaf(2);
  Tensor y;
  Promise<int64_t> in_callback;
  int64_t after = -1;
  std::thread([&] {
    {
      autograd::Context::Guard guard(context);
      y = b.call<&Scale::forward>(a.call<&Scale::forward>(x).get()).get();  // with a wait between
      a.call<&Scale::forward>(x)
          .then([&](const Tensor&) {
            a.call<&Scale::context>().on_ready([&](const auto& r) { in_callback.complete(r); });
          })
          .get();
    }
    after = a.call<&Scale::context>().get();
  }).join();
  CHECK(in_callback.future().get() == int64_t(context.id()));
  CHECK(after == 0);  // the end of the guard
  context.backward(y.sum());
  CHECK(context.grad(x).item() == 15);
  CHECK(a.call<&Scale::gradient>().get().item() == 10);
  CHECK(b.call<&Scale::gradient>().get().item() == 6);
}

TEST_CASE("an error in a nested method has its text and both methods, and leaves nothing of the context") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 3), b = cluster->spawn<Scale>("w2", 5);
  {
    autograd::Context context(*cluster);
    const Error e = error_of([&] { a.call<&Scale::broken_there>(leaf(1), b).get(); });
    CHECK(e.kind() == ErrorKind::failed);
    CHECK_THAT(e.what(), Catch::Contains("line one\nline two") && Catch::Contains("Scale::broken on w2 (") &&
                             Catch::Contains("Scale::broken_there on w1 ("));
    const Tensor x = leaf(2);
    context.backward(a.call<&Scale::forward>(x).get().sum());  // the context and the actor go on
    CHECK(context.grad(x).item() == 3);
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a pass is counted while it runs, and no longer") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 3);
  autograd::Context context(*cluster);
  const Tensor x = leaf(2);
  std::vector<int64_t> during;
  auto hook = autograd::register_hook(x, [&](const Tensor&) {
    during.push_back(cluster->worker().metrics()["backward_passes"]);
    return Tensor();
  });
  CHECK(cluster->worker().metrics()["backward_passes"] == 0);
  context.backward(a.call<&Scale::forward>(x).get().sum());
  CHECK(during == std::vector<int64_t>{1});
  CHECK(cluster->worker().metrics()["backward_passes"] == 0);
}
