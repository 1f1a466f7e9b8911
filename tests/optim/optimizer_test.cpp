// What optimizers share: pairs, checks, options and state.
#include <catch2/catch.hpp>
#include <cmath>

#include "autograd/engine.h"
#include "core/base/error.h"
#include "core/base/generator.h"
#include "core/graph/node.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;
using Values = std::vector<double>;
using optim::Adam;
using optim::AdamW;
using optim::SGD;

namespace {

Tensor param(const Values& values) { return tensor(values, float64).requires_grad_(); }

// How far parameters have moved, in the direction of the float64 run, as a part of that run's way.
double way(DType t, const SGD::Options& options, const Values& reference, Values* moved) {
  constexpr int64_t kCount = 2000;
  Generator random(3);
  Tensor p = empty({kCount}, t), g = empty({kCount}, t);
  for (const Tensor& x : {p, g}) {
    Tensor source = empty({kCount});
    for (int64_t i = 0; i < kCount; ++i) source.data<float>()[i] = static_cast<float>(random.uniform(-1, 1));
    x.copy_(source);
  }
  const Values start = p.to_vector<double>();
  p.requires_grad_();
  SGD sgd({p}, options);
  for (int step = 0; step < 200; ++step) {
    // Of varying size, so that the roundings of the parameters themselves average out.
    const Tensor scaled = empty({kCount}, t);
    const auto from = g.to_vector<float>();
    for (int64_t i = 0; i < kCount; ++i)
      scaled.alias({}, {}, i).fill_(from[static_cast<size_t>(i)] *
                                    static_cast<float>(random.uniform(0.5, 1.5)));
    sgd.step({scaled});
  }
  double along = 0, whole = 0;
  *moved = p.to_vector<double>();
  for (size_t i = 0; i < start.size(); ++i) {
    (*moved)[i] -= start[i];
    const double wanted = reference.empty() ? (*moved)[i] : reference[i];
    along += (*moved)[i] * wanted, whole += wanted * wanted;
  }
  return along / whole;
}

}  // namespace

TEST_CASE("sgd in float32 goes as far as in float64: its rates are not rounded") {
  for (const SGD::Options& o : {SGD::Options{.lr = 0.05, .momentum = 0.9}, SGD::Options{.lr = 0.1}}) {
    Values wanted, got;
    way(float64, o, {}, &wanted);
    CHECK(way(float32, o, wanted, &got) == Approx(1).epsilon(0).margin(3e-8));
  }
}

TEST_CASE("step() takes .grad and leaves parameters without one alone") {
  Tensor a = param({1, 2}), b = param({3});
  a.set_grad(tensor({10, 20}, float64));
  SGD sgd({a, b}, {.lr = 0.1});
  const uint32_t version = a.version();
  sgd.step();
  CHECK(a.to_vector<double>() == Values{0, 0});
  CHECK(b.to_vector<double>() == Values{3});
  CHECK(a.version() == version + 1);
  CHECK(b.version() == 0);
  sgd.zero_grad();
  CHECK_FALSE(a.grad().defined());
  sgd.step();
  CHECK(a.version() == version + 1);
}

TEST_CASE("a step with a scale is one with scaled gradients, to the bit") {
  Generator random(5);
  for (const char* kind : {"sgd", "adam", "adamw", "adamax", "rmsprop", "rprop", "adagrad", "adadelta",
                           "lamb", "nadam", "radam", "lion", "adafactor", "muon"})
    for (const DType dtype : {float32, float64}) {
      INFO(kind << " " << name(dtype));
      const Tensor start = ops::randn({37, 2}, random, dtype);
      const Tensor a = start.clone_data().requires_grad_(), b = start.clone_data().requires_grad_();
      const auto one = optim::make(kind, {{"lr", 0.1}}, {a}), other = optim::make(kind, {{"lr", 0.1}}, {b});
      for (const double scale : {0.3, 1.0, -2.5}) {
        const Tensor grad = ops::randn({37, 2}, random, dtype);
        one->step({grad}, scale);
        other->step({ops::mul(grad, scale)});
        CHECK(a.detach().to(float64).to_vector<double>() == b.detach().to(float64).to_vector<double>());
      }
    }
}

TEST_CASE("step(grads) needs one fitting gradient per parameter, and changes nothing otherwise") {
  Tensor a = param({1, 2}), b = param({3});
  Adam adam({a, b});
  const Tensor good = tensor({1, 1}, float64);
  CHECK_THAT(testing::text_of([&] { adam.step({good}); }), Contains("1 gradients for 2 parameters"));
  CHECK_THAT(testing::text_of([&] {
               adam.step({good, good});
             }),
             Contains("gradient 1 is float64 [2]; its parameter is float64 [1]"));
  CHECK_THAT(testing::text_of([&] {
               adam.step({good, tensor({1}, float32)});
             }),
             Contains("gradient 1 is float32 [1]"));
  CHECK(a.to_vector<double>() == Values{1, 2});
  CHECK_FALSE(adam.state().contains("0.step"));
}

