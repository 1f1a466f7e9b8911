// Parameters that change between forward and backward: an error that says where, or copy-on-write.
#include <catch2/catch.hpp>

#include "autograd/checkpoint.h"
#include "core/graph/copy_on_write.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using testing::nothing_left;

namespace {

Tensor leaf(double v) {
  Tensor t = full({1}, v, DType::float64);
  t.requires_grad_();
  return t;
}

struct Server : Actor {
  Server(double start, bool copies) : w(leaf(start)) {
    if (copies) optim::set_copy_on_write();
  }
  Tensor forward(Tensor x) { return ops::exp(ops::mul(ops::mul(x, w), w)); }
  Tensor again(Tensor x) {  // the same, computed a second time during the backward pass
    return autograd::checkpoint([this](const Tensor& t) { return forward(t); }, x);
  }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor value() { return w.detach().clone_data(); }
  Tensors parameters() override { return {w}; }
  Tensor w;
  static constexpr auto remote = methods<&Server::forward, &Server::again, &Server::gradient, &Server::value>;
};

// d/dw and d/dx of exp(x w^2)
double wanted_w(double x, double w) { return std::exp(x * w * w) * 2 * x * w; }
double wanted_x(double x, double w) { return std::exp(x * w * w) * w * w; }

}  // namespace

TEST_CASE("a parameter that was updated under a pass in flight is an error with worker, actor and operator") {
  auto cluster = Cluster::in_process(2, hosting<Server>());
  auto server = cluster->spawn<Server>("w1", 0.5, false);
  optim::Distributed<optim::SGD> optimizer({server}, {.lr = 0.1});
  autograd::Context context(*cluster);
  const Tensor x = leaf(1);
  Tensor first = server.call<&Server::forward>(x).get(), second = server.call<&Server::forward>(x).get();
  context.backward(first);
  optimizer.step(context);
  const Error e = error_of([&] { context.backward(second); });
  CHECK(e.kind() == ErrorKind::invalid);
  CHECK_THAT(e.what(), Catch::Contains("[mul] input 1") && Catch::Contains("the optimizer's step") &&
                           Catch::Contains("backward on w1 (") && Catch::Contains("Server#"));
  CHECK(context.grad(x).item() == Approx(wanted_x(1, 0.5)));  // the failed one has added nothing
}

TEST_CASE("copy-on-write: three trainers in flight get the gradients of the versions that they saw") {
  const bool recomputed = GENERATE(false, true);
  auto cluster = Cluster::in_process(2, hosting<Server>());
  auto server = cluster->spawn<Server>("w1", 0.5, true);
  constexpr double kRate = 0.125;
  optim::Distributed<optim::SGD> optimizer({server}, {.lr = kRate});
  double w = 0.5;
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<autograd::Context>> trainers;
    std::vector<double> versions;
    Tensors xs, ys;
    // Each goes forward, then one that is done updates, so each sees another version.
    for (int t = 0; t < 3; ++t) {
      trainers.push_back(std::make_unique<autograd::Context>(*cluster));
      xs.push_back(leaf(0.1 * (t + 1)));
      ys.push_back(
          (recomputed ? server.call<&Server::again>(xs.back()) : server.call<&Server::forward>(xs.back()))
              .get());
      versions.push_back(w);
      CHECK(ys.back().item() == Approx(std::exp(xs.back().item() * w * w)).epsilon(1e-14));
      autograd::Context step(*cluster);
      step.backward(server.call<&Server::forward>(leaf(0.3)).get());
      optimizer.step(step);
      w -= kRate * wanted_w(0.3, w);
      CHECK(server.call<&Server::value>().get().item() == Approx(w).epsilon(1e-14));
      step.end().get();
      w = server.call<&Server::value>().get().item();
    }
    for (int t : {1, 2, 0}) {
      const double x = xs[size_t(t)].item(), saw = versions[size_t(t)];
      autograd::Context& context = *trainers[size_t(t)];
      autograd::Context::Guard guard(context);
      context.backward(ys[size_t(t)]);
      CHECK(context.grad(xs[size_t(t)]).item() == Approx(wanted_x(x, saw)).epsilon(1e-14));
      CHECK(server.call<&Server::gradient>().get().item() == Approx(wanted_w(x, saw)).epsilon(1e-14));
      CHECK(server.call<&Server::gradient>().get().item() != Approx(wanted_w(x, w)).epsilon(1e-14));
    }
    CHECK(server.call<&Server::value>().get().item() == w);  // none of this changed the newest one
    while (!trainers.empty()) trainers.pop_back();           // innermost first
  }
  nothing_left(*cluster);
}

TEST_CASE(
    "copy-on-write copies only where somebody holds the old elements, and keeps derivatives of all orders") {
  Tensor w = leaf(3);
  optim::SGD optimizer({w}, {.lr = 1});
  const std::byte* before = w.bytes();
  internal::replace_if_held(w);
  CHECK(w.bytes() == before);
  optimizer.step({ones({1}, DType::float64)});
  Tensor loss = ops::mul(ops::mul(w, w), w).sum();  // at 2
  internal::replace_if_held(w);
  CHECK(w.bytes() != before);
  optimizer.step({ones({1}, DType::float64)});
  CHECK(w.item() == 1);
  const Tensor first = autograd::grad({loss}, {w}, {}, {.create_graph = true})[0];
  CHECK(first.item() == 12);  // 3 w^2 at 2
  CHECK(autograd::grad({first}, {w})[0].item() == 12);
  CHECK(error_of([&] { internal::replace_if_held(ops::mul(w, w)); }).kind() == ErrorKind::invalid);
  CHECK(error_of([&] { internal::replace_if_held(Tensor()); }).kind() == ErrorKind::invalid);
  CHECK_THAT(error_of([&] { optim::set_copy_on_write(); }).what(), Catch::Contains("of an actor"));
}
