// Distributed optimizers: parameters without gradients, errors of some actors, several clients at once.
#include <catch2/catch.hpp>

#include <algorithm>
#include <thread>

#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;

namespace {

struct Model : Actor {
  Model(int64_t size, bool floating)
      : used(Tensor::full({size}, 1)), idle(floating ? Tensor::full({2}, 0.3) : Tensor::of<int64_t>({1})) {
    used.set_requires_grad();
    if (floating) idle.set_requires_grad();
  }
  Tensor forward(Tensor x) { return ops::add(x, used); }  // gradient 1 for all elements
  std::vector<Tensor> values() { return {used.detach().clone_data(), idle.detach().clone_data()}; }
  Tensors parameters() override { return {used, idle}; }
  Tensor used, idle;
  static constexpr auto remote =
      methods<Model, int64_t, bool>("forward", &Model::forward, "values", &Model::values);
};

template <class O>
void leaves_alone(typename O::Options options) {
  INFO(O::kName);
  auto cluster = Cluster::in_process(3, hosting<Model>());
  auto a = cluster->spawn<Model>("w1", 2, true), b = cluster->spawn<Model>("w2", 2, true);
  const auto before = a.call<&Model::values>().get();
  optim::Distributed<O> optimizer({a, b}, options);
  for (int step = 1; step <= 3; ++step) {
    autograd::Context context(*cluster);
    context.backward(a.call<&Model::forward>(Tensor::of<float>({1, 2})).get().sum());
    optimizer.step(context);
  }
  const auto after = a.call<&Model::values>().get(), other = b.call<&Model::values>().get();
  CHECK_FALSE(bit_equal(after[0], before[0]));
  CHECK(bit_equal(after[1], before[1]));
  CHECK(bit_equal(other[0], before[0]));  // no call to this actor
  CHECK(bit_equal(other[1], before[1]));
}

}  // namespace

TEST_CASE("a distributed step leaves parameters and actors without gradients alone") {
  leaves_alone<optim::SGD>({.lr = 0.1});
  leaves_alone<optim::SGD>({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1});
  leaves_alone<optim::Adam>({.lr = 0.1});
  leaves_alone<optim::AdamW>({.lr = 0.1, .weight_decay = 0.1});
}

TEST_CASE("an optimizer that an actor cannot have is told by the step, and the other actors step") {
  auto cluster = Cluster::in_process(3, hosting<Model>());
  auto good = cluster->spawn<Model>("w1", 2, true), bad = cluster->spawn<Model>("w2", 2, false);
  optim::Distributed<optim::SGD> optimizer({bad, good}, {.lr = 0.25});
  for (int step = 1; step <= 3; ++step) {
    autograd::Context context(*cluster);
    const Tensor x = Tensor::of<float>({1, 2});
    context.backward(ops::add(good.call<&Model::forward>(x).get(), bad.call<&Model::forward>(x).get()).sum());
    const Error e = error_of([&] { optimizer.step(context); });
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.what(), Catch::Contains(step == 1 ? "int64 [1]: not floating" : "has no such optimizer") &&
                             Catch::Contains("on w2 ("));
    CHECK(good.call<&Model::values>().get()[0].to_vector<float>() ==
          std::vector<float>(2, 1 - 0.25f * float(step)));
    CHECK(bad.call<&Model::values>().get()[0].to_vector<float>() == std::vector<float>{1, 1});
  }
}

TEST_CASE("steps of four clients on the same parameters come one after the other") {
  constexpr int kClients = 4, kSteps = 50, kSize = 20'000;
  auto cluster = Cluster::in_process(3, hosting<Model>());
  auto a = cluster->spawn<Model>("w1", kSize, true), b = cluster->spawn<Model>("w2", kSize, true);
  const Tensor x = Tensor::full({kSize}, 0);
  std::vector<std::thread> clients;
  std::atomic<int> whole{0};
  for (int c = 0; c < kClients; ++c)
    clients.emplace_back([&] {
      optim::Distributed<optim::SGD> optimizer({a, b}, {.lr = 1.0 / 1024});
      for (int i = 0; i < kSteps; ++i) {
        autograd::Context context(*cluster);
        Tensor y = b.call<&Model::forward>(a.call<&Model::forward>(x)).get();
        const auto values = y.to_vector<float>();  // each parameter as some number of whole steps left it
        whole += std::all_of(values.begin(), values.end(), [&](float v) { return v == values[0]; });
        context.backward(y.sum());
        optimizer.step(context);
        context.end().get();
      }
    });
  for (auto& c : clients) c.join();
  CHECK(whole == kClients * kSteps);
  const float end = 1 - float(kClients * kSteps) / 1024;  // exact: no step was lost
  for (const auto& model : {a, b})
    CHECK(model.call<&Model::values>().get()[0].to_vector<float>() == std::vector<float>(kSize, end));
}
