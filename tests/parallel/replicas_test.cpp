// Replicas beside a remote part: gradients and training as of one model on the whole batch.
#include <catch2/catch.hpp>

#include "actors/worker/worker.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "tests/support/sim_cluster.h"
#include "troupe/replicas.h"

using namespace troupe;
using testing::SimCluster;

namespace {

constexpr auto kDouble = DType::float64;

Tensor numbers(const Shape& shape, int64_t first) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(double((i * 5 + first) % 7 - 3) / 4);
  return tensor(v, float64).reshape(shape);
}
Tensor leaf(Tensor t) {
  t.requires_grad_();
  return t;
}

struct Table : Actor {
  explicit Table(Tensor start) : w(leaf(start.detach().clone_data())) {}
  Tensor rows(Tensor ids) { return ops::embedding(ids, w); }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor value() { return w.detach(); }
  Tensors parameters() override { return {w}; }
  Tensor w;
  static constexpr auto remote = methods<&Table::rows, &Table::gradient, &Table::value>;
};

// The mean over its rows of ((table[ids] w) - y)^2; where y is one number, the sum of table[ids] w, y times.
Tensor loss_of(const Tensor& rows, const Tensor& w, const Tensor& y) {
  if (y.numel() == 1) return ops::mul(ops::sum(ops::matmul(rows, w)), y);
  const Tensor away = ops::sub(ops::matmul(rows, w), y);
  return ops::mean(ops::mul(away, away));
}

struct Trainer : Actor {
  Trainer(Tensor start, std::string group, std::vector<int64_t> workers)
      : w(leaf(start.detach().clone_data())),
        group(*frame().worker, {workers.begin(), workers.end()}, group) {}
  /// Forward and backward pass of its rows (none: it only takes part), then the mean, unless told not to. The
  /// gradients stay in its context until finish().
  Task<Tensor> train(RRef<Table> table, Tensor ids, Tensor y, bool average) {
    context = std::make_unique<autograd::Context>();
    const auto count = double(ids.numel());
    if (count > 0) {
      Tensor rows = co_await table.call<&Table::rows>(ids);
      co_await context->backward_async(loss_of(rows, w, y));
    }
    const Tensors leaves{w};  // g++ 12 takes no lists in a co_await
    if (average) co_await parallel::average_gradients(group, leaves, count);
    co_return context->grad(w);
  }
  Task<Tensor> table_gradient(RRef<Table> table) {
    autograd::Context::Guard guard(*context);
    co_return co_await table.call<&Table::gradient>();
  }
  /// A step of its own parameters, and of the table by `share` of it.
  Task<void> step(RRef<Table> table, double lr, double share) {
    {
      NoGradGuard guard;
      w = leaf(ops::sub(w, ops::mul(context->grad(w), lr)).detach());
    }
    if (share > 0) {
      optim::Distributed<optim::SGD> optimizer({table}, {.lr = lr * share});
      co_await optimizer.step_async(*context);
    }
    co_await context->end();
    context.reset();
  }
  void finish() { context.reset(); }
  Tensor value() { return w.detach(); }
  /// Of gradients that it is given.
  Task<Tensors> mean(std::vector<Tensor> gradients, double weight) {
    const autograd::Context own;
    Tensors leaves;
    for (const Tensor& g : gradients) {
      leaves.push_back(leaf(g.defined() ? zeros(g.shape(), kDouble) : zeros({2}, kDouble)));
      if (g.defined()) (void)autograd::exchange_context_gradient(leaves.back(), g);
    }
    co_await parallel::average_gradients(group, leaves, weight);
    Tensors means;
    for (const Tensor& l : leaves) means.push_back(autograd::context_gradient(l));
    co_return means;
  }
  Task<void> average() {
    const Tensors leaves{w};  // g++ 12 takes no lists in a co_await
    co_await parallel::average_gradients(group, leaves);
  }
  Tensors parameters() override { return {w}; }
  Tensor w;
  Group group;
  std::unique_ptr<autograd::Context> context;
  static constexpr auto remote =
      methods<&Trainer::train, &Trainer::table_gradient, &Trainer::step, &Trainer::finish, &Trainer::value,
              &Trainer::mean, &Trainer::average>;
};

