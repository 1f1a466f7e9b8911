// Contexts and passes that actors start themselves; roots on other workers; who takes part in a context.
#include <catch2/catch.hpp>

#include "actors/worker/worker.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using testing::nothing_left;

namespace {

Tensor leaf(float v) {
  Tensor t = tensor({v});
  t.requires_grad_();
  return t;
}

// Holds the parameter that trainers share, and says which contexts are alive where it is.
struct Server : Actor {
  explicit Server(double start) : w(full({1}, start)) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return ops::mul(x, w); }
  Tensor gradient() { return autograd::context_gradient(w); }
  int64_t live() { return frame().worker->metrics()["contexts"]; }
  // A loss that stays here: who wants its gradient asks for it.
  void keep_loss(Tensor x) { loss = ops::mul(ops::mul(x, w), w); }
  Task<void> backward() { co_await autograd::context_backward(loss); }
  Task<void> backward_of(Remote<Tensor> root) {
    Tensor value = co_await root.to_here();
    co_await autograd::context_backward(value);
  }
  // Whether the context keeps the gradient that it is given, and no copy of it.
  Task<bool> gives_gradient(bool keeps) {
    Tensors given{full({1}, 2.0)};
    const Tensor kept = keeps ? given[0] : Tensor();
    const float* const at = given[0].data<float>();
    co_await autograd::context_backward({w}, std::move(given));
    const Tensor has = autograd::context_gradient(w);
    co_return has.data<float>() == at;
  }
  Task<void> backward_empty() { co_await autograd::context_backward(Tensor()); }
  Task<std::string> blocking() {
    std::string text;
    try {
      autograd::Context context;
      context.backward(leaf(1));
    } catch (const Error& e) {
      text = e.what();
    }
    co_return text;
  }
  Tensor w, loss;
  static constexpr auto remote =
      methods<&Server::forward, &Server::gradient, &Server::live, &Server::keep_loss, &Server::backward,
              &Server::backward_of, &Server::backward_empty, &Server::blocking, &Server::gives_gradient>;
};

// Makes its own contexts: one per step, kept open until `close`.
struct Trainer : Actor {
  // The gradients of (x v) w, of v and of w.
  Task<Tensors> step(RRef<Server> server, Tensor x) {
    context = std::make_unique<autograd::Context>();
    id = context->id();
    Tensor y = co_await server.call<&Server::forward>(ops::mul(x, v));
    co_await context->backward_async(y);
    Tensors out{context->grad(v)};
    out.push_back(co_await server.call<&Server::gradient>());
    co_return out;
  }
  Task<Tensor> gradient_again(RRef<Server> server) {  // in the context that is still open
    autograd::Context::Guard guard(*context);
    co_return co_await server.call<&Server::gradient>();
  }
  void close() { context.reset(); }
  int64_t context_id() { return static_cast<int64_t>(id); }
  Tensor v = leaf(2);
  std::unique_ptr<autograd::Context> context;
  uint64_t id = 0;
  static constexpr auto remote =
      methods<&Trainer::step, &Trainer::gradient_again, &Trainer::close, &Trainer::context_id>;
};

}  // namespace

TEST_CASE("three trainers at once: the owner of the parameters has three contexts with the right gradients") {
  auto cluster = Cluster::in_process(5, hosting<Server, Trainer>());
  auto server = cluster->spawn<Server>("w1", 3);
  std::vector<RRef<Trainer>> trainers;
  for (const char* on : {"w2", "w3", "w4"}) trainers.push_back(cluster->spawn<Trainer>(on));
  std::vector<Future<Tensors>> steps;
  for (size_t i = 0; i < 3; ++i)
    steps.push_back(trainers[i].call<&Trainer::step>(server, full({1}, double(i + 1))));
  for (size_t i = 0; i < 3; ++i) {
    const Tensors got = steps[i].get();
    CHECK(got[0].item() == double(i + 1) * 3);
    CHECK(got[1].item() == double(i + 1) * 2);
  }
  CHECK(server.call<&Server::live>().get() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(trainers[i].call<&Trainer::gradient_again>(server).get().item() == double(i + 1) * 2);
    CHECK(trainers[i].call<&Trainer::context_id>().get() >> 40 == int64_t(i + 2));
  }
  for (auto& t : trainers) t.call<&Trainer::close>().get();
  nothing_left(*cluster);
}

