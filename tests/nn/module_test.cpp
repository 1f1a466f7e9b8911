// Modules list, save and load what is inside them.
#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "core/base/error.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;
using Names = std::vector<std::string>;

namespace {

struct Inner : nn::Layer {
  nn::Linear fc{2, 3};
  Tensor mean = zeros({3});
  Tensor forward(const Tensor& x) override { return ops::sub(fc(x), mean); }
  void members(nn::Members& m) override { m("fc", fc), m.buffer("mean", mean); }
};

struct Outer : nn::Layer {
  Inner a;
  nn::Linear out{3, 1, false};
  Tensor scale = full({1}, 2.0).requires_grad_();
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
  autograd::backward(net(full({4, 2}, 0.5)).sum());
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
  CHECK(weight.is_same(to.out.weight));
  CHECK(bit_equal(weight, from.out.weight));
  CHECK(bit_equal(to.a.mean, from.a.mean));
  CHECK(to.out.weight.requires_grad());
  CHECK_FALSE(from.state_dict().at("out.weight").requires_grad());
}

TEST_CASE("a state that does not fit is refused as a whole, and every fault is named") {
  Outer net;
  auto state = net.state_dict();
  for (auto& [name, t] : state) t = full(t.shape(), 9.0);
  state.erase("a.fc.bias");
  state["out.weight"] = zeros({3, 1});
  state["a.fc.wieght"] = zeros({1});
  const std::string text = testing::text_of([&] { net.load_state_dict(state); });
  CHECK_THAT(text, Contains("[load_state_dict] the state does not fit"));
  CHECK_THAT(text, Contains("missing a.fc.bias [3]"));
  CHECK_THAT(text, Contains("out.weight has shape [1, 3], got float32 [3, 1]"));
  CHECK_THAT(text, Contains("unexpected a.fc.wieght (did you mean a.fc.weight?)"));
  CHECK(net.scale.item() == 2);
}

TEST_CASE("two members of one name are refused") {
  struct Twice : nn::Module {
    Tensor a = zeros({1}), b = zeros({1});
    void members(nn::Members& m) override { m("a", a), m("a", b); }
  } net;
  CHECK_THAT(testing::text_of([&] { net.state_dict(); }), Contains("two members are called \"a\""));
}

TEST_CASE("a module may be wrapped or derived from, and keeps the names of what it wraps") {
  struct Wrapped : nn::Layer {
    nn::Linear base{3, 2};
    Tensor lora_a = ones({1, 3}).requires_grad_(), lora_b = zeros({2, 1}).requires_grad_();
    Tensor forward(const Tensor& x) override {
      return base(x) + ops::matmul(ops::matmul(x, lora_a.t()), lora_b.t());
    }
    void members(nn::Members& m) override { m("", base), m("lora_a", lora_a), m("lora_b", lora_b); }
  } wrapped;
  struct Derived : nn::Linear {
    Derived() : Linear(3, 2) {}
    Tensor scale = full({2}, 2.0).requires_grad_();
    Tensor forward(const Tensor& x) override { return Linear::forward(x) * scale; }
    void members(nn::Members& m) override { Linear::members(m), m("scale", scale); }
  } derived;
  CHECK(names(wrapped.named_parameters()) == Names{"weight", "bias", "lora_a", "lora_b"});
  CHECK(names(derived.named_parameters()) == Names{"weight", "bias", "scale"});
  nn::Linear plain(3, 2);
  auto state = plain.state_dict();
  derived.load_state_dict({{"weight", state["weight"]}, {"bias", state["bias"]}, {"scale", ones({2})}});
  state["lora_a"] = ones({1, 3}), state["lora_b"] = zeros({2, 1});
  wrapped.load_state_dict(state);
  const Tensor x = ones({4, 3});
  CHECK(bit_equal(wrapped(x).detach(), plain(x).detach()));
  CHECK(bit_equal(derived(x).detach(), plain(x).detach()));
  wrapped.eval();
  CHECK_FALSE(wrapped.base.training());
  CHECK_THAT(nn::summary(wrapped), Contains("lora_a") || Contains("Linear"));
  struct Twice : nn::Module {
    nn::Linear base{3, 2};
    Tensor weight = zeros({1}).requires_grad_();
    void members(nn::Members& m) override { m("", base), m("weight", weight); }
  } twice;
  CHECK_THAT(testing::text_of([&] { twice.parameters(); }), Contains("two members are called \"weight\""));
  CHECK_THAT(testing::text_of([&] { twice.state_dict(); }), Contains("two members are called \"weight\""));
}

TEST_CASE("of the names of one tensor one will do, and two values for it are refused") {
  struct Tied : nn::Module {
    nn::Embedding wte{5, 3};
    nn::Linear head{3, 5, false};
    Tied() { head.weight = wte.weight; }
    void members(nn::Members& m) override { m("wte", wte), m("head", head); }
  } net;
  const Tensor one = full({5, 3}, 1.0), two = full({5, 3}, 2.0);
  net.load_state_dict({{"wte.weight", one}});
  CHECK(bit_equal(net.head.weight.detach(), one));
  net.load_state_dict({{"head.weight", two}});
  CHECK(bit_equal(net.wte.weight.detach(), two));
  net.load_state_dict({{"head.weight", one}, {"wte.weight", one.to(float64)}});
  CHECK(bit_equal(net.wte.weight.detach(), one));
  CHECK_THAT(testing::text_of([&] {
               net.load_state_dict({{"head.weight", one}, {"wte.weight", two}});
             }),
             Contains("head.weight and wte.weight are one tensor here"));
  CHECK_THAT(testing::text_of([&] { net.load_state_dict({}); }), Contains("missing head.weight"));
  CHECK(bit_equal(net.wte.weight.detach(), one));
}

TEST_CASE("what is in a member without a name keeps its names") {
  struct Around : nn::Module {
    Outer outer;
    nn::Linear more{1, 1};
    bool with_more = false;
    void members(nn::Members& m) override {
      m("", outer);
      with_more ? m("more", more) : m.without(more);
    }
  } net;
  CHECK(names(net.named_parameters()) == names(net.outer.named_parameters()));
  CHECK(names(net.named_buffers()) == Names{"a.mean"});
  CHECK(net.state_dict().size() == net.outer.state_dict().size());
  net.eval();
  CHECK_FALSE(net.outer.a.fc.training());
  CHECK(nn::summary(net) == nn::summary(net.outer));
  net.with_more = true;
  CHECK(net.parameters().size() == net.outer.parameters().size() + 2);
}

TEST_CASE("reset gives the same values for the same seed, and others for layers of one size") {
  nn::Sequential a(nn::Linear(4, 4), nn::Linear(4, 4)), b(nn::Linear(4, 4), nn::Linear(4, 4));
  Generator one(1), again(1);
  a.reset(one);
  b.reset(again);
  CHECK(bit_equal(a.parameters()[0], b.parameters()[0]));
  CHECK_FALSE(bit_equal(a.parameters()[0], a.parameters()[2]));
}

TEST_CASE(
    "a module moves to another dtype: its tensors stay the same ones, shared ones, flags and integers, too") {
  struct Tied : nn::Module {
    nn::Linear first{2, 2}, second{2, 2};
    Tensor mean = full({2}, 0.5), steps = tensor({3});
    Tied() { second.weight = first.weight, second.bias.requires_grad_(false); }
    void members(nn::Members& m) override {
      m("first", first), m("second", second), m.buffer("mean", mean), m.buffer("steps", steps);
    }
  } net;
  const Tensor weight = net.first.weight, before = weight.detach(), mean = net.mean, steps = net.steps;
  const uint32_t version = mean.version();
  net.to(float64);
  CHECK(net.first.weight.dtype() == float64);
  CHECK(net.first.weight.is_same(weight));
  CHECK(net.second.weight.is_same(weight));
  CHECK(before.dtype() == float32);
  CHECK(mean.dtype() == float64);
  CHECK(net.mean.is_same(mean));
  CHECK(mean.version() > version);
  CHECK(net.first.weight.requires_grad());
  CHECK(net.first.weight.is_leaf());
  CHECK_FALSE(net.second.bias.requires_grad());
  CHECK(net.mean.dtype() == float64);
  CHECK(net.steps.is_same(steps));
  CHECK(bit_equal(ops::to(weight.detach(), float32), before));
  const Tensor now = net.first.weight;
  net.to(float64);
  CHECK(net.first.weight.is_same(now));
  net.to(cpu);
  CHECK(net.first.weight.is_same(now));
  CHECK_THAT(testing::text_of([&] { net.to(int64); }), Contains("must be floating, not int64"));
  CHECK(testing::error_of([&] { net.to(Device{Device::Kind{1}, 0}); }).kind() != ErrorKind::failed);
  CHECK(net.first.weight.is_same(now));
}

TEST_CASE("copies of a module and gradients move with it, and strides stay") {
  struct Strided : nn::Layer {
    Tensor flat = tensor({9, 1, 2, 3, 4, 5, 6}, float32);
    Tensor w = flat.alias({2, 3}, {1, 2}, 1).requires_grad_();
    Tensor forward(const Tensor& x) override { return ops::mul(x, w); }
    void members(nn::Members& m) override { m("w", w); }
  } net;
  Strided copy = net;
  const Tensor w = net.w;
  w.set_grad(tensor({{1, 2, 3}, {4, 5, 6}}, float32));
  net.to(float64);
  CHECK(copy.w.is_same(w));
  CHECK(w.dtype() == float64);
  CHECK(w.strides() == Shape{1, 2});
  CHECK(w.to_vector<double>() == std::vector<double>{1, 3, 5, 2, 4, 6});
  CHECK(w.grad().dtype() == float64);
  CHECK(w.grad().to_vector<double>() == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(net.flat.dtype() == float32);
  w.set_grad({});
  autograd::backward(copy(full({2, 3}, 2, float64)).sum());
  CHECK(w.grad().to_vector<double>() == std::vector<double>(6, 2));
}

TEST_CASE(
    "a pass that was recorded before a module moved has the elements of then, and is none for its "
    "parameters") {
  nn::Sequential net(nn::Linear(2, 3), nn::Tanh(), nn::Linear(3, 1)),
      same(nn::Linear(2, 3), nn::Tanh(), nn::Linear(3, 1));
  same.load_state_dict(net.state_dict());
  Tensor x = full({4, 2}, 0.5).requires_grad_();
  const Tensor expected = autograd::grad({same(x).sum()}, {x})[0];
  const bool again = GENERATE(false, true);  // the forward pass is made again in the backward pass
  const Tensor y = again ? autograd::checkpoint([&](const Tensor& in) { return net(in); }, x) : net(x);
  net.to(float64);
  CHECK_THAT(
      testing::text_of([&] { autograd::backward(y.sum(), {}, {.retain_graph = true}); }),
      Contains("the gradient of a leaf float64 [1, 3] came out as float32 [1, 3]: if its module was given "
               "another dtype since, run the forward pass again"));
  CHECK(bit_equal(autograd::grad({y.sum()}, {x})[0], expected));
  for (const Tensor& p : net.parameters()) CHECK(p.dtype() == float64);
}

TEST_CASE("a pass that saved a buffer is refused once that has moved") {
  struct Scaled : nn::Layer {
    Tensor scale = full({2}, 3.0);
    Tensor forward(const Tensor& x) override { return ops::mul(x, scale); }
    void members(nn::Members& m) override { m.buffer("scale", scale); }
  } net;
  Tensor x = ones({2}).requires_grad_();
  const Tensor y = net(x);
  net.to(float64);
  CHECK_THAT(testing::text_of([&] { autograd::backward(y.sum()); }),
             Contains("was changed in place by Module::to"));
}

TEST_CASE("a summary counts every tensor once, and aligns its columns") {
  nn::Sequential net(nn::Linear(784, 128), nn::ReLU(), nn::Linear(128, 10));
  CHECK(nn::summary(net, {64, 784}) ==
        "layer  what              result     parameters    bytes\n"
        "-------------------------------------------------------\n"
        "model  Sequential        [64, 10]            -        -\n"
        "  0    Linear(784, 128)  [64, 128]     100,480  401,920\n"
        "  1    ReLU              [64, 128]           -        -\n"
        "  2    Linear(128, 10)   [64, 10]        1,290    5,160\n"
        "101,770 parameters (101,770 trained), 0 elements of buffers, 397.5 KiB\n");
  Outer outer;
  outer.a.fc.bias.requires_grad_(false);
  outer.out.weight = outer.a.fc.weight;
  CHECK(nn::summary(outer) ==
        "layer   what          parameters  bytes\n"
        "---------------------------------------\n"
        "model   Outer                  1      4\n"
        "  a     Inner                  -     12\n"
        "    fc  Linear(2, 3)           9     36\n"
        "  out   Linear(2, 3)           -      -\n"
        "10 parameters (7 trained), 3 elements of buffers, 52 B\n");
}

TEST_CASE("a summary's pass leaves modes and gradients as they were, even if it fails") {
  nn::Sequential net(nn::Linear(2, 3), nn::Dropout(0.5, 1));
  net[1].eval();
  CHECK_THAT(nn::summary(net, {4, 2}), Contains("Dropout"));
  CHECK(net.training());
  CHECK(net[0].training());
  CHECK_FALSE(net[1].training());
  CHECK_THAT(testing::text_of([&] { nn::summary(net, {4, 5}); }), Contains("[linear]"));
  CHECK(net[0].training());
  CHECK(net(zeros({1, 2})).requires_grad());  // nobody watches any more
}