// As docs/howto/data-parallel.md has it, but that one without rows skips its pass. In the caller's context.
struct Follower : Actor {
  explicit Follower(Tensor start) : w(leaf(start.detach().clone_data())), unused(leaf(ones({2}, kDouble))) {}
  Task<void> backward(Group group, Tensor x, Tensor y) {
    const auto rows = double(x.size(0));
    if (rows > 0) {
      const auto back = autograd::context_backward(loss_of(x, w, y));
      co_await back;
    }
    const Tensors leaves = parameters();
    co_await parallel::average_gradients(group, leaves, rows);
  }
  Tensors parameters() override { return {w, unused}; }
  Tensors values() { return {w.detach().clone_data(), unused.detach().clone_data()}; }
  Tensor w, unused;
  static constexpr auto remote = methods<&Follower::backward, &Follower::values>;
};

struct Model {
  Tensor table = leaf(numbers({6, 3}, 1)), w = leaf(numbers({3, 2}, 4));
};

void close(const Tensor& got, const Tensor& want) {
  REQUIRE(got.defined());
  const auto a = got.to_vector<double>(), b = want.to_vector<double>();
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).epsilon(1e-9).margin(1e-12));
}

}  // namespace

TEST_CASE("replicas with even, uneven and no rows have the gradients of one model on the whole batch") {
  const auto cut = GENERATE(std::vector<int64_t>{0, 3, 6, 9}, std::vector<int64_t>{0, 1, 3, 9},
                            std::vector<int64_t>{0, 5, 9, 9});
  auto cluster = Cluster::in_process(5, hosting<Table, Trainer>());
  const Tensor ids = tensor({0, 3, 3, 5, 1, 2, 5, 0, 4}), y = numbers({9, 2}, 2);
  Model local;
  autograd::backward(loss_of(ops::embedding(ids, local.table), local.w, y));
  auto table = cluster->spawn<Table>("w4", local.table.detach());
  std::vector<RRef<Trainer>> trainers;
  std::vector<Future<Tensor>> got;
  for (size_t i = 0; i < 3; ++i) {
    trainers.push_back(
        cluster->spawn<Trainer>(i + 1, local.w.detach(), "dense", std::vector<int64_t>{1, 2, 3}));
    got.push_back(trainers[i].call<&Trainer::train>(table, ops::slice(ids, 0, cut[i], cut[i + 1]),
                                                    ops::slice(y, 0, cut[i], cut[i + 1]), true));
  }
  for (auto& g : got) {
    close(g.get(), local.w.grad());
    CHECK(bit_equal(g.get(), got[0].get()));
  }
  Tensor sum = zeros({6, 3}, kDouble);  // each context has its part of the table's
  for (size_t i = 0; i < 3; ++i) {
    const Tensor part = trainers[i].call<&Trainer::table_gradient>(table).get();
    if (part.defined()) sum = ops::add(sum, ops::mul(part, double(cut[i + 1] - cut[i]) / 9));
    trainers[i].call<&Trainer::finish>().get();
  }
  close(sum, local.table.grad());
}