TEST_CASE("strided parameters and gradients, and a gradient that is the parameter, are right") {
  const Tensor whole = tensor({{1, 2, 3}, {4, 5, 6}}, float64);
  Tensor column = whole.alias({2}, {3}, 1);
  SGD sgd({column}, {.lr = 1});
  sgd.step({tensor({5}, float64).alias({2}, {0}, 0)});
  CHECK(whole.to_vector<double>() == Values{1, -3, 3, 4, 0, 6});
  Tensor p = param({2, 4});
  SGD itself({p}, {.lr = 0.5});
  itself.step({p.detach()});
  CHECK(p.to_vector<double>() == Values{1, 2});
}

TEST_CASE("a step between forward and backward is an error that names the operator and the step") {
  const Tensor w = param({2}), x = param({3});
  const Tensor loss = ops::mul(x, w);
  SGD({w}, {.lr = 0.1}).step({tensor({1}, float64)});
  CHECK_THAT(testing::text_of([&] { autograd::backward(loss); }),
             Contains("[mul] input 1 (float64 [1])") && Contains("changed in place by the optimizer's step"));
}

TEST_CASE("parameters must be floating leaves, once each") {
  Tensor p = param({1});
  CHECK_THAT(testing::text_of([&] { SGD({Tensor()}); }), Contains("parameter 0 is undefined"));
  CHECK_THAT(testing::text_of([&] { SGD({tensor({1})}); }), Contains("int64 [1]: not floating"));
  CHECK_THAT(testing::text_of([&] { SGD({p, param({2}), p}); }), Contains("parameters 0 and 2 are the same"));
  struct Made : Node {
    Tensors apply(Tensors&& g) override { return std::move(g); }
    std::string name() const override { return "made"; }
  };
  Tensor result = tensor({1}, float64);
  result.set_grad_fn({make_ref<Made>(), 0});
  CHECK_THAT(testing::text_of([&] { SGD({result}); }), Contains("is no leaf: it was made by made"));
}

TEST_CASE("options out of range are refused, by the constructor and from a map") {
  const Tensors p{param({1})};
  CHECK_THAT(testing::text_of([&] { SGD(p, {.lr = -1}); }),
             Contains("[sgd] option lr must be a finite number of at least 0"));
  CHECK_THAT(testing::text_of([&] { SGD(p, {.lr = NAN}); }), Contains("got nan"));
  CHECK_THAT(testing::text_of([&] { SGD(p, {.momentum = HUGE_VAL}); }), Contains("momentum"));
  CHECK_THAT(testing::text_of([&] { SGD(p, {.momentum = 0, .nesterov = true}); }),
             Contains("nesterov needs momentum"));
  CHECK_THAT(testing::text_of([&] { SGD(p, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}); }),
             Contains("no dampening"));
  CHECK_THAT(testing::text_of([&] { Adam(p, {.beta1 = 1}); }), Contains("[adam] option beta1 must be in [0"));
  CHECK_THAT(testing::text_of([&] { AdamW(p, {.beta2 = -0.1}); }), Contains("[adamw] option beta2"));
  CHECK_THAT(testing::text_of([&] { Adam(p, {.eps = -1}); }), Contains("eps"));
  CHECK_THAT(testing::text_of([&] { AdamW(p, {.weight_decay = -1}); }), Contains("weight_decay"));
  CHECK_THAT(testing::text_of([&] {
               optim::options_from_map<AdamW::Options>({{"eps", NAN}});
             }),
             Contains("[adamw] option eps"));
  SGD sgd(p);
  CHECK_THAT(testing::text_of([&] { sgd.set_lr(NAN); }), Contains("lr must be a finite number"));
  CHECK(sgd.lr() == 1e-3);
}

