// Trainers of servers that are called in one context of a driver: each pushes what its own pulls received.
#include <catch2/catch.hpp>
#include <latch>
#include <optional>

#include "autograd/hooks.h"
#include "parallel/server/served_gradients.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "troupe/server.h"

using namespace troupe;
using namespace troupe::parallel;
using Catch::Contains;
using testing::difference;
using testing::error_of;

namespace {

constexpr double kRate = 0.5;

Tensor rows(int64_t n, double start) { return ops::sin(arange(3 * n).to(float32) + start).reshape({n, 3}); }

// The gradient of its loss, the mean over its rows, is that of the values times 1: the mean row.
struct Trainer : Actor {
  Trainer(Served served, ServedTable table) : values(served), words(table) {}
  Task<Tensor> loss(Tensor x) {
    const auto pulled = values.pull();
    const Tensors w = co_await pulled;
    const Tensor ids = tensor({0, 1, 1});
    const auto asked = words.pull(ids);
    const Tensor e = co_await asked;
    co_return ops::mean(ops::matmul(x, w[0])) + ops::sum(e) * ops::mean(x) + ops::sum(w[1]) * 2;
  }
  Task<void> push(double weight) {
    const auto first = values.push_context(weight);
    (void)co_await first;
    const auto second = words.push_context(weight);
    (void)co_await second;
  }
  Client values;
  TableClient words;
  static constexpr auto remote = methods<&Trainer::loss, &Trainer::push>;
};

struct Gate : Actor {
  Tensor forward(Tensor x) {
    Tensor y = x * 1;
    autograd::register_hook(y, [](const Tensor&) {
      began->count_down();
      go_on->wait();
      return Tensor();
    }).keep();
    return y;
  }
  static inline std::optional<std::latch> began, go_on;
  static constexpr auto remote = methods<&Gate::forward>;
};

ServerOptions options(const char* pull, const char* push, int64_t trainers) {
  return {.optimizer = "sgd",
          .options = {{"lr", kRate}},
          .trainers = trainers,
          .pull = Compression::parse(pull),
          .push = Compression::parse(push)};
}

}  // namespace

TEST_CASE("of one context several trainers push each what its own pulls received, however it travels") {
  const std::vector<std::pair<const char*, const char*>> ways{
      {"none", "none"}, {"bf16", "none"}, {"none", "fp16"}, {"fp16", "bf16"}};
  for (const auto& [pull, push] : ways)
    for (const int64_t n : {1, 2, 4}) {
      INFO(pull << ", " << push << ", trainers: " << n);
      const auto cluster = Cluster::in_process(3, hosting<Trainer>());
      const Tensors start{ones({3, 2}), ones({2})};
      const Served served =
          serve(cluster->here(), {"w1", "w2"}, start, options(pull, push, n), {.bytes = 16});
      const ServedTable table = serve_table(cluster->here(), {"w1", "w2"}, 4, 2, options(pull, push, n));
      const Tensor all = tensor({0, 1, 2, 3}), before = read(table, all).get();
      std::vector<RRef<Trainer>> trainers;
      for (int64_t i = 0; i < n; ++i) trainers.push_back(cluster->spawn<Trainer>(i % 3, served, table));
      Tensor mean = zeros({3});
      double weights = 0;
      {
        autograd::Context step(*cluster);
        Tensors losses;
        for (int64_t i = 0; i < n; ++i) {
          const Tensor x = rows(i + 1, double(i));
          losses.push_back(trainers[size_t(i)].call<&Trainer::loss>(x).get());
          mean = mean + ops::sum(x, {0});
          weights += double(i + 1);
        }
        step.backward(losses, Tensors(losses.size()));
        std::vector<Future<void>> pushed;
        for (int64_t i = 0; i < n; ++i)
          pushed.push_back(trainers[size_t(i)].call<&Trainer::push>(double(i + 1)));
        troupe::all(pushed).get();
      }
      mean = mean / weights;  // the mean over all rows, as of one process
      const Tensors now = read(served).get();
      const double near = 0.01;
      CHECK(difference(now[0], ones({3, 2}) - mean.reshape({3, 1}).expand({3, 2}) * (kRate / 2), near,
                       near) == "");
      CHECK(difference(now[1], ones({2}) - full({2}, 2 * kRate), 1e-6, 1e-6) == "");
      const Tensor steps = tensor({{1.0, 1.0}, {2.0, 2.0}, {0.0, 0.0}, {0.0, 0.0}}).to(float32) *
                           (kRate * ops::mean(mean).item());
      CHECK(difference(before - read(table, all).get(), steps, near, near) == "");
      for (const ServerReport& r : report(served).get()) CHECK(r.version == 1);
    }
}

