// Gradients of given inputs: what leads to them runs, wherever it is, and nothing else changes.
#include <catch2/catch.hpp>

#include "autograd/hooks.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using testing::nothing_left;

namespace {

struct Scale : Actor {
  explicit Scale(double start) : w(full({2}, start)) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return ops::mul(x, w); }
  Tensor own() { return ops::mul(w, w); }  // reaches no input of a caller
  Tensor counted(Tensor x) {               // says how often a pass runs through it
    Tensor y = ops::mul(x, w);
    autograd::register_hook(y, [this](const Tensor&) {
      ++runs;
      return Tensor();
    }).keep();
    return y;
  }
  int64_t count() { return runs; }
  Tensor throws(Tensor x) {
    Tensor y = ops::mul(x, w);
    autograd::register_hook(y, [](const Tensor&) -> Tensor { throw std::runtime_error("bad"); }).keep();
    return y;
  }
  Tensor gradient() { return autograd::context_gradient(w); }
  Task<Tensor> through(Tensor x, RRef<Scale> next) {
    co_return ops::add(co_await next.call<&Scale::forward>(ops::mul(x, w)), x);
  }
  Task<Tensors> inside(RRef<Scale> next, Tensor x) {  // an actor that asks for gradients itself
    autograd::Context context;
    x.requires_grad_();
    Tensor y = co_await next.call<&Scale::forward>(ops::mul(x, w));
    const Tensors outputs{y.sum()}, inputs{x, w};
    co_return co_await context.grad_async(outputs, inputs);
  }
  Tensor w;
  int64_t runs = 0;
  static constexpr auto remote = methods<&Scale::forward, &Scale::own, &Scale::counted, &Scale::count,
                                         &Scale::throws, &Scale::gradient, &Scale::through, &Scale::inside>;
};

Tensor leaf(std::vector<float> v) {
  Tensor t = tensor(v);
  t.requires_grad_();
  return t;
}
std::vector<float> list(const Tensor& t) { return t.to_vector<float>(); }
using Floats = std::vector<float>;

}  // namespace

TEST_CASE("the gradient of given inputs runs what leads to them on all workers, and nothing else") {
  auto cluster = Cluster::in_process(4, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2), b = cluster->spawn<Scale>("w2", 3),
       c = cluster->spawn<Scale>("w3", 5);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf({1, 10}), z = leaf({7, 7});
    Tensor side = c.call<&Scale::counted>(z).get();  // leads to z, which is not asked for
    Tensor y = b.call<&Scale::counted>(a.call<&Scale::counted>(x)).get();
    Tensor loss = ops::add(ops::add(y, ops::mul(x, x)), side).sum();
    Tensors got = context.grad({loss}, {x, y}, {}, {.retain_graph = true});
    CHECK(list(got[0]) == Floats{6 + 2, 6 + 20});
    CHECK(list(got[1]) == Floats{1, 1});
    CHECK(a.call<&Scale::count>().get() == 1);
    CHECK(b.call<&Scale::count>().get() == 1);
    CHECK(c.call<&Scale::count>().get() == 0);
    for (const auto& actor : {a, b, c}) CHECK_FALSE(actor.call<&Scale::gradient>().get().defined());
    CHECK_FALSE(context.grad(x).defined());
    CHECK_FALSE(x.grad().defined());

    context.backward(loss);  // nothing of the above is in its way
    CHECK(list(context.grad(x)) == Floats{8, 26});
    CHECK(list(a.call<&Scale::gradient>().get()) == Floats{3, 30});
    CHECK(list(c.call<&Scale::gradient>().get()) == Floats{7, 7});
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE(
    "gradients of given inputs: shared parts, given gradients, several outputs, and what is not reached") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2), b = cluster->spawn<Scale>("w2", 3);
  autograd::Context context(*cluster);
  const Tensor x = leaf({1, 10}), other = leaf({1, 1});
  Tensor h = a.call<&Scale::through>(x, b).get();  // x 6 + x
  Tensor y = ops::add(h, a.call<&Scale::forward>(h).get());
  Tensor own = a.call<&Scale::own>().get();
  const Tensors got =
      context.grad({y, own, h}, {x, other, h},
                   {tensor({1, 100}, float32), tensor({1, 1}, float32), tensor({1, 1}, float32)});
  CHECK(list(got[0]) == Floats{7 * 3 + 7, 7 * 300 + 7});
  CHECK_FALSE(got[1].defined());
  CHECK(list(got[2]) == Floats{3 + 1, 300 + 1});
  const Error again = error_of([&] { context.grad({y}, {x}, {tensor({1, 1}, float32)}); });
  CHECK_THAT(again.what(), Catch::Contains("retain_graph"));  // what has run is freed
  CHECK(list(context.grad({own.sum()}, {other}, {}, {.retain_graph = true})[0].defined() ? other : x) ==
        Floats{1, 10});
  context.backward(own.sum());  // what has not run is not
  CHECK(list(a.call<&Scale::gradient>().get()) == Floats{4, 4});
}