TEST_CASE("options travel as maps") {
  const AdamW::Options given{.lr = 0.5, .beta2 = 0.25, .amsgrad = true};
  const AdamW::Options got =
      optim::options_from_map<AdamW::Options>(AdamW({param({1})}, given).options_map(0));
  CHECK(got.lr == 0.5);
  CHECK(got.beta1 == 0.9);
  CHECK(got.beta2 == 0.25);
  CHECK(got.weight_decay == 0.01);
  CHECK(got.amsgrad);
  CHECK(optim::options_from_map<SGD::Options>({{"lr", int64_t{1}}}).lr == 1);
  CHECK_THAT(
      testing::text_of([] {
        optim::options_from_map<SGD::Options>({{"momentm", 0.9}});
      }),
      Contains("[sgd] option \"momentm\" is unknown; did you mean \"momentum\"? (known: momentum, lr, "));
  CHECK_THAT(testing::text_of([] {
               optim::options_from_map<SGD::Options>({{"learning_rate", 0.1}});
             }),
             Contains("[sgd] option \"learning_rate\" is unknown; known: lr, momentum, dampening, "
                      "weight_decay, nesterov"));
  CHECK_THAT(testing::text_of([] {
               optim::options_from_map<SGD::Options>({{"lr", std::string("high")}});
             }),
             Contains("lr must be a double, got string"));
  CHECK_THAT(testing::text_of([] {
               optim::options_from_map<SGD::Options>({{"nesterov", 1.0}});
             }),
             Contains("nesterov must be a bool, got double"));
}

TEST_CASE("make() knows optimizers by name") {
  const Tensors p{param({1})};
  const auto made = optim::make("sgd", {{"lr", 0.25}, {"momentum", 0.5}}, p);
  REQUIRE(dynamic_cast<SGD*>(made.get()));
  CHECK(made->lr() == 0.25);
  CHECK(dynamic_cast<Adam*>(optim::make("adam", {}, p).get()));
  const auto adamw = optim::make("adamw", {}, p);
  REQUIRE(dynamic_cast<AdamW*>(adamw.get()));
  CHECK(dynamic_cast<AdamW&>(*adamw).options().weight_decay == 0.01);
  CHECK_THAT(testing::text_of([&] { optim::make("adan", {}, p); }),
             Contains("unknown optimizer \"adan\"; did you mean \"adam\"?"));
  CHECK_THAT(
      testing::text_of([&] { optim::make("conjugate gradients", {}, p); }),
      Contains(
          "known: sgd, adam, adamw, adamax, rmsprop, rprop, adagrad, adadelta, lamb, nadam, radam, lion, "
          "adafactor, muon"));
  CHECK_THAT(testing::text_of([&] {
               optim::make("adam", {{"betas", 0.9}}, p);
             }),
             Contains("did you mean \"beta1\"?"));
}

TEST_CASE("set_lr holds from the next step on, and shows in options()") {
  Tensor p = param({1});
  SGD sgd({p}, {.lr = 1});
  sgd.set_lr(0.25);
  sgd.step({tensor({1}, float64)});
  CHECK(p.item() == 0.75);
  CHECK(sgd.options().lr == 0.25);
}

TEST_CASE("state lists what steps left behind, and is a copy") {
  Tensor a = param({1, 2}), b = param({3});
  Adam adam({a, b}, {.amsgrad = true});
  CHECK(adam.state().size() == 7);  // the options
  adam.step({Tensor(), tensor({2}, float64)});
  const auto state = adam.state();
  std::vector<std::string> names;
  for (const auto& [name, t] : state)
    if (!name.starts_with("group0.")) names.push_back(name);
  CHECK(names == std::vector<std::string>{"1.exp_avg", "1.exp_avg_sq", "1.max_exp_avg_sq", "1.step"});
  CHECK(state.at("1.step").item() == 1);
  CHECK(state.at("1.exp_avg").item() == Approx(0.2));
  adam.step({Tensor(), tensor({2}, float64)});
  CHECK(state.at("1.exp_avg").item() == Approx(0.2));
  adam.load_state(state);
  CHECK(adam.state().at("1.step").item() == 1);
  adam.load_state({});
  CHECK_FALSE(adam.state().contains("1.step"));
}

TEST_CASE("state that does not fit is refused and changes nothing") {
  Tensor a = param({1, 2});
  SGD sgd({a}, {.lr = 0.1, .momentum = 0.9});
  sgd.step({tensor({1, 1}, float64)});
  const auto good = sgd.state();
  const auto with = [&](auto change) {
    auto state = good;
    change(state);
    return testing::text_of([&] { sgd.load_state(state); });
  };
  CHECK_THAT(with([](auto& s) { s.erase("0.momentum_buffer"); }), Contains("0.momentum_buffer is missing"));
  CHECK_THAT(with([](auto& s) { s.erase("0.step"); }), Contains("or its step is missing"));
  CHECK_THAT(with([](auto& s) { s["1.step"] = s["0.step"]; }),
             Contains("1.step fits none of the 1 parameters"));
  CHECK_THAT(with([](auto& s) { s["0.exp_avg"] = s["0.momentum_buffer"]; }), Contains("0.exp_avg fits none"));
  CHECK_THAT(with([](auto& s) { s["0.momentum_buffer"] = tensor({1}, float64); }),
             Contains("0.momentum_buffer is float64 [1], expected float64 [2]"));
  CHECK_THAT(with([](auto& s) { s["0.step"] = tensor(1, float64); }), Contains("expected int64"));
  CHECK_THAT(with([](auto& s) { s["0.step"] = tensor(-3); }), Contains("0.step is -3"));
  CHECK_THAT(with([](auto& s) { s["0.step"] = Tensor(); }), Contains("undefined"));
  CHECK(bit_equal(sgd.state().at("0.momentum_buffer"), good.at("0.momentum_buffer")));
}