TEST_CASE("norms count the gradients of each trainer, of values as of tables, and scaling scales them") {
  const auto cluster = Cluster::in_process(2, {});
  const Served served = serve(cluster->here(), {"w1"}, {zeros({2})}, options("none", "none", 2));
  Client a(served), b(served);
  autograd::Context step(*cluster);
  const Tensor u = a.pull().get()[0], v = b.pull().get()[0];
  step.backward(ops::sum(u) * 3 + ops::sum(v) * 4);
  CHECK(optim::clip_grad_norm(step, {gradients_of(served)}, 1.0) == Approx(std::sqrt(2 * 9 + 2 * 16)));
  CHECK(optim::clip_grad_norm(step, {gradients_of(served)}, 2.0) == Approx(1.0));
  const auto first = a.push_context(), second = b.push_context();
  first.get(), second.get();
  const double expected = -kRate * 0.5 * 7 / std::sqrt(2 * 9 + 2 * 16);
  CHECK(difference(read(served).get()[0], full({2}, expected), 1e-5, 1e-6) == "");
}

TEST_CASE("two steps of one context push each its own gradients") {
  const auto cluster = Cluster::in_process(2, {});
  for (const char* pull : {"none", "bf16"}) {
    const Served served = serve(cluster->here(), {"w1"}, {zeros({2})}, options(pull, "none", 1));
    Client client(served);
    autograd::Context step(*cluster);
    for (int i = 1; i <= 3; ++i) {
      step.backward(ops::sum(client.pull().get()[0]));
      client.push_context().get();
      CHECK(difference(read(served).get()[0], full({2}, -kRate * i), 1e-6, 1e-6) == "");
    }
  }
}

TEST_CASE("a push for which no gradient has come is refused, and no update") {
  const auto cluster = Cluster::in_process(3, hosting<Gate>());
  const auto gate = cluster->spawn<Gate>("w2");
  for (const char* pull : {"none", "bf16"}) {
    INFO(pull);
    const Served served = serve(cluster->here(), {"w1", "w2"}, {zeros({2})}, options(pull, "none", 1));
    const ServedTable table = serve_table(cluster->here(), {"w1", "w2"}, 4, 2, options(pull, "none", 1));
    Client client(served);
    TableClient words(table);
    const auto refused = [&](const std::string& why) {
      CHECK_THAT(error_of([&] { client.push_context().get(); }).what(),
                 Contains("[server]") && Contains(why));
      CHECK_THAT(error_of([&] { words.push_context().get(); }).what(), Contains("[table]") && Contains(why));
      for (const ServerReport& r : report(served).get()) CHECK(r.version == 0);
      for (const ServerReport& r : report(table).get()) CHECK(r.version == 0);
    };
    (void)client.pull().get(), (void)words.pull(tensor({1})).get();  // in no context
    {
      autograd::Context step(*cluster);
      refused("has pulled nothing in this context");
    }
    autograd::Context step(*cluster);
    const Tensor w = client.pull().get()[0], e = words.pull(tensor({1, 2})).get();
    refused("no gradient has come");
    Gate::began.emplace(1), Gate::go_on.emplace(1);
    const Tensor loss = gate(ops::sum(w) + ops::sum(e)).get();
    const Future<void> pass = step.backward_async(loss);
    Gate::began->wait();
    refused("is under way");
    Gate::go_on->count_down();
    pass.get();
    CHECK_FALSE(client.push_context().get().late);
    CHECK_FALSE(words.push_context().get().late);
    for (const ServerReport& r : report(served).get()) CHECK(r.version == 1);
    // A step without anything to learn ends with weight 0.
    (void)client.pull().get(), (void)words.pull(tensor({1})).get();
    CHECK_THAT(error_of([&] { client.push_context().get(); }).what(), Contains("no gradient has come"));
    client.push_context(0).get(), words.push_context(0).get();
    CHECK(difference(read(served).get()[0], full({2}, -kRate), 1e-6, 1e-6) == "");
  }
}
