// The actor "Module": networks by name on other workers, without a type of the program's own.
#include <catch2/catch.hpp>

#include "nn/make.h"
#include "parallel/pipeline/pipeline.h"
#include "rref/ref_table.h"
#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

AnyRef spawn(Cluster& cluster, const Place& where, ValueList arguments) {
  auto& table = cluster.here().table();
  return AnyRef(table.spawn(where.in(table.worker().members()), "Module", 0, std::move(arguments)));
}
AnyRef module_on(Cluster& cluster, const Place& where, const Value& spec) {
  return spawn(cluster, where, ValueList(1, spec));
}

Tensor forward(const AnyRef& net, const Tensor& x) {
  return std::get<Tensor>(net.call("forward", {x}).get().v);
}

Value hidden_spec() {
  return nn::spec_of("sequential", {nn::spec_of("linear", {int64_t{6}, int64_t{16}}), std::string("relu")});
}
Value output_spec() { return nn::spec_of("linear", {int64_t{16}, int64_t{3}}); }

bool same(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, t] : a)
    if (!b.count(name) || !bit_equal(t, b.at(name))) return false;
  return true;
}

struct Data {
  Tensor x = ops::randn({8, 6}, Generator(2)), y = ops::randn({8, 3}, Generator(3));
};

}  // namespace

TEST_CASE("a network in two actors Module trains by name alone, with the bits of C++") {
  const auto cluster = Cluster::in_process(3);
  const AnyRef hidden = module_on(*cluster, "w1", hidden_spec()),
               output = module_on(*cluster, "w2", output_spec());
  nn::Sequential here;
  here.add(nn::Linear(6, 16)).add(nn::ReLU()).add(nn::Linear(16, 3));
  auto state = nn::remote_state_dict(hidden).get();
  for (const auto& [name, t] : nn::remote_state_dict(output).get()) state["2." + name] = t;
  here.load_state_dict(state);

  const Data data;
  optim::DistributedOptimizer remote({hidden, output}, "adam", {{"lr", 0.05}});
  optim::Adam local(here.parameters(), {.lr = 0.05});
  std::vector<double> losses;
  for (int step = 0; step < 20; ++step) {
    autograd::Context context(*cluster);
    const Tensor loss = mse_loss(forward(output, forward(hidden, data.x)), data.y);
    context.backward(loss);
    remote.step(context);
    const Tensor expected = mse_loss(here(data.x), data.y);
    autograd::backward(expected);
    local.step();
    local.zero_grad();
    CHECK(loss.item() == expected.item());
    losses.push_back(loss.item());
  }
  CHECK(losses.back() < losses.front() / 2);
  state = nn::remote_state_dict(hidden).get();
  for (const auto& [name, t] : nn::remote_state_dict(output).get()) state["2." + name] = t;
  CHECK(same(state, here.state_dict()));
}

TEST_CASE("a Module tells what it is, and takes states and modes") {
  const auto cluster = Cluster::in_process(2);
  const NoGradGuard none;
  const AnyRef a = module_on(*cluster, "w1", nn::spec_of("dropout")),
               b = module_on(*cluster, "w0", hidden_spec()), c = module_on(*cluster, "w1", hidden_spec());
  const Tensor x = ones({100});
  CHECK(!bit_equal(forward(a, x), x));
  nn::set_remote_training(a, false).get();
  CHECK(bit_equal(forward(a, x), x));
  CHECK_THAT(std::get<std::string>(b.call("describe", {}).get().v), Contains("Linear(6, 16)"));
  const Data data;
  CHECK(!bit_equal(forward(b, data.x), forward(c, data.x)));
  nn::load_remote_state_dict(c, nn::remote_state_dict(b).get()).get();
  CHECK(bit_equal(forward(b, data.x), forward(c, data.x)));
}

TEST_CASE("Modules are stages of a pipeline") {
  const auto cluster = Cluster::in_process(3);
  std::vector<parallel::Stage> stages(2);
  stages[0].part.actor = module_on(*cluster, "w1", hidden_spec());
  stages[1].part.actor = module_on(*cluster, "w2", output_spec());
  for (auto& stage : stages) stage.part.method = "forward";
  const std::vector<AnyRef> actors{stages[0].part.actor, stages[1].part.actor};
  parallel::Pipeline pipeline(cluster->here(), stages,
                              {.micro_batches = 4, .loss = [](const Value& output, const Value& target) {
                                 return mse_loss(*output.get_if<Tensor>(), *target.get_if<Tensor>());
                               }});
  optim::DistributedOptimizer optimizer(actors, "sgd", {{"lr", 0.1}});
  const Data data;
  std::vector<double> losses;
  for (int step = 0; step < 10; ++step) {
    autograd::Context context(*cluster);
    losses.push_back(pipeline.step(data.x, data.y).loss);
    optimizer.step(context);
  }
  CHECK(losses.back() < losses.front());
}

TEST_CASE("a Module that cannot be made says why") {
  const auto cluster = Cluster::in_process(2);
  const auto said = [&](ValueList arguments) {
    return error_of([&] { spawn(*cluster, "w1", std::move(arguments)).ready().get(); }).message();
  };
  CHECK_THAT(said({std::string("linaer")}), Contains("did you mean \"linear\"?"));
  CHECK_THAT(said({std::string("linear")}), Contains("linear needs \"in\": linear(in: int64, out: int64"));
  CHECK_THAT(said({Value()}), Contains("a module is described by its name"));
  CHECK_THAT(said({ValueMap{{"layers", ValueList()}}}), Contains("a module is described by its name"));
  CHECK_THAT(said({}), Contains("Module(spec: any value)"));
  const NoGradGuard none;
  const AnyRef net = module_on(*cluster, "w1", output_spec());
  CHECK_THAT(error_of([&] { forward(net, zeros({2, 5})); }).message(), Contains("[linear]"));
  CHECK(forward(net, zeros({2, 16})).shape() == Shape{2, 3});
}
