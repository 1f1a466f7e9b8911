// Distributed optimizers with groups of options: as a local optimizer with the same groups.
#include <catch2/catch.hpp>

#include "autograd/distributed/optim/optimizer_messages.h"
#include "data/formats/safetensors.h"
#include "tests/autograd_distributed/half.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

// Parameters of a Half are 0.weight and 0.bias.
template <class O>
O in_two_groups(Whole& whole, const typename O::Options& rest, const typename O::Options& of_biases) {
  const Tensors a = whole.a.parameters(), b = whole.b.parameters();
  return O({typename O::Group{{a[0], b[0]}, rest}, typename O::Group{{a[1], b[1]}, of_biases}});
}

void one_step(TwoHalves& halves, optim::DistributedOptimizer& optimizer, int step) {
  autograd::Context context(halves.cluster);
  halves.backward(context, step);
  optimizer.step(context);
}

template <class O>
void groups_as_local(const optim::ParameterFilter& biases, typename O::Options rest,
                     typename O::Options of_biases) {
  INFO(O::kName << ", " << biases.str());
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  Whole whole;
  optim::Distributed<O> remote({halves.a, halves.b}, rest, {{biases, of_biases}});
  O local = in_two_groups<O>(whole, rest, of_biases);
  REQUIRE(remote.group_count() == 2);
  optim::Scheduler remote_rate(remote, optim::exponential(0.5)), local_rate(local, optim::exponential(0.5));
  for (int step = 0; step < 6; ++step) {
    autograd::Context context(*cluster);
    halves.backward(context, step);
    whole.backward(step);
    CHECK(remote.clip_grad_norm(context, 0.1) == optim::clip_grad_norm_(whole.parameters(), 0.1));
    remote.step(context);
    local.step();
    CHECK(same_bits(halves.values(), whole.parameters()));
    if (step == 2) {
      remote.change_options(1, {{"lr", 0.25}});
      local.change_options(1, {{"lr", 0.25}});
    } else if (step > 3) {
      remote_rate.step(), local_rate.step();
    }
    for (const size_t group : {0, 1}) CHECK(remote.lr(group) == local.lr(group));
  }
}

// The options of groups 0 and 1 in each other's place.
std::map<std::string, Tensor> with_groups_turned(const std::map<std::string, Tensor>& state) {
  std::map<std::string, Tensor> out;
  for (const auto& [name, value] : state)
    if (name.starts_with("group"))
      out[(name[5] == '0' ? "group1" : "group0") + name.substr(6)] = value;
    else
      out[name] = value;
  return out;
}

optim::ParameterFilter below_two_dimensions() {
  return [](const std::string&, const Shape& shape) { return shape.rank() < 2; };
}

}  // namespace

TEST_CASE("groups over two owners, by names or a function, have the bits of local groups") {
  for (const optim::ParameterFilter& biases :
       {optim::ParameterFilter("*.bias"), optim::ParameterFilter{"nobody", "0.bi*"},
        below_two_dimensions()}) {
    groups_as_local<optim::SGD>(biases, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.5}, {.lr = 0.02});
    groups_as_local<optim::AdamW>(biases, {.lr = 0.05, .weight_decay = 0.3},
                                  {.lr = 0.05, .weight_decay = 0, .amsgrad = true});
    groups_as_local<optim::LAMB>(biases, {.lr = 0.05, .weight_decay = 0.1}, {.lr = 0.01});
  }
}

TEST_CASE("a parameter belongs to the first group that names it, and to the rest if none does") {
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  optim::Distributed<optim::SGD> optimizer(
      {halves.a, halves.b}, {.lr = 1},
      {{"0.bias", {.lr = 2}},
       {[](const std::string& name, const Shape& shape) { return name == "0.bias" || shape[0] == 2; },
        {.lr = 3}}});
  const std::string a = " of troupe::testing::Half#0:1 on w1", b = " of troupe::testing::Half#0:2 on w2";
  CHECK(optimizer.parameters_by_group() == std::vector<std::vector<std::string>>{{"0.weight" + a},
                                                                                 {"0.bias" + a, "0.bias" + b},
                                                                                 {"0.weight" + b}});
  for (const size_t group : {0, 1, 2}) CHECK(optimizer.lr(group) == double(group + 1));
}

TEST_CASE("options of a group by name are those of the rest but for what it names") {
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  optim::DistributedOptimizer optimizer({halves.a, halves.b}, "adamw", {{"lr", 0.5}, {"weight_decay", 0.25}},
                                        {{"*.bias", {{"weight_decay", 0.0}}}});
  CHECK(optimizer.lr(1) == 0.5);
  CHECK(optimizer.number("weight_decay", 0) == 0.25);
  CHECK(optimizer.number("weight_decay", 1) == 0);
  CHECK_THAT(invalid_text([&] {
               optim::DistributedOptimizer({halves.a}, "adamw", {}, {{"*.bias", {{"weight_decai", 0.0}}}});
             }),
             Contains("did you mean \"weight_decay\"?"));
}

TEST_CASE("a group that is for nothing is told by every step, with the names that there are") {
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  const auto refusal = [&](const optim::ParameterFilter& first, const optim::ParameterFilter& second) {
    optim::Distributed<optim::SGD> optimizer({halves.a, halves.b}, {}, {{first, {}}, {second, {}}});
    const std::string at_step = invalid_text([&] { one_step(halves, optimizer, 0); });
    CHECK_THAT(at_step, Contains("the step failed on 2 of 2 actors: "));
    CHECK_THAT(invalid_text([&] { optimizer.parameters_by_group(); }),
               Contains("the making of the optimizer failed on 2 of 2 actors: "));
    return at_step;
  };
  CHECK_THAT(
      refusal("*.bias", {"*.bais", "weight"}),
      Contains("[optim] group 2 (*.bais, weight) is for no parameter that no group before it has; there "
               "are: 0.bias, 0.weight"));
  CHECK_THAT(refusal("*", below_two_dimensions()), Contains("[optim] group 2 (those of a function)"));
  // What one actor alone has is enough.
  optim::Distributed<optim::SGD> optimizer(
      {halves.a, halves.b}, {.lr = 0.1},
      {{[](const std::string&, const Shape& shape) { return shape[0] == 5; }, {.lr = 0.2}}});
  one_step(halves, optimizer, 0);
}