TEST_CASE("small updates of halves add up in the master copy") {
  for (const DType t : {bfloat16, float16})
    for (const DType gradients : {t, float32}) {
      // 1,000 updates of 2^-13: each is less than half of the distance of 1 to its neighbours.
      Tensor p = ones({3}, t).requires_grad_();
      const Tensor g = full({3}, -1, gradients);
      SGD sgd({p}, {.lr = 0x1p-13});
      sgd.step({g});
      CHECK(p.to_vector<double>() == Values(3, 1));
      for (int i = 1; i < 1000; ++i) sgd.step({g});
      CHECK(p.dtype() == t);
      const double wanted = 1 + 1000 * 0x1p-13;
      CHECK(sgd.state().at("0.master").dtype() == float32);
      CHECK(sgd.state().at("0.master").to_vector<double>() == Values(3, wanted));
      CHECK(p.to_vector<double>() == full({3}, wanted, t).to_vector<double>());
      CHECK(p.to_vector<double>()[0] > 1.11);
    }
}

TEST_CASE("a half goes the way of its float32 twin, rounded, with every slot in float32") {
  Generator random(8);
  Tensor wide = empty({50}), narrow = empty({50}, bfloat16);
  for (int64_t i = 0; i < 50; ++i) narrow.data<BFloat16>()[i] = BFloat16(random.uniform(-1, 1));
  wide.copy_(narrow);
  wide.requires_grad_(), narrow.requires_grad_();
  AdamW a({wide}), b({narrow});
  for (int step = 0; step < 20; ++step) {
    const Tensor g = empty({50}, bfloat16), same = empty({50});
    for (int64_t i = 0; i < 50; ++i) g.data<BFloat16>()[i] = BFloat16(random.normal());
    same.copy_(g);
    a.step({same});
    b.step({g});
  }
  const Tensor rounded = empty({50}, bfloat16);
  rounded.copy_(wide);
  CHECK(bit_equal(rounded, narrow.detach()));
  CHECK(bit_equal(b.state().at("0.master"), wide.detach()));
  CHECK(bit_equal(b.state().at("0.exp_avg"), a.state().at("0.exp_avg")));
}

TEST_CASE("master copies are saved, loaded and checked, and follow a parameter that was written") {
  const auto start = [] { return ones({2}, bfloat16).requires_grad_(); };
  Tensor p = start(), q = start();
  const Tensor g = full({2}, -1, bfloat16);
  SGD a({p}, {.lr = 0x1p-10, .momentum = 0.5}), b({q}, {.lr = 0x1p-10, .momentum = 0.5});
  for (int i = 0; i < 3; ++i) a.step({g});
  auto state = a.state();
  CHECK(state.count("0.master") == 1);
  q.detach().copy_(p.detach());
  b.load_state(state);
  for (int i = 0; i < 5; ++i) a.step({g}), b.step({g});
  CHECK(bit_equal(p.detach(), q.detach()));
  CHECK(bit_equal(a.state().at("0.master"), b.state().at("0.master")));

  auto without = state;
  without.erase("0.master");
  CHECK_THAT(testing::text_of([&] { b.load_state(without); }), Contains("[optim] state 0.master is missing"));
  state["0.master"] = zeros({2}, bfloat16);
  CHECK_THAT(testing::text_of([&] { b.load_state(state); }),
             Contains("state 0.master is bfloat16 [2], expected float32 [2]"));

  const double kept = a.state().at("0.master").to_vector<double>()[0];
  p.alias({}, {}, 1).fill_(5);  // somebody loads another value into one element
  a.set_lr(0);
  a.step({g});
  CHECK(a.state().at("0.master").to_vector<double>() == Values{kept, 5});
  CHECK(p.to_vector<double>()[1] == 5);
}

