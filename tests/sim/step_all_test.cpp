// One step of several optimizers: all that live have made it, or none has, whatever dies between.
#include <catch2/catch.hpp>

#include <cmath>
#include <set>

#include "troupe/server.h"
#include "troupe/simulated.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

struct Weight : Actor {
  Weight() : w(full({2}, 1.0)) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return ops::mul(x, w); }
  double value() { return w.detach().sum().item() / 2; }
  Tensors parameters() override { return {w}; }
  Tensor w;
  static constexpr auto remote = methods<&Weight::forward, &Weight::value>;
};

struct Nothing : Actor {
  int64_t number() { return 1; }
  static constexpr auto remote = methods<&Nothing::number>;
};

using Optimizer = optim::Distributed<optim::SGD>;

// Two models, of which each has an actor on w1.
struct Models {
  explicit Models(SimulatedCluster& cluster)
      : actors{cluster.spawn<Weight>("w1"), cluster.spawn<Weight>("w2"), cluster.spawn<Weight>("w3"),
               cluster.spawn<Weight>("w1")} {}
  Tensor loss(double factor = 1) {
    const Tensor x = full({2}, factor);
    Tensor sum;
    for (auto& actor : actors) {
      const Tensor y = actor.call<&Weight::forward>(x).get().sum();
      sum = sum.defined() ? ops::add(sum, y) : y;
    }
    return sum;
  }
  std::vector<RRef<Weight>> actors;
  Optimizer generator{{actors[0], actors[1]}, {.lr = 0.5}}, critic{{actors[2], actors[3]}, {.lr = 0.5}};
};

// An actor's weight and values in servers, all of them 1.
struct WeightAndValues {
  explicit WeightAndValues(SimulatedCluster& cluster, const std::string& policy = "bsp", int64_t trainers = 1)
      : weight(cluster.spawn<Weight>("w1")),
        optimizer({weight}, {.lr = 0.5}),
        served(parallel::serve(cluster.here(), {"w2"}, {full({2}, 1.0)},
                               {.options = {{"lr", 0.5}},
                                .policy = parallel::ServerPolicy::parse(policy),
                                .trainers = trainers})) {}
  Tensor of_weight() { return weight.call<&Weight::forward>(full({2}, 1.0)).get().sum(); }
  // The gradient of each value is `factor`.
  Tensor loss(const parallel::Client& client, double factor = 1) {
    return ops::add(of_weight(), ops::mul(client.pull().get()[0], factor).sum());
  }
  void check(double weight_now, double values_now) {
    CHECK(weight.call<&Weight::value>().get() == weight_now);
    CHECK(parallel::read(served).get()[0].sum().item() / 2 == values_now);
  }
  RRef<Weight> weight;
  Optimizer optimizer;
  parallel::Served served;
};

using Stepping = std::function<void(const autograd::Context&, Optimizer&, Optimizer&)>;

void whole_or_none(SimulatedCluster& cluster, const Stepping& step) {
  Models models(cluster);
  bool stepped = false;
  try {
    autograd::Context context(cluster);
    context.backward(models.loss());
    step(context, models.generator, models.critic);
    stepped = true;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::disconnected) throw;
  }
  std::set<double> values;
  for (auto& actor : models.actors)
    if (const auto value = actor.call<&Weight::value>().wait(); value.ok()) values.insert(value.value());
  if (values.size() > 1) throw std::runtime_error("some have stepped, and others have not");
  if (stepped && values.contains(1.0)) throw std::runtime_error("nobody has stepped");
}

SimulateResult simulated(const std::string& name, const Stepping& step) {
  return simulate(name, [&](SimulatedCluster& cluster) { whole_or_none(cluster, step); },
                  {.workers = 4, .runs = 400, .kills = 2, .losses = 1, .partitions = 1});
}

std::string text_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("two optimizers that step one after the other are found half stepped when a worker dies") {
  const auto result = simulated("apart", [](const auto& context, Optimizer& a, Optimizer& b) {
    a.step(context);
    b.step(context);
  });
  REQUIRE(result.failure);
  CHECK(result.failure->find("some have stepped") != std::string::npos);
}

TEST_CASE("a step of two optimizers is whole whatever dies or is cut off at any message") {
  const auto result = simulated(
      "whole", [](const auto& context, Optimizer& a, Optimizer& b) { optim::step_all(context, {a, b}); });
  INFO(result.failure.value_or(""));
  CHECK_FALSE(result.failure);
  CHECK(result.faults > 600);
}

