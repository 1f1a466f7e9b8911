// Small programs of the kinds that people write: parameter servers that wait for all trainers, micro-batches.
#include <catch2/catch.hpp>

#include <thread>

#include "core/memory/storage.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

// Waits for a gradient from every trainer, makes one step with their mean, and answers all with the model.
struct Server : Actor {
  Server(int64_t trainers, double lr) : trainers(trainers), lr(lr), model(zeros({2}, DType::float64)) {}
  Task<Tensor> update(Tensor gradient) {
    sum = sum.defined() ? ops::add(sum, gradient) : gradient;
    if (++arrived < trainers) co_return co_await round.future();
    ++rounds;
    model = ops::sub(model, ops::mul(sum, full({2}, lr / double(trainers), DType::float64)));
    arrived = 0, sum = {};
    std::exchange(round, {}).set(model);
    co_return model;
  }
  Tensor current() { return model; }
  int64_t steps() { return rounds; }
  int64_t trainers, arrived = 0, rounds = 0;
  double lr;
  Tensor model, sum;
  Promise<Tensor> round;
  static constexpr auto remote = methods<&Server::update, &Server::current, &Server::steps>;
};

// Pulls the model to its own target: the gradient of (w - target)^2 / 2.
struct Trainer : Actor {
  explicit Trainer(double target) : target(full({2}, target, DType::float64)) {}
  Task<std::vector<Tensor>> train(RRef<Server> server, int64_t batches) {
    std::vector<Tensor> models;
    Tensor w = co_await server.call<&Server::current>();
    for (int64_t i = 0; i < batches; ++i) {
      Tensor leaf = w.clone_data();
      leaf.requires_grad_();
      Tensor away = ops::sub(leaf, target);
      autograd::backward(ops::mul(ops::mul(away, away), full({2}, 0.5, DType::float64)).sum());
      w = co_await server.call<&Server::update>(leaf.grad());
      models.push_back(w);
    }
    co_return models;
  }
  Tensor target;
  static constexpr auto remote = methods<&Trainer::train>;
};

struct Stage : Actor {
  explicit Stage(double first) : w(tensor({{float(first), 1}, {-2, 3}})) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return ops::relu(ops::matmul(x, w)); }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensors parameters() override { return {w}; }
  Tensor w;
  static constexpr auto remote = methods<&Stage::forward, &Stage::gradient>;
};

// The sum of what two stages make of a batch that goes through them in pieces, all at once.
Tensor in_pieces(const RRef<Stage>& first, const RRef<Stage>& second, const Tensor& batch, int64_t pieces) {
  std::vector<Future<Tensor>> results;
  const int64_t rows = batch.shape()[0] / pieces;
  for (int64_t i = 0; i < pieces; ++i)
    results.push_back(second.call<&Stage::forward>(
        first.call<&Stage::forward>(ops::slice(batch, 0, i * rows, (i + 1) * rows))));
  Tensor loss = tensor(0.0);
  for (auto& r : results) loss = ops::add(loss, r.get().sum());
  return loss;
}

}  // namespace

TEST_CASE("a server answers three trainers once all their gradients are there, in every round") {
  auto cluster = Cluster::in_process(4, hosting<Server, Trainer>());
  auto server = cluster->spawn<Server>("w0", 3, 0.5);
  std::vector<Future<std::vector<Tensor>>> runs;
  for (int i = 1; i <= 3; ++i)
    runs.push_back(cluster->spawn<Trainer>("w" + std::to_string(i), 2 * i).call<&Trainer::train>(server, 4));
  std::vector<std::vector<Tensor>> models;
  for (auto& run : runs) models.push_back(run.get());
  CHECK(server.call<&Server::steps>().get() == 4);
  double want = 0;
  for (size_t batch = 0; batch < 4; ++batch) {
    want -= 0.5 * (want - 4);  // 4: the mean of the targets
    for (const auto& seen : models) {
      REQUIRE(seen.size() == 4);
      CHECK(bit_equal(seen[batch], models[0][batch]));
      CHECK(seen[batch].to_vector<double>()[0] == Approx(want));
    }
  }
}

TEST_CASE("a model that is averaged over trainers for ten iterations comes near the mean of their targets") {
  auto cluster = Cluster::in_process(3, hosting<Server, Trainer>());
  auto server = cluster->spawn<Server>("w2", 2, 0.5);
  auto a = cluster->spawn<Trainer>("w0", 1), b = cluster->spawn<Trainer>("w1", 5);
  auto one = a.call<&Trainer::train>(server, 10), other = b.call<&Trainer::train>(server, 10);
  one.get(), other.get();
  CHECK(server.call<&Server::steps>().get() == 10);
  CHECK(server.call<&Server::current>().get().to_vector<double>()[1] == Approx(3 - 3.0 / 1024));
}

TEST_CASE("two remote stages give the same gradients for a batch in one, two and four pieces") {
  auto cluster = Cluster::in_process(3, hosting<Stage>());
  auto first = cluster->spawn<Stage>("w1", 1), second = cluster->spawn<Stage>("w2", 2);
  std::vector<float> elements;
  for (int i = 0; i < 16; ++i) elements.push_back(float(i % 5 - 1));  // integers: sums are exact in any order
  const Tensor batch = tensor(elements).reshape({8, 2});
  std::vector<Tensor> of_first, of_second;
  for (int64_t pieces : {1, 2, 4}) {
    autograd::Context context(*cluster);
    context.backward(in_pieces(first, second, batch, pieces));
    of_first.push_back(first.call<&Stage::gradient>().get().clone_data());
    of_second.push_back(second.call<&Stage::gradient>().get().clone_data());
    CHECK_FALSE(bit_equal(of_first.back(), zeros({2, 2})));
    CHECK(bit_equal(of_first.back(), of_first[0]));
    CHECK(bit_equal(of_second.back(), of_second[0]));
  }
}

TEST_CASE("a thousand steps of two remote stages with micro-batches keep no memory") {
  auto cluster = Cluster::in_process(3, hosting<Stage>());
  auto first = cluster->spawn<Stage>("w1", 1), second = cluster->spawn<Stage>("w2", 2);
  optim::Distributed<optim::SGD> optimizer({first, second}, {.lr = 1e-6});
  const Tensor batch = ones({16, 2});
  const auto steps = [&](int n) {
    for (int i = 0; i < n; ++i) {
      autograd::Context context(*cluster);
      context.backward(in_pieces(first, second, batch, 4));
      optimizer.step(context);
      context.end().get();
    }
    testing::nothing_left(*cluster);
    return allocator_stats().in_use;
  };
  const size_t early = steps(10);
  CHECK(steps(990) < early + (1 << 20));
  while (allocator_stats().in_use > early) std::this_thread::yield();  // a leak hangs
}
