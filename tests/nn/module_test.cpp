// Modules list, save and load what is inside them.
#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "core/error.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;
using Names = std::vector<std::string>;

namespace {

struct Inner : nn::Layer {
  nn::Linear fc{2, 3};
  Tensor mean = Tensor::zeros({3});
  Tensor forward(const Tensor& x) override { return ops::sub(fc(x), mean); }
  void members(nn::Members& m) override { m("fc", fc), m.buffer("mean", mean); }
};

struct Outer : nn::Layer {
  Inner a;
  nn::Linear out{3, 1, false};
  Tensor scale = Tensor::full({1}, 2).set_requires_grad();
  Tensor forward(const Tensor& x) override { return ops::mul(out(a(x)), scale); }
  void members(nn::Members& m) override { m("a", a), m("out", out), m("scale", scale); }
};

Names names(const nn::NamedTensors& list) {
  Names out;
  for (const auto& [name, t] : list) out.push_back(name);
  return out;
}

}  // namespace

TEST_CASE("a module names its parameters and buffers in the order of its list") {
  Outer net;
  CHECK(names(net.named_parameters()) == Names{"a.fc.weight", "a.fc.bias", "out.weight", "scale"});
  CHECK(names(net.named_buffers()) == Names{"a.mean"});
  CHECK(net.parameters().size() == 4);
  CHECK(net.parameter_count() == 6 + 3 + 3 + 1);
  CHECK(net.children().size() == 2);
}

TEST_CASE("a shared parameter is listed once, and saved under both names") {
  struct Tied : nn::Module {
    nn::Linear first{2, 2}, second{2, 2};
    Tied() { second.weight = first.weight; }
    void members(nn::Members& m) override { m("first", first), m("second", second); }
  } net;
  CHECK(names(net.named_parameters()) == Names{"first.weight", "first.bias", "second.bias"});
  CHECK(net.state_dict().contains("second.weight"));
}

TEST_CASE("train and eval reach every module inside") {
  Outer net;
  CHECK(net.a.fc.training());
  net.eval();
  CHECK_FALSE(net.training());
  CHECK_FALSE(net.a.fc.training());
  net.train();
  CHECK(net.a.fc.training());
}

TEST_CASE("gradients reach all parameters, and zero_grad drops them") {
  Outer net;
  autograd::backward(net(Tensor::full({4, 2}, 0.5)).sum());
  for (const Tensor& p : net.parameters()) CHECK(p.grad().defined());
  CHECK_FALSE(net.a.mean.grad().defined());
  net.zero_grad();
  for (const Tensor& p : net.parameters()) CHECK_FALSE(p.grad().defined());
}

TEST_CASE("a state goes from one module to another, into the same tensors") {
  Outer from, to;
  Generator random(7);
  from.reset(random);
  from.a.mean.fill_(3);
  const Tensor weight = to.out.weight;
  to.load_state_dict(from.state_dict());
  CHECK(weight.same_as(to.out.weight));
  CHECK(bit_equal(weight, from.out.weight));
  CHECK(bit_equal(to.a.mean, from.a.mean));
  CHECK(to.out.weight.requires_grad());
  CHECK_FALSE(from.state_dict().at("out.weight").requires_grad());
}

TEST_CASE("a state that does not fit is refused as a whole, and every fault is named") {
  Outer net;
  auto state = net.state_dict();
  for (auto& [name, t] : state) t = Tensor::full(t.shape(), 9);
  state.erase("a.fc.bias");
  state["out.weight"] = Tensor::zeros({3, 1});
  state["a.fc.wieght"] = Tensor::zeros({1});
  const std::string text = testing::text_of([&] { net.load_state_dict(state); });
  CHECK_THAT(text, Contains("[load_state_dict] the state does not fit"));
  CHECK_THAT(text, Contains("missing a.fc.bias [3]"));
  CHECK_THAT(text, Contains("out.weight has shape [1, 3], got float32 [3, 1]"));
  CHECK_THAT(text, Contains("unexpected a.fc.wieght (did you mean a.fc.weight?)"));
  CHECK(net.scale.item() == 2);
}

TEST_CASE("two members of one name are refused") {
  struct Twice : nn::Module {
    Tensor a = Tensor::zeros({1}), b = Tensor::zeros({1});
    void members(nn::Members& m) override { m("a", a), m("a", b); }
  } net;
  CHECK_THAT(testing::text_of([&] { net.state_dict(); }), Contains("two members are called \"a\""));
}

TEST_CASE("reset gives the same values for the same seed, and others for layers of one size") {
  nn::Sequential a(nn::Linear(4, 4), nn::Linear(4, 4)), b(nn::Linear(4, 4), nn::Linear(4, 4));
  Generator one(1), again(1);
  a.reset(one);
  b.reset(again);
  CHECK(bit_equal(a.parameters()[0], b.parameters()[0]));
  CHECK_FALSE(bit_equal(a.parameters()[0], a.parameters()[2]));
}