TEST_CASE("replicas that have no rows and skip their pass step as the others do") {
  auto cluster = Cluster::in_process(4, hosting<Follower>());
  Tensor local = leaf(numbers({3, 2}, 4));
  std::vector<RRef<Follower>> all;
  for (size_t i = 1; i <= 3; ++i) all.push_back(cluster->spawn<Follower>(i / 2 + 1, local.detach()));
  const Group group(all);  // two of them on one worker
  optim::Distributed<optim::SGD> optimizer({all.begin(), all.end()}, {.lr = 0.1, .momentum = 0.9});
  for (const std::vector<int64_t>& cut : {std::vector<int64_t>{0, 2, 4, 6}, {0, 0, 1, 1}, {0, 0, 0, 2}}) {
    const Tensor x = numbers({cut[3], 3}, 1), y = numbers({cut[3], 2}, 2);
    {
      autograd::Context step(*cluster);
      std::vector<Future<void>> done;
      for (size_t i = 0; i < 3; ++i)
        done.push_back(all[i].call<&Follower::backward>(group, ops::slice(x, 0, cut[i], cut[i + 1]),
                                                        ops::slice(y, 0, cut[i], cut[i + 1])));
      for (auto& d : done) d.get();
      CHECK(optimizer.try_step(step).get().updated() == 3);  // of each replica w, and not the other
    }
    testing::nothing_left(*cluster);
    const Tensors first = all[0].call<&Follower::values>().get();
    for (size_t i = 1; i < 3; ++i) CHECK(bit_equal(all[i].call<&Follower::values>().get()[0], first[0]));
    CHECK(bit_equal(first[1], ones({2}, kDouble)));
  }
  optim::SGD same({local}, {.lr = 0.1, .momentum = 0.9});
  for (const int64_t rows : {6, 1, 2}) {
    local.set_grad({});
    autograd::backward(loss_of(numbers({rows, 3}, 1), local, numbers({rows, 2}, 2)));
    same.step();
  }
  close(all[0].call<&Follower::values>().get()[0], local.detach());
}

TEST_CASE("an average of gradients outside a context says what to write") {
  auto cluster = Cluster::in_process(2, hosting<Table, Trainer>());
  const auto trainer = cluster->spawn<Trainer>("w1", numbers({3, 2}, 4), "dense", std::vector<int64_t>{1});
  CHECK(testing::error_of([&] { trainer.call<&Trainer::average>().get(); }).message() ==
        "[average_gradients] it averages the gradients of a context, and this method was called outside of "
        "one: call "
        "it between "
        "step.backward(loss) and optimizer.step(step), where autograd::Context step(cluster) is alive");
}

TEST_CASE("replicas whose inputs are each other's opposites: their mean is zero, the remote part's is not") {
  const bool average = GENERATE(false, true);
  auto cluster = Cluster::in_process(6, hosting<Table, Trainer>());
  auto table = cluster->spawn<Table>("w5", numbers({6, 3}, 1));
  std::vector<Future<Tensor>> got;
  std::vector<RRef<Trainer>> trainers;
  const Tensor w = numbers({3, 2}, 4), none = zeros({3, 2}, kDouble);
  for (int64_t i = 0; i < 4; ++i) {
    const Tensor ids = tensor({i / 2, 3, 5}, int64);  // the same in pairs, with opposite losses
    trainers.push_back(cluster->spawn<Trainer>(i + 1, w, "pairs", std::vector<int64_t>{1, 2, 3, 4}));
    got.push_back(
        trainers.back().call<&Trainer::train>(table, ids, tensor(i % 2 ? -1 : 1, kDouble), average));
  }
  for (auto& g : got) CHECK(bit_equal(g.get(), none) == average);
  for (auto& t : trainers) {
    const Tensor of_table = t.call<&Trainer::table_gradient>(table).get();
    REQUIRE(of_table.defined());
    CHECK_FALSE(bit_equal(of_table, zeros({6, 3}, kDouble)));
    t.call<&Trainer::finish>().get();
  }
}