TEST_CASE("an actor asks for the gradient of its own leaves through another one") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2), b = cluster->spawn<Scale>("w2", 3);
  const Tensors got = a.call<&Scale::inside>(b, tensor({1, 10}, float32)).get();
  CHECK(list(got[0]) == Floats{6, 6});
  CHECK(list(got[1]) == Floats{3, 30});
  nothing_left(*cluster);
}

TEST_CASE("an error on the way to an input is told, and leaves nothing of the pass") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf({1, 10});
    Tensor y = a.call<&Scale::throws>(x).get();
    CHECK_THAT(error_of([&] { context.grad({y.sum()}, {x}); }).what(),
               Catch::Contains("bad") && Catch::Contains("backward on w1 ("));
    CHECK(list(context.grad({a.call<&Scale::forward>(x).get().sum()}, {x})[0]) == Floats{2, 2});
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a local grad whose inputs may lie behind a call is an error, not half a gradient") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2);
  autograd::Context context(*cluster);
  const Tensor x = leaf({1, 10}), w = leaf({3, 3});
  Tensor y = a.call<&Scale::forward>(x).get();
  for (const Tensors& inputs : {Tensors{x}, Tensors{y, x}, Tensors{w}}) {
    const Error e = error_of([&] { autograd::grad({ops::add(ops::mul(y, w), x).sum()}, inputs); });
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.what(),
               Catch::Contains("behind a call to another actor") && Catch::Contains("autograd::Context"));
  }
  CHECK(error_of([&] { autograd::grad({y.sum()}, {x}, {}, {.create_graph = true}); }).kind() ==
        ErrorKind::invalid);
  Tensor h = ops::mul(y, w);  // computed from the received one: nothing can lie between
  CHECK(list(autograd::grad({ops::mul(h, h).sum()}, {h, y})[0]) == Floats{12, 120});
  CHECK(list(autograd::grad({ops::mul(y.detach(), w).sum()}, {w})[0]) == Floats{2, 20});
}

TEST_CASE("a local backward that would leave its worker runs nothing") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2);
  autograd::Context context(*cluster);
  const Tensor x = leaf({1, 10});
  Tensor loss = ops::add(a.call<&Scale::forward>(x).get(), ops::mul(x, x)).sum();
  CHECK_THAT(error_of([&] { autograd::backward(loss); }).what(), Catch::Contains("autograd::Context"));
  CHECK_FALSE(x.grad().defined());
  context.backward(loss);  // nothing was freed
  CHECK(list(context.grad(x)) == Floats{4, 22});
}

TEST_CASE("bad arguments of backward and grad are errors that say what is wrong") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", 2);
  autograd::Context context(*cluster);
  const Tensor x = leaf({1, 10}), plain = tensor({1, 2}, float32);
  Tensor y = a.call<&Scale::forward>(x).get();
  const auto says = [&](const Error& e, const std::string& text) {
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.what(), Catch::Contains(text));
  };
  says(error_of([&] { context.backward(Tensors{}, {}); }), "[backward] the list of tensors is empty");
  says(error_of([&] { autograd::backward(Tensors{}, {}); }), "[backward] the list of tensors is empty");
  says(error_of([&] { context.backward(Tensor()); }), "is undefined");
  says(error_of([&] { context.backward(plain.sum()); }), "needs no gradient");
  says(error_of([&] { context.backward(y); }), "give its gradient");
  says(error_of([&] { context.backward(y, tensor({1}, float32)); }), "cannot have the gradient");
  says(error_of([&] { context.backward({y, y}, {tensor({1, 1}, float32)}); }), "1 gradients for 2 tensors");
  says(error_of([&] { context.grad({y.sum()}, {}); }), "[grad] the list of tensors is empty");
  says(error_of([&] { context.grad({}, {x}); }), "[grad] the list of tensors is empty");
  says(error_of([&] { context.grad({y.sum()}, {plain}); }), "needs no gradient");
  const Tensor one = leaf({4});  // a root that is a leaf is its own gradient
  context.backward(one);
  CHECK(list(context.grad(one)) == Floats{1});
}