TEST_CASE("the owner of a root starts the pass in the caller's context") {
  auto cluster = Cluster::in_process(3, hosting<Server>());
  auto a = cluster->spawn<Server>("w1", 3), b = cluster->spawn<Server>("w2", 5);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(2);
    b.call<&Server::keep_loss>(a.call<&Server::forward>(x)).get();  // x wa wb^2
    b.call<&Server::backward>().get();
    CHECK(context.grad(x).item() == 75);
    CHECK(a.call<&Server::gradient>().get().item() == 50);
    CHECK(b.call<&Server::gradient>().get().item() == 2 * 3 * 2 * 5);
    // Beside a pass of our own, which adds.
    b.call<&Server::keep_loss>(a.call<&Server::forward>(x)).get();
    auto there = b.call<&Server::backward>();
    context.backward(a.call<&Server::forward>(x).get());
    there.get();
    CHECK(context.grad(x).item() == 2 * 75 + 3);
    CHECK(a.call<&Server::gradient>().get().item() == 2 * 50 + 2);
    // The errors of backward arrive, with the method that had them.
    CHECK_THAT(error_of([&] { b.call<&Server::backward>().get(); }).what(), Catch::Contains("retain_graph"));
    const Error empty = error_of([&] { b.call<&Server::backward_empty>().get(); });
    CHECK_THAT(empty.what(),
               Catch::Contains("is undefined") && Catch::Contains("Server::backward_empty on w2 ("));
    CHECK(context.grad(x).item() == 2 * 75 + 3);
    context.end().get();
  }
  CHECK_THAT(error_of([&] { b.call<&Server::backward>().get(); }).what(),
             Catch::Contains("no context is active here"));
  CHECK_THAT(a.call<&Server::blocking>().get(), Catch::Contains("Context::backward"));
  {
    NoGradGuard guard;
    b.call<&Server::keep_loss>(ones({1})).get();  // lets go of the graph
  }
  nothing_left(*cluster);
}

TEST_CASE("a reference to a value is a root: at its owner, for its user, and for a third worker") {
  auto cluster = Cluster::in_process(4, hosting<Server>());
  auto a = cluster->spawn<Server>("w1", 3), b = cluster->spawn<Server>("w2", 5),
       c = cluster->spawn<Server>("w3", 7);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(2);
    const auto root = [&] { return b.remote<&Server::forward>(a.call<&Server::forward>(x).get()); };
    context.backward(root().to_here().get());  // a user
    CHECK(context.grad(x).item() == 15);
    b.call<&Server::backward_of>(root()).get();  // the owner
    CHECK(context.grad(x).item() == 30);
    c.call<&Server::backward_of>(root()).get();  // somebody else
    CHECK(context.grad(x).item() == 45);
    CHECK(a.call<&Server::gradient>().get().item() == 3 * 10);
    CHECK(b.call<&Server::gradient>().get().item() == 3 * 6);
    const auto once = root();
    context.backward(once.to_here().get());
    CHECK_THAT(error_of([&] { c.call<&Server::backward_of>(once).get(); }).what(),
               Catch::Contains("retain_graph"));
    NoGradGuard guard;
    const auto without = root();
    CHECK_THAT(error_of([&] { context.backward(without.to_here().get()); }).what(),
               Catch::Contains("needs no gradient"));
    context.end().get();
  }
}