TEST_CASE("a hundred epochs with a table on another worker follow the training of one model") {
  auto cluster = Cluster::in_process(4, hosting<Table, Trainer>());
  constexpr int kEpochs = 100, kBatches = 10;
  constexpr double kRate = 0.05;
  Model local;
  auto table = cluster->spawn<Table>("w3", local.table.detach());
  std::vector<RRef<Trainer>> trainers;
  for (int64_t i = 1; i <= 2; ++i)
    trainers.push_back(cluster->spawn<Trainer>(i, local.w.detach(), "dense", std::vector<int64_t>{1, 2}));
  double first = 0, last = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    double loss = 0;
    for (int batch = 0; batch < kBatches; ++batch) {
      std::vector<int64_t> picked;
      for (int i = 0; i < 4; ++i) picked.push_back((batch * 3 + i * i) % 6);
      const Tensor ids = tensor(picked), y = numbers({4, 2}, batch);
      const std::vector<int64_t> cut =
          batch % 2 ? std::vector<int64_t>{0, 2, 4} : std::vector<int64_t>{0, 1, 4};
      {
        const Tensor value = loss_of(ops::embedding(ids, local.table), local.w, y);
        loss += value.item();
        local.table.set_grad({}), local.w.set_grad({});
        autograd::backward(value);
        NoGradGuard guard;
        for (Tensor* t : {&local.table, &local.w})
          *t = leaf(ops::sub(*t, ops::mul(t->grad(), kRate)).detach());
      }
      std::vector<Future<Tensor>> passes;
      for (size_t i = 0; i < 2; ++i)
        passes.push_back(trainers[i].call<&Trainer::train>(table, ops::slice(ids, 0, cut[i], cut[i + 1]),
                                                           ops::slice(y, 0, cut[i], cut[i + 1]), true));
      for (auto& p : passes) p.get();
      std::vector<Future<void>> steps;
      for (size_t i = 0; i < 2; ++i)
        steps.push_back(trainers[i].call<&Trainer::step>(table, kRate, double(cut[i + 1] - cut[i]) / 4));
      for (auto& s : steps) s.get();
    }
    (epoch ? last : first) = loss;
  }
  CHECK(last < 0.7 * first);
  close(trainers[0].call<&Trainer::value>().get(), local.w.detach());
  CHECK(bit_equal(trainers[0].call<&Trainer::value>().get(), trainers[1].call<&Trainer::value>().get()));
  close(table.call<&Table::value>().get(), local.table.detach());
}

TEST_CASE(
    "a lost replica is named to those that wait for it, and different tensors and weights are refused") {
  SimCluster cluster(1, 4, hosting<Table, Trainer>());
  cluster.network().set_faults({.delay = std::chrono::milliseconds(1)});
  const Tensor one = ones({2}, kDouble);
  std::vector<RRef<Trainer>> trainers;
  for (size_t i = 1; i <= 3; ++i)
    trainers.push_back(
        cluster.spawn<Trainer>(0, i, one, std::string("three"), std::vector<int64_t>{1, 2, 3}));
  const auto all = [&](std::vector<std::vector<Tensor>> tensors, std::vector<double> weights) {
    std::vector<Future<Tensors>> means;
    for (size_t i = 0; i < 3; ++i) means.push_back(trainers[i].call<&Trainer::mean>(tensors[i], weights[i]));
    std::vector<Result<Tensors>> out;
    for (auto& m : means) out.push_back(cluster.await(m));
    return out;
  };
  for (const auto& r : all({{one, {}}, {ops::mul(one, 4.0), {}}, {{}, {}}}, {1, 2, 3})) {
    REQUIRE(r.ok());
    CHECK(r.value()[0].to_vector<double>() == std::vector<double>{1.5, 1.5});
    CHECK_FALSE(r.value()[1].defined());
  }
  const auto refused = [&](const std::vector<Result<Tensors>>& results, const std::string& why) {
    for (const auto& r : results) {
      REQUIRE_FALSE(r.ok());
      CHECK(r.error().kind() == ErrorKind::invalid);
      CHECK_THAT(r.error().what(), Catch::Contains(why));
    }
  };
  for (const auto& r : all({{one}, {full({2}, std::nan(""), kDouble)}, {ops::mul(one, 3.0)}}, {1, 0, 1}))
    CHECK(r.value()[0].to_vector<double>() == std::vector<double>{2, 2});
  refused(all({{one}, {one}, {one, one}}, {1, 1, 1}), "ranks brought different shapes");
  refused(all({{one}, {zeros({3}, kDouble)}, {one}}, {1, 1, 1}), "float64 [3]");
  refused(all({{one}, {one}, {one}}, {0, 0, 0}), "the weights add up to 0");
  const auto first = trainers[0].call<&Trainer::mean>(std::vector{one}, 1.0),
             second = trainers[1].call<&Trainer::mean>(std::vector{one}, 1.0);
  cluster.network().schedule(std::chrono::milliseconds(20), [&] { cluster.network().crash("w3"); });
  for (const auto& r : {cluster.await(first), cluster.await(second)}) {
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().kind() == ErrorKind::disconnected);
    CHECK(r.error().worker() == "w3");
  }
  trainers.clear();
  cluster.settle();
}
