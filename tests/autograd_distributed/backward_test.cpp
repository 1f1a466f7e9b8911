// Gradients across workers: equal to those of the whole model, whichever way the calls went.
#include <catch2/catch.hpp>

#include <thread>

#include "autograd/checkpoint.h"
#include "autograd/hooks.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using testing::nothing_left;

namespace {

// y = x w, with what a test wants to ask.
struct Scale : Actor {
  explicit Scale(Tensor start) : w(start.detach().clone_data()) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return mul(x, w); }
  std::vector<Tensor> two(Tensor x) { return {mul(x, w), add(x, w)}; }
  Task<Tensor> through(Tensor x, RRef<Scale> next) {  // this, then next, then this again
    Tensor y = co_await next.call<&Scale::forward>(mul(x, w));
    co_return add(y, w);
  }
  Tensor checkpointed(Tensor x) {
    return autograd::checkpoint([this](const Tensor& t) { return exp(mul(t, w)); }, x);
  }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor value() { return w.detach(); }
  /// Through this one and the others, each of which calls the next; the backward pass of the last one throws.
  Task<Tensor> doomed(Tensor x, std::vector<RRef<Scale>> others) {
    Tensor y = mul(x, w);
    if (others.empty()) {
      autograd::register_hook(y, [](const Tensor&) -> Tensor {
        throw std::runtime_error("bad gradient");
      }).keep();
      co_return y;
    }
    const RRef<Scale> next = others.back();
    others.pop_back();
    co_return co_await next.call<&Scale::doomed>(y, others);
  }
  Tensors parameters() override { return {w}; }
  Tensor w;
  static constexpr auto remote = methods<&Scale::forward, &Scale::two, &Scale::through, &Scale::gradient,
                                         &Scale::checkpointed, &Scale::value, &Scale::doomed>;
};

Tensor vec(std::vector<float> v) { return tensor(v); }
std::vector<float> list(const Tensor& t) { return t.to_vector<float>(); }

}  // namespace

TEST_CASE("gradients run back through a chain of workers") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", vec({2, 3}));
  auto b = cluster->spawn<Scale>("w2", vec({5, 7}));
  Tensor x = vec({1, 10});
  x.requires_grad_();
  {
    autograd::Context context(*cluster);
    Tensor y = b.call<&Scale::forward>(a.call<&Scale::forward>(x)).get();
    CHECK(list(y) == std::vector<float>{10, 210});
    context.backward(y.sum());
    CHECK(list(context.grad(x)) == std::vector<float>{10, 21});
    CHECK(list(a.call<&Scale::gradient>().get()) == std::vector<float>{5, 70});
    CHECK(list(b.call<&Scale::gradient>().get()) == std::vector<float>{2, 30});
    CHECK_FALSE(x.grad().defined());  // contexts never touch .grad
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a method may checkpoint, and a call inside a checkpoint is an error that says so") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", vec({2, 3}));
  Tensor x = vec({1, 0.5});
  x.requires_grad_();
  {
    autograd::Context context(*cluster);
    context.backward(a.call<&Scale::checkpointed>(x).get().sum());
    const auto e2 = std::exp(2.0f), e15 = std::exp(1.5f);
    CHECK(context.grad(x).to_vector<double>()[0] == Approx(2 * e2));
    CHECK(a.call<&Scale::gradient>().get().to_vector<double>()[1] == Approx(0.5 * e15));
    const auto error = error_of(
        [&] { autograd::checkpoint([&](const Tensor& t) { return a.call<&Scale::forward>(t).get(); }, x); });
    CHECK(error.kind() == ErrorKind::unimplemented);
    CHECK_THAT(error.what(), Catch::Contains("[checkpoint] a remote call inside"));
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("calls within one worker have the same gradients") {
  auto cluster = Cluster::in_process(1, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w0", vec({2}));
  auto b = cluster->spawn<Scale>("w0", vec({5}));
  autograd::Context context(*cluster);
  Tensor x = vec({3});
  x.requires_grad_();
  context.backward(b.call<&Scale::forward>(a.call<&Scale::forward>(x)).get().sum());
  CHECK(list(context.grad(x)) == std::vector<float>{10});
  CHECK(list(a.call<&Scale::gradient>().get()) == std::vector<float>{15});
}

TEST_CASE("a result that the loss does not use, or uses in part, holds nothing up") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", vec({2}));
  auto b = cluster->spawn<Scale>("w2", vec({5}));
  autograd::Context context(*cluster);
  const Tensor x = vec({3});
  Tensor unused = b.call<&Scale::forward>(a.call<&Scale::forward>(x)).get();
  auto two = a.call<&Scale::two>(x).get();
  context.backward(two[1].sum());
  CHECK(list(a.call<&Scale::gradient>().get()) == std::vector<float>{1});
  CHECK_FALSE(b.call<&Scale::gradient>().get().defined());
}

TEST_CASE("one actor used several times sums its gradients") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", vec({3}));
  autograd::Context context(*cluster);
  const Tensor x = vec({2});
  Tensor y = x;
  for (int i = 0; i < 4; ++i) y = a.call<&Scale::forward>(y).get();  // x w^4
  Tensor loss = y.sum();
  context.backward(loss, {}, {.retain_graph = true});
  CHECK(list(a.call<&Scale::gradient>().get()) == std::vector<float>{4 * 2 * 27});
  context.backward(loss);  // a second pass adds
  CHECK(list(a.call<&Scale::gradient>().get()) == std::vector<float>{2 * 4 * 2 * 27});
  const Error e = error_of([&] { context.backward(y.sum()); });  // it has freed what was saved
  CHECK(e.kind() == ErrorKind::invalid);
  CHECK_THAT(e.what(), Catch::Contains("retain_graph") && Catch::Contains("backward on w1 ("));
}