TEST_CASE(
    "a step of two optimizers with a scaler is whole and left out by all where one gradient is not finite") {
  const auto result = simulated("scaled", [](const auto& context, Optimizer& a, Optimizer& b) {
    optim::LossScaler scaler({.init_scale = 1});
    if (!optim::step_all(context, {a, b}, scaler)) throw std::runtime_error("left out");
  });
  INFO(result.failure.value_or(""));
  CHECK_FALSE(result.failure);

  SimulatedCluster cluster(1, 4);
  Models models(cluster);
  optim::LossScaler scaler({.init_scale = 4});
  for (const double factor : {1.0, double(INFINITY), 1.0}) {
    autograd::Context context(cluster);
    context.backward(scaler.scale(models.loss(factor)));
    CHECK(optim::step_all(context, {models.generator, models.critic}, scaler) == std::isfinite(factor));
    scaler.update();
  }
  CHECK(scaler.scale() == 2);
  for (auto& actor : models.actors) CHECK(actor.call<&Weight::value>().get() == 0);
}

TEST_CASE("if one of several optimizers cannot step nobody does and the error says who") {
  SimulatedCluster cluster(1, 4);
  Models models(cluster);
  auto nothing = cluster.spawn<Nothing>("w2");
  Optimizer empty({nothing}, {.lr = 0.5});
  autograd::Context context(cluster);
  context.backward(models.loss());
  CHECK_THAT(
      text_of([&] { optim::step_all(context, {models.generator, empty, models.critic}); }),
      Catch::Contains("[step_all] nobody has stepped") && Catch::Contains("has no parameters to train"));
  CHECK_THAT(
      text_of([&] { optim::step_all(context, {models.generator, models.generator}); }),
      Catch::Contains("0 and 1 are the same optimizer") || Catch::Contains("1 and 0 are the same optimizer"));
  CHECK_THAT(text_of([&] { optim::step_all(context, {}); }), Catch::Contains("at least one optimizer"));
  for (auto& actor : models.actors) CHECK(actor.call<&Weight::value>().get() == 1);
  optim::step_all(context, {models.generator, models.critic});
  for (auto& actor : models.actors) CHECK(actor.call<&Weight::value>().get() == 0.5);
}

TEST_CASE("two optimizers of one actor step in one step in their order") {
  SimulatedCluster cluster(1, 2);
  auto weight = cluster.spawn<Weight>("w1");
  Optimizer first({weight}, {.lr = 0.5}), second({weight}, {.lr = 0.25});
  autograd::Context context(cluster);
  context.backward(weight.call<&Weight::forward>(full({2}, 1.0)).get().sum());
  optim::step_all(context, {first, second});
  CHECK(weight.call<&Weight::value>().get() == 0.25);
}

TEST_CASE("values in servers step with an optimizer or not at all whatever dies") {
  const auto test = [](SimulatedCluster& cluster) {
    auto weight = cluster.spawn<Weight>("w1");
    Optimizer optimizer({weight}, {.lr = 0.5});
    const auto served =
        parallel::serve(cluster.here(), {"w2"}, {full({2}, 1.0)}, {.options = {{"lr", 0.5}}, .trainers = 1});
    bool stepped = false;
    try {
      parallel::Client client(served);
      autograd::Context context(cluster);
      const autograd::Context::Guard guard(context);
      const Tensors values = client.pull().get();
      const Tensor y = weight.call<&Weight::forward>(values[0]).get();
      context.backward(y.sum());
      optim::step_all(context, {optimizer, client.part()});
      stepped = true;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::disconnected) throw;
    }
    std::set<double> values;
    if (const auto value = weight.call<&Weight::value>().wait(); value.ok()) values.insert(value.value());
    if (const auto value = parallel::read(served).wait(); value.ok())
      values.insert(value.value()[0].sum().item() / 2);
    if (values.size() > 1) throw std::runtime_error("one has stepped, and the other has not");
    if (stepped && values.contains(1.0)) throw std::runtime_error("nobody has stepped");
  };
  const auto result = simulate("served", test, {.runs = 400, .kills = 1, .losses = 1});
  INFO(result.failure.value_or(""));
  CHECK_FALSE(result.failure);
}

TEST_CASE("nobody steps where the servers would refuse the push") {
  struct Case {
    const char* policy;
    double factor, weight;
    const char* text;
  };
  for (const Case& c : {Case{"bsp", NAN, 1, "NaN or infinite elements; the step is open"},
                        Case{"bsp", 1, -1, "a weight of -1; expected 0"},
                        Case{"local(2)", 1, 1, "push_context() under local(H)"}}) {
    INFO(c.text);
    SimulatedCluster cluster(1, 3);
    WeightAndValues all(cluster, c.policy);
    parallel::Client client(all.served);
    autograd::Context context(cluster);
    context.backward(all.loss(client, c.factor));
    CHECK_THAT(text_of([&] { optim::step_all(context, {all.optimizer, client.part(c.weight)}); }),
               Catch::Contains("[step_all] nobody has stepped") && Catch::Contains(c.text));
    all.check(1, 1);
    if (c.weight > 0) continue;
    optim::step_all(context, {all.optimizer, client.part()});
    all.check(0.5, 0.5);
    CHECK_THAT(text_of([&] { optim::step_all(context, {all.optimizer, client.part()}); }),
               Catch::Contains("has pulled nothing in this context since its last push"));
    all.check(0.5, 0.5);
  }
}

