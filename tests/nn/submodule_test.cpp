// States of which a part fits, and modules that others take the place of.
#include <catch2/catch.hpp>

#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

struct Pair : nn::Module {
  nn::Linear left{2, 3};
  nn::AnyLayer right = nn::Linear(2, 3);
  Tensor operator()(const Tensor& x) { return left(x) + right(x); }
  void members(nn::Members& m) override { m("left", left), m("right", right); }
};

struct Net : nn::Module {
  nn::ModuleList pairs{Pair(), Pair()};
  nn::Sequential head{nn::Linear(3, 4), nn::ReLU()};
  void members(nn::Members& m) override { m("pairs", pairs), m("head", head); }
};

// Around a layer: twice what it gives, with a parameter of its own.
struct Twice : nn::Layer {
  explicit Twice(std::shared_ptr<nn::Layer> l) : inner(std::move(l)) {}
  nn::AnyLayer inner;
  Tensor factor = full({1}, 2.0).requires_grad_();
  Tensor forward(const Tensor& x) override { return inner(x) * factor; }
  void members(nn::Members& m) override { m("inner", inner), m("factor", factor); }
};

std::vector<std::string> names(nn::Module& m) {
  std::vector<std::string> out;
  for (const auto& [name, t] : m.named_parameters()) out.push_back(name);
  return out;
}

}  // namespace

TEST_CASE("a state of which a part fits is loaded where it does, and says what was missing and left over") {
  Net net;
  auto state = net.state_dict();
  std::map<std::string, Tensor> part{{"head.0.weight", ones({4, 3})}, {"other.bias", ones({1})}};
  CHECK_THAT(error_of([&] { net.load_state_dict(part); }).what(), Catch::Contains("missing head.0.bias"));
  CHECK_THAT(error_of([&] { net.load_state_dict(part); }).what(), Catch::Contains("unexpected other.bias"));
  CHECK(!ops::equal(net.state_dict().at("head.0.weight"), ones({4, 3})));
  const Tensor bias = state.at("head.0.bias").clone_data();
  const nn::LoadedState report = net.load_state_dict(part, {.strict = false});
  CHECK(ops::equal(net.state_dict().at("head.0.weight"), ones({4, 3})));
  CHECK(ops::equal(net.state_dict().at("head.0.bias"), bias));
  CHECK(report.unexpected == std::vector<std::string>{"other.bias"});
  CHECK(report.missing.size() == state.size() - 1);
  part["head.0.bias"] = ones({5});  // another shape is an error either way
  CHECK_THAT(error_of([&] { net.load_state_dict(part, {.strict = false}); }).what(),
             Catch::Contains("head.0.bias has shape [4]"));
}

TEST_CASE("modules are found by name, and others take their places") {
  Net net;
  CHECK(names(net) == std::vector<std::string>{
                          "pairs.0.left.weight", "pairs.0.left.bias", "pairs.0.right.weight",
                          "pairs.0.right.bias", "pairs.1.left.weight", "pairs.1.left.bias",
                          "pairs.1.right.weight", "pairs.1.right.bias", "head.0.weight", "head.0.bias"});
  CHECK(&net.get_submodule("pairs.1") == &net.pairs[1]);
  CHECK(net.get_submodule("head.0").str() == "Linear(3, 4)");
  CHECK_THAT(error_of([&] { (void)net.get_submodule("head.7"); }).what(),
             Catch::Contains("did you mean \"head."));
  const Tensor x = ones({1, 2});
  Pair& first = net.pairs.as<Pair>(0);
  const Tensor before = first.right(x);
  const auto inner = std::dynamic_pointer_cast<nn::Layer>(net.shared_submodule("pairs.0.right"));
  net.set_submodule("pairs.0.right", std::make_shared<Twice>(inner));
  CHECK(ops::equal(first.right(x), before * 2.0));
  CHECK(names(net)[2] == "pairs.0.right.inner.weight");
  net.set_submodule("head.0", std::make_shared<nn::Linear>(3, 7));
  CHECK(net.head(ones({1, 3})).size(1) == 7);
  net.set_submodule("pairs.1", std::make_shared<nn::Linear>(2, 2));
  CHECK_THAT(error_of([&] { net.pairs.as<Pair>(1); }).what(), Catch::Contains("is a Linear(2, 2)"));
}

TEST_CASE("places that no other module can take are refused, by name") {
  Net net;
  const auto linear = std::make_shared<nn::Linear>(2, 3);
  const auto refused = [&](const std::string& name, const std::shared_ptr<nn::Module>& m,
                           const std::string& text) {
    CHECK_THAT(error_of([&] { net.set_submodule(name, m); }).what(), Catch::Contains(text));
  };
  refused("pairs.0.left", linear, "\"pairs.0.left\" is a member of");
  refused("head", linear, "\"head\" is a member of");
  refused("", linear, "the whole is a member of");
  refused("head.0", nullptr, "a pointer to none");
  refused("head.0", std::make_shared<Pair>(), "is no Layer");
  refused("pairs.0.right", std::make_shared<Pair>(), "is no Layer");
  CHECK_THAT(error_of([&] { net.pairs.add(std::shared_ptr<nn::Module>()); }).what(),
             Catch::Contains("a pointer to none"));
}