TEST_CASE("states have the names of parameters, and fit whatever the groups' order was") {
  Folder folder;
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster), again(*cluster);
  const optim::SGD::Options one{.lr = 0.1, .momentum = 0.9}, other{.lr = 0.2, .momentum = 0.5};
  optim::Distributed<optim::SGD> optimizer({halves.a, halves.b}, one, {{"*.bias", other}});
  for (int step = 0; step < 3; ++step) one_step(halves, optimizer, step);
  const auto states = optimizer.state();
  CHECK(states[0].contains("0.weight.momentum_buffer"));
  CHECK(states[0].at("group1.lr").item() == 0.2);
  optimizer.save(folder.path.string());
  CHECK(datasets::read_safetensors(folder.path.string() + "/optimizer-1-of-2.safetensors")
            .contains("0.bias.momentum_buffer"));

  // The same parameters in the other order: the biases are the rest.
  optim::Distributed<optim::SGD> turned({again.a, again.b}, other, {{{"norm*", "*.weight"}, one}});
  turned.load_state({with_groups_turned(states[0]), with_groups_turned(states[1])});
  const Tensors now = halves.values();
  again.a.call<&Half::set_values>(Tensors{now[0], now[1]}).get();
  again.b.call<&Half::set_values>(Tensors{now[2], now[3]}).get();
  for (int step = 3; step < 6; ++step) {
    one_step(halves, optimizer, step);
    one_step(again, turned, step);
  }
  CHECK(same_bits(halves.values(), again.values()));

  optim::Distributed<optim::SGD> alone({again.a, again.b}, one);
  CHECK_THAT(invalid_text([&] { alone.load(folder.path.string()); }), Contains("state group1."));
}

TEST_CASE("messages of optimizers that do not fit are refused, and change nothing") {
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  const AnyRef a = halves.a;
  const Tensors before = halves.values();
  const std::string key = "optim:test";
  const auto refused = [](auto future) { return invalid_text([&] { future.get(); }); };
  const ValueMap fits{{"lr", 0.5}};
  CHECK_THAT(refused(optim::kCreate.ask(a, key, "sgd", {})), Contains("the options of at least one group"));
  CHECK_THAT(refused(optim::kCreate.ask(a, key, "sgd", {{{}, fits}, {{"*"}, {{"lr", -1.0}}}})),
             Contains("[sgd] option lr"));
  CHECK_THAT(refused(optim::kCreate.ask(a, key, "sgd", {{{}, {{"lr", "much"}}}})),
             Contains("must be a double"));
  for (const Value& bad : {Value(3.0), Value(ValueList{Value(1.0)}), Value(ValueList{Value(ValueList{})})})
    CHECK_THAT(refused(a.call("optim.create", {key, "sgd", bad})), Contains("optim.create"));
  CHECK_THAT(refused(optim::kStep.ask(a, key, {fits}, 1)), Contains("has no such optimizer"));

  CHECK(optim::kCreate.ask(a, key, "sgd", {{{"*"}, fits}, {{"0.b**s"}, fits}}).get() ==
        optim::GroupNames{{"0.weight"}, {"0.bias"}});
  autograd::Context context(*cluster);
  halves.backward(context, 0);
  CHECK_THAT(refused(optim::kStep.ask(a, key, {fits}, 1)), Contains("options of 1 groups came for 2 groups"));
  CHECK_THAT(refused(optim::kStep.ask(a, key, {fits, {{"rate", 1.0}}}, 1)), Contains("option \"rate\""));
  CHECK_THAT(refused(optim::kState.ask(a, key, {})), Contains("options of 0 groups"));
  CHECK(same_bits(halves.values(), before));
  CHECK(optim::kStep.ask(a, key, {fits, fits}, 1).get() == 2);
  CHECK_FALSE(same_bits(halves.values(), before));
}

TEST_CASE("names fit forms, in which a star is any text") {
  const auto fits = [](const char* name, const char* form) { return optim::name_fits(name, form); };
  CHECK(fits("fc.bias", "fc.bias"));
  CHECK(fits("fc.bias", "*.bias"));
  CHECK(fits("fc.bias", "*"));
  CHECK(fits("fc.bias", "f*.*a*s"));
  CHECK(fits("a.bias.bias", "*.bias"));
  CHECK(fits("bias", "*bias*"));
  CHECK(fits("", ""));
  CHECK(fits("", "**"));
  CHECK_FALSE(fits("fc.bias", "bias"));
  CHECK_FALSE(fits("fc.bias", "fc.bia"));
  CHECK_FALSE(fits("fc.bias", "*.weight"));
  CHECK_FALSE(fits("fc.bias", "fc.bias*?"));
  CHECK_FALSE(fits("bias", ""));
  CHECK_FALSE(fits("", "?"));
  // Not in time that grows with a power of the number of stars.
  const std::string name(2000, 'a'), form = [] {
    std::string stars;
    for (int i = 0; i < 500; ++i) stars += "a*";
    return stars + "b";
  }();
  CHECK_FALSE(optim::name_fits(name, form));
}