TEST_CASE("several roots, roots with given gradients, and roots that need no worker") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", vec({2, 3}));
  auto b = cluster->spawn<Scale>("w2", vec({5, 7}));
  autograd::Context context(*cluster);
  Tensor x = vec({1, 1});
  x.requires_grad_();
  Tensor y = a.call<&Scale::forward>(x).get(), z = b.call<&Scale::forward>(x).get();
  context.backward({y, z, x.sum()}, {vec({1, 10}), vec({100, 1000}), Tensor()});
  CHECK(list(context.grad(x)) == std::vector<float>{2 + 500 + 1, 30 + 7000 + 1});
}

TEST_CASE("actors that call actors in a coroutine record both ways") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", vec({2}));
  auto b = cluster->spawn<Scale>("w2", vec({5}));
  {
    autograd::Context context(*cluster);
    Tensor x = vec({3});
    x.requires_grad_();
    Tensor y = a.call<&Scale::through>(x, b).get();  // x wa wb + wa
    CHECK(list(y) == std::vector<float>{32});
    context.backward(y.sum());
    CHECK(list(context.grad(x)) == std::vector<float>{10});
    CHECK(list(a.call<&Scale::gradient>().get()) == std::vector<float>{16});
    CHECK(list(b.call<&Scale::gradient>().get()) == std::vector<float>{6});
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("contexts side by side, on many threads, do not see each other") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", vec({2}));
  auto b = cluster->spawn<Scale>("w2", vec({5}));
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        autograd::Context context(*cluster);
        Tensor x = vec({static_cast<float>(t * 100 + i)});
        x.requires_grad_();
        context.backward(b.call<&Scale::forward>(a.call<&Scale::forward>(x)).get().sum());
        right += list(context.grad(x)) == std::vector<float>{10} &&
                 list(a.call<&Scale::gradient>().get()) ==
                     std::vector<float>{5.0f * static_cast<float>(t * 100 + i)};
        context.end().get();
      }
    });
  for (auto& t : threads) t.join();
  CHECK(right == 200);
  nothing_left(*cluster);
}