TEST_CASE("a context lists the workers that it was taken to, with and without gradients") {
  auto cluster = Cluster::in_process(5, hosting<Server, Trainer>());
  auto here = cluster->spawn<Server>("w0", 3), a = cluster->spawn<Server>("w1", 3),
       b = cluster->spawn<Server>("w3", 5);
  autograd::Context context(*cluster);
  using Names = std::vector<std::string>;
  CHECK(context.workers() == Names{});
  b.call<&Server::live>().get();  // no tensor at all
  CHECK(context.workers() == Names{"w3"});
  here.call<&Server::forward>(leaf(1)).get();
  CHECK(context.workers() == Names{"w3"});  // not this one itself
  {
    NoGradGuard guard;
    a.call<&Server::forward>(leaf(1)).get();
  }
  a.call<&Server::forward>(leaf(1)).get();
  CHECK(context.workers() == Names{"w1", "w3"});
  {
    autograd::Context inner(*cluster);
    CHECK(inner.workers() == Names{});
  }
  context.end().get();
  CHECK(error_of([&] { (void)context.workers(); }).kind() == ErrorKind::invalid);
}

namespace {

/// Trains itself, whoever calls.
struct Learner : Actor {
  double learn() {
    const Tensor loss = ops::mul(w, w).sum();
    autograd::backward(loss);
    NoGradGuard off;
    w.sub_(ops::mul(w.grad(), 0.25));
    w.set_grad({});
    return w.item();
  }
  double learn_anyway() {
    EnableGradGuard on;
    return learn();
  }
  Task<double> learn_later(RRef<Learner> other) {
    EnableGradGuard on;
    (void)co_await other.call<&Learner::number>();
    co_return learn();
  }
  double number() { return grad_enabled() ? 1 : 0; }
  Tensor with_history() {
    EnableGradGuard on;
    return ops::mul(w, w);
  }
  Tensor w = full({1}, 64.0).requires_grad_();
  static constexpr auto remote = methods<&Learner::learn, &Learner::learn_anyway, &Learner::learn_later,
                                         &Learner::number, &Learner::with_history>;
};

}  // namespace

TEST_CASE("a method that trains its actor is told that the caller's grad mode came with the call") {
  auto cluster = Cluster::in_process(2, hosting<Learner>());
  for (const char* where : {"w0", "w1"}) {
    auto a = cluster->spawn<Learner>(where), b = cluster->spawn<Learner>("w1");
    double want = 64;
    const auto halves = [&](double got) { CHECK(got == (want /= 2)); };
    halves(a.call<&Learner::learn>().get());
    for (const bool in_context : {false, true}) {
      std::optional<autograd::Context> context;
      if (in_context) context.emplace(*cluster);
      NoGradGuard off;
      const std::string text = error_of([&] { a.call<&Learner::learn>().get(); }).what();
      CHECK_THAT(text,
                 Catch::Contains("[backward] the tensor (float32 []) needs no gradient: grad mode is off "
                                 "in Learner::learn on " +
                                 std::string(where)));
      CHECK_THAT(text, Catch::Contains("it came with the call from w0, which was made under a NoGradGuard") &&
                           Catch::Contains("opens an EnableGradGuard"));
      halves(a.call<&Learner::learn_anyway>().get());
      halves(a.call<&Learner::learn_later>(b).get());
      CHECK(a.call<&Learner::number>().get() == 0);  // it travels on, and no guard of a method stays behind
      CHECK_FALSE(a.call<&Learner::with_history>().get().requires_grad());
    }
    halves(a.call<&Learner::learn>().get());
  }
  auto here = cluster->spawn<Learner>("w0");
  CHECK_THAT(error_of([&] { here.local([](Learner& l) { return l.learn(); }).get(); }).what(),
             Catch::Contains("in a function that local() runs"));
  CHECK(here.local([](Learner& l) { return l.learn_anyway(); }).get() == 32);
}

TEST_CASE("a context takes over a gradient that nobody else has, and copies others") {
  auto cluster = Cluster::in_process(2, hosting<Server>());
  auto server = cluster->spawn<Server>("w1", 3.0);
  for (const bool keeps : {false, true}) {
    autograd::Context context(*cluster);
    CHECK(server.call<&Server::gives_gradient>(keeps).get() != keeps);
    CHECK(server.call<&Server::gradient>().get().item() == 2);
  }
}