TEST_CASE("nobody steps where the servers of a table would refuse the push") {
  SimulatedCluster cluster(1, 3);
  auto weight = cluster.spawn<Weight>("w1");
  Optimizer optimizer({weight}, {.lr = 0.5});
  const auto table = parallel::serve_table(cluster.here(), {"w2"}, 4, 2, {.options = {{"lr", 0.5}}}, {});
  const Tensor ids = tensor({0, 3}, int64), before = parallel::read(table, ids).get();
  parallel::TableClient words(table);
  for (const double factor : {double(NAN), 1.0}) {
    autograd::Context context(cluster);
    const Tensor y = weight.call<&Weight::forward>(full({2}, 1.0)).get();
    context.backward(ops::add(y.sum(), ops::mul(words.pull(ids).get(), factor).sum()));
    const std::string text = text_of([&] { optim::step_all(context, {optimizer, words.part()}); });
    CHECK_THAT(text,
               Catch::Contains(factor == 1 ? "no error" : "NaN or infinite elements; the step is open"));
    CHECK(weight.call<&Weight::value>().get() == (factor == 1 ? 0.5 : 1));
    const Tensor moved = ops::sub(before, parallel::read(table, ids).get());
    CHECK(moved.sum().item() == Approx(factor == 1 ? 4 * 0.5 : 0).margin(1e-6));
  }
}

TEST_CASE("a push of weight 0 is a part of a step without a gradient") {
  SimulatedCluster cluster(1, 3);
  WeightAndValues all(cluster);
  parallel::Client client(all.served);
  autograd::Context context(cluster);
  (void)client.pull().get();
  context.backward(all.of_weight());
  CHECK_THAT(text_of([&] { optim::step_all(context, {all.optimizer, client.part()}); }),
             Catch::Contains("no gradient has come"));
  all.check(1, 1);
  optim::step_all(context, {all.optimizer, client.part(0)});
  all.check(0.5, 1);
  CHECK(parallel::report(all.served).get()[0].open_step == 1);
}

TEST_CASE("a client pushes once in a step and several clients of the same servers push their own") {
  SimulatedCluster cluster(1, 3);
  WeightAndValues all(cluster, "bsp", 2);
  parallel::Client one(all.served), two(all.served);
  optim::LossScaler scaler({.init_scale = 4});
  autograd::Context context(cluster);
  const Tensor other = two.pull().get()[0];
  context.backward(scaler.scale(ops::add(all.loss(one), other.sum())));
  CHECK_THAT(text_of([&] { optim::step_all(context, {all.optimizer, one.part(), one.part(2)}); }),
             Catch::Contains("1 and 2 are pushes of the same client"));
  all.check(1, 1);
  CHECK(optim::step_all(context, {all.optimizer, one.part(), two.part()}, scaler));
  all.check(0.5, 0.5);
}

TEST_CASE("gradients in servers are unscaled with those of optimizers or the step is refused") {
  for (const double factor : {1.0, double(INFINITY)}) {
    SimulatedCluster cluster(1, 3);
    WeightAndValues all(cluster);
    parallel::Client client(all.served);
    optim::LossScaler scaler({.init_scale = 4});
    autograd::Context context(cluster);
    context.backward(scaler.scale(all.loss(client, factor)));
    CHECK(optim::unscale_(context, scaler, {all.optimizer}));
    CHECK_THAT(text_of([&] { optim::step_all(context, {all.optimizer, client.part()}, scaler); }),
               Catch::Contains("1 of 2 optimizers and pushes are unscaled already") &&
                   Catch::Contains("unscale_(step, scaler, {optimizer, gradients_of(served)})"));
    all.check(1, 1);
    const bool finite = optim::unscale_(context, scaler, {parallel::gradients_of(all.served)});
    CHECK(finite == std::isfinite(factor));
    CHECK(optim::step_all(context, {all.optimizer, client.part()}, scaler) == finite);
    all.check(finite ? 0.5 : 1, finite ? 0.5 : 1);
    CHECK(parallel::report(all.served).get()[0].open_step == 1);
  }
}