TEST_CASE("the optimizer updates parameters where they live") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", vec({2}));
  auto b = cluster->spawn<Scale>("w2", vec({5}));
  optim::Distributed<optim::SGD> optimizer({a, b}, {.lr = 0.5});
  autograd::Context context(*cluster);
  context.backward(b.call<&Scale::forward>(a.call<&Scale::forward>(vec({3}))).get().sum());
  optimizer.step(context);
  CHECK(list(a.call<&Scale::value>().get()) == std::vector<float>{2 - 0.5f * 15});
  CHECK(list(b.call<&Scale::value>().get()) == std::vector<float>{5 - 0.5f * 6});
}

TEST_CASE("an optimizer for an actor that could not be made, or with bad options, says so") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", vec({2}));
  CHECK(error_of([&] { optim::Distributed<optim::SGD>({a}, {.lr = -1}); }).kind() == ErrorKind::invalid);
  CHECK(error_of([&] { optim::Distributed<optim::SGD>({RRef<Scale>()}, {.lr = 1}); }).kind() ==
        ErrorKind::invalid);
}

TEST_CASE("recording outside a context fails loudly, and works without gradients") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", vec({2}));
  Tensor x = vec({3});
  CHECK_THAT(error_of([&] { a.call<&Scale::forward>(x).get(); }).what(),
             Catch::Contains("Context"));  // the result needs them
  x.requires_grad_();
  CHECK_THAT(error_of([&] { a.call<&Scale::forward>(x).get(); }).what(), Catch::Contains("NoGradGuard"));
  NoGradGuard guard;
  Tensor y = a.call<&Scale::forward>(x).get();
  CHECK(list(y) == std::vector<float>{6});
  CHECK_FALSE(y.requires_grad());
}

TEST_CASE(
    "an error in a remote backward pass reaches backward(), with worker and actor, and frees the pass") {
  auto cluster = Cluster::in_process(5, hosting<Scale>());
  std::vector<RRef<Scale>> chain;
  for (const char* on : {"w1", "w2", "w3", "w4"}) chain.push_back(cluster->spawn<Scale>(on, vec({2})));
  {
    autograd::Context context(*cluster);
    Tensor y = chain[0].call<&Scale::doomed>(vec({3}), std::vector{chain[3], chain[2], chain[1]}).get();
    CHECK(list(y) == std::vector<float>{3 * 16});
    const Error e = error_of([&] { context.backward(y.sum()); });
    CHECK(e.kind() == ErrorKind::failed);
    CHECK_THAT(e.what(), Catch::Contains("bad gradient") && Catch::Contains("backward on w4 (") &&
                             Catch::Contains("Scale#"));
    CHECK_FALSE(chain[0].call<&Scale::gradient>().get().defined());
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a tensor of another context is refused by backward") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", vec({2}));
  Tensor y;
  {
    autograd::Context first(*cluster);
    y = a.call<&Scale::forward>(vec({3})).get();
  }
  autograd::Context second(*cluster);
  CHECK_THAT(error_of([&] { second.backward(y.sum()); }).what(), Catch::Contains("another autograd context"));
  CHECK_THAT(error_of([&] { autograd::backward(y.sum()); }).what(), Catch::Contains("autograd::Context"));
}

TEST_CASE("a shape mismatch inside a remote method names worker, actor, method and shapes") {
  auto cluster = Cluster::in_process(2, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", vec({2, 3, 4}));
  autograd::Context context(*cluster);
  const Error e = error_of([&] { a.call<&Scale::forward>(vec({1, 2})).get(); });
  CHECK(e.kind() == ErrorKind::invalid);
  CHECK_THAT(e.what(),
             Catch::Contains("[2]") && Catch::Contains("[3]") && Catch::Contains("Scale::forward on w1 ("));
}

TEST_CASE("500 steps leave nothing behind") {
  auto cluster = Cluster::in_process(3, hosting<Scale>());
  auto a = cluster->spawn<Scale>("w1", vec({2}));
  auto b = cluster->spawn<Scale>("w2", vec({5}));
  optim::Distributed<optim::SGD> optimizer({a, b}, {.lr = 0.0});
  for (int i = 0; i < 500; ++i) {
    autograd::Context step(*cluster);
    step.backward(b.call<&Scale::forward>(a.call<&Scale::forward>(vec({1}))).get().sum());
    optimizer.step(step);
    step.end().get();
  }
  nothing_left(*cluster);
}