TEST_CASE("gradients of halves may be float32, no others") {
  Tensor p = zeros({2}, bfloat16).requires_grad_(), w = zeros({2}).requires_grad_();
  SGD sgd({p, w}, {.lr = 1});
  const Tensor half = zeros({2}, bfloat16), single = zeros({2});
  CHECK_THAT(testing::text_of([&] {
               sgd.step({zeros({2}, float64), single});
             }),
             Contains("gradient 0 is float64 [2]"));
  CHECK_THAT(testing::text_of([&] {
               sgd.step({zeros({2}, float16), single});
             }),
             Contains("gradient 0 is float16 [2]"));
  CHECK_THAT(testing::text_of([&] { sgd.step({half, half}); }), Contains("gradient 1 is bfloat16 [2]"));
  sgd.step({single, single});
  sgd.step({half, single});
  CHECK(sgd.state().at("0.step").item() == 2);
}

TEST_CASE("small gradients of halves survive unscaling, and clipping keeps their dtype") {
  Tensor p = ones({4}, float16).requires_grad_();
  SGD sgd({p}, {.lr = 1});
  optim::LossScaler scaler({.init_scale = 65536});
  p.set_grad(full({4}, 3e-4, float16));  // 4.6e-9 unscaled: float16 would make it 0
  CHECK(scaler.step(sgd));
  CHECK(p.grad().dtype() == float32);
  CHECK(p.grad().to_vector<double>()[0] == Approx(3e-4 / 65536).epsilon(1e-3));
  p.set_grad(tensor({3, 4, 0, 0}, float16));
  CHECK(optim::clip_grad_norm_({p}, 1) == 5);
  CHECK(p.grad().dtype() == float16);
  CHECK(p.grad().to_vector<double>()[1] == Approx(0.8).epsilon(1e-3));
  optim::clip_grad_value_({p}, 0.5);
  CHECK(p.grad().dtype() == float16);
  CHECK(p.grad().to_vector<double>()[0] == 0.5);
  p.set_grad(full({4}, HUGE_VAL, float16));
  scaler.update();
  CHECK_FALSE(scaler.step(sgd));
}

TEST_CASE(
    "an optimizer goes on with a module that moved to another dtype, as one that is made with it then") {
  const std::pair<DType, DType> moves[] = {{float32, float64},  {float64, float32},  {float32, bfloat16},
                                           {bfloat16, float32}, {bfloat16, float64}, {bfloat16, float16}};
  Generator random(5);
  const Tensor x = ops::randn({8, 3}, random);
  for (const std::string name : {"sgd", "adam", "adamw", "adamax", "rmsprop", "rprop", "adagrad", "adadelta",
                                 "lamb", "nadam", "radam", "lion", "adafactor", "muon"})
    for (const auto& [from, to] : moves) {
      INFO(name << " from " << troupe::name(from) << " to " << troupe::name(to));
      const ValueMap options = name == "sgd" ? ValueMap{{"momentum", 0.9}} : ValueMap();
      nn::Linear net(3, 2, name != "muon");  // which takes matrices alone
      const auto pass = [&] {
        net.zero_grad();
        autograd::backward(net(x.to(net.weight.dtype())).square().sum());
      };
      net.to(from);
      const auto optimizer = optim::make(name, options, net.parameters());
      for (int i = 0; i < 3; ++i) pass(), optimizer->step();
      net.to(to);
      Tensors twins;
      for (const Tensor& p : net.parameters()) twins.push_back(p.clone_data().requires_grad_());
      const auto twin = optim::make(name, options, twins);
      twin->load_state(optimizer->state());
      const Tensor before = net.weight.clone_data();
      for (int i = 0; i < 20; ++i) {
        pass();
        Tensors grads;
        for (const Tensor& p : net.parameters()) grads.push_back(p.grad());
        optimizer->step(), twin->step(grads);
      }
      CHECK(net.weight.dtype() == to);
      CHECK_FALSE(bit_equal(net.weight.detach(), before));
      for (size_t i = 0; i < twins.size(); ++i)
        CHECK(bit_equal(net.parameters()[i].detach(), twins[i].detach()));
    }
}

TEST_CASE("a gradient in the dtype of before its parameter moved is refused, with nothing changed") {
  nn::Linear net(3, 2);
  SGD sgd(net.parameters(), {.lr = 0.1});
  const Tensor before = ones({2, 3});
  net.to(float64);
  const Tensor weight = net.weight.clone_data();
  CHECK_THAT(testing::text_of([&] {
               sgd.step({before, {}});
             }),
             Contains("[optim] gradient 0 is float32 [2, 3]; its parameter is float64 [2, 3]"));
  CHECK(bit_equal(net.weight.detach(), weight));
}
