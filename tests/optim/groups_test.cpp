// Groups of parameters with options of their own; LAMB's formula.
#include <catch2/catch.hpp>
#include <cmath>

#include "core/base/error.h"
#include "core/base/generator.h"
#include "core/tensor/creation.h"
#include "optim/gradient_norm.h"
#include "optim/optim.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;
using Catch::Contains;
using optim::AdamW;
using optim::LAMB;
using optim::RMSprop;
using optim::SGD;
using testing::text_of;
using Values = std::vector<double>;

namespace {

Tensor param(const Values& values) { return tensor(values, float64).requires_grad_(); }

}  // namespace

TEST_CASE("each group steps by its own options") {
  Tensor a = param({1}), b = param({1}), c = param({1});
  SGD sgd({SGD::Group{{a}, {.lr = 1}}, SGD::Group{{b, c}, {.lr = 0.5, .weight_decay = 1}}});
  CHECK(sgd.group_count() == 2);
  CHECK(sgd.params().size() == 3);
  const Tensor g = tensor({0.25}, float64);
  sgd.step({g, g, g});
  CHECK(a.item() == 0.75);
  CHECK(b.item() == 1 - 0.5 * 1.25);
  CHECK(c.item() == b.item());
  sgd.change_options(1, {{"lr", 0.0}, {"weight_decay", int64_t{2}}});
  CHECK(sgd.lr(0) == 1);
  CHECK(sgd.lr(1) == 0);
  CHECK(sgd.options(1).weight_decay == 2);
  CHECK(sgd.number("weight_decay", 1) == 2);
  sgd.set_lr(0.125);
  CHECK(sgd.lr(0) == 0.125);
  CHECK(sgd.lr(1) == 0.125);
}

TEST_CASE("options of groups are checked, and a refused change changes nothing") {
  Tensor a = param({1}), b = param({1});
  CHECK_THAT(text_of([&] {
               SGD({SGD::Group{{a}, {}}, SGD::Group{{b}, {.lr = -1}}});
             }),
             Contains("[sgd] option lr"));
  CHECK_THAT(text_of([&] {
               SGD({SGD::Group{{a}, {}}, SGD::Group{{b, a}, {}}});
             }),
             Contains("parameters 0 and 2 are the same tensor"));
  RMSprop r({RMSprop::Group{{a}, {}}, RMSprop::Group{{b}, {.alpha = 0.5}}});
  const auto change = [&](size_t group, const ValueMap& map) {
    return text_of([&] { r.change_options(group, map); });
  };
  CHECK_THAT(change(2, {}), Contains("there is no group 2: there are 2"));
  CHECK_THAT(change(1, {{"lr", 0.5}, {"alhpa", 0.5}}), Contains("did you mean \"alpha\"?"));
  CHECK_THAT(change(1, {{"eps", -1.0}, {"lr", 0.5}}), Contains("[rmsprop] option eps"));
  CHECK(r.lr(1) == 0.01);
  CHECK(change(1, {{"centered", true}}) == "no error");  // before the first step
  r.step({Tensor(), tensor({1}, float64)});
  CHECK_THAT(change(1, {{"centered", false}}), Contains("parameter 1 has stepped"));
  CHECK(r.options(1).centered);
  CHECK(change(0, {{"momentum", 0.5}}) == "no error");  // has not
  CHECK_THAT(text_of([&] { r.number("centered"); }),
             Contains("no option \"centered\" that is a number; there are alpha, "));
  CHECK_THAT(text_of([&] { r.number("lr", 7); }), Contains("no group 7"));
}

TEST_CASE("a state brings the options of all groups, and goes on from there") {
  const Tensor g = tensor({0.25, -1}, float64);
  const auto make = [](const Tensor& a, const Tensor& b, double decay) {
    return AdamW({AdamW::Group{{a}, {.lr = 0.1, .weight_decay = decay, .amsgrad = decay == 0}},
                  AdamW::Group{{b}, {.lr = 0.2}}});
  };
  Tensor a = param({1, 2}), b = param({3, 4});
  AdamW whole = make(a, b, 0);
  whole.set_lr(0.3);
  whole.step({g, g});
  const auto state = whole.state();
  CHECK(state.at("group1.lr").item() == 0.3);
  CHECK(state.at("group0.amsgrad").dtype() == boolean);
  Tensor a2 = param(a.to_vector<double>()), b2 = param(b.to_vector<double>());
  AdamW next = make(a2, b2, 0.5);
  next.load_state(state);
  CHECK(next.options(0).amsgrad);
  CHECK(next.options(0).weight_decay == 0);
  CHECK(next.lr(1) == 0.3);
  whole.step({g, g});
  next.step({g, g});
  CHECK(bit_equal(a, a2));
  CHECK(bit_equal(b, b2));

  AdamW other = make(param({1, 2}), param({3, 4}), 0.5);
  auto bad = state;
  bad["group0.lr"] = tensor(-1, float64);
  CHECK_THAT(text_of([&] { other.load_state(bad); }), Contains("[adamw] option lr"));
  bad["group0.lr"] = tensor(1, float32);
  CHECK_THAT(text_of([&] { other.load_state(bad); }),
             Contains("group0.lr is float32 [], expected float64 []"));
  bad = state;
  bad["group2.lr"] = state.at("group1.lr");
  CHECK_THAT(text_of([&] { other.load_state(bad); }), Contains("group2.lr fits none"));
  CHECK(other.options(0).weight_decay == 0.5);
  CHECK(other.lr(1) == 0.2);
}

TEST_CASE("groups by name may be empty, and have the bits of typed ones") {
  const Tensor g = tensor({0.25, -1}, float64);
  Tensor a = param({1, 2}), b = param({3, 4}), a2 = param({1, 2}), b2 = param({3, 4});
  AdamW typed({AdamW::Group{{a}, {.lr = 0.5}}, AdamW::Group{{b}, {.lr = 0.25, .weight_decay = 0}}});
  const auto named = optim::make(
      "adamw", {{{{"lr", 0.5}}, {a2}}, {{{"lr", 8.0}}}, {{{"lr", 0.25}, {"weight_decay", 0.0}}, {b2}}});
  CHECK(named->group_count() == 3);
  CHECK(named->lr(1) == 8);
  for (int step = 0; step < 3; ++step) typed.step({g, g}), named->step({g, g});
  CHECK(bit_equal(a, a2));
  CHECK(bit_equal(b, b2));
  const auto none = optim::make("adamw", {{{{"lr", 0.5}}}, {{{"lr", 0.125}}}});
  CHECK(none->params().empty());
  CHECK(none->lr(1) == 0.125);
  CHECK_THAT(text_of([] { optim::make("adamw", std::vector<optim::OptionGroup>{}); }),
             Contains("the options of at least one group"));
  CHECK_THAT(text_of([] {
               optim::make("adamw", {{{{"lr", 0.5}}}, {{{"lr", -1.0}}}});
             }),
             Contains("[adamw] option lr"));
}

TEST_CASE("states have the names that parameters were given") {
  Tensor a = param({1}), b = param({2});
  SGD sgd({a, b}, {.lr = 0.5, .momentum = 0.5});
  sgd.set_names({"fc.weight", "fc.bias"});
  sgd.step({tensor({0.25}, float64), tensor({-1}, float64)});
  const auto state = sgd.state();
  CHECK(state.contains("fc.weight.momentum_buffer"));
  CHECK(state.contains("fc.bias.step"));
  SGD turned({b, a}, {.lr = 0.5, .momentum = 0.5});
  CHECK_THAT(text_of([&] { turned.load_state(state); }), Contains("state fc.bias.momentum_buffer fits none"));
  turned.set_names({"fc.bias", "fc.weight"});
  turned.load_state(state);
  CHECK(bit_equal(turned.state().at("fc.bias.momentum_buffer"), state.at("fc.bias.momentum_buffer")));
  CHECK_THAT(text_of([&] { sgd.set_names({"a"}); }), Contains("1 names for 2 parameters"));
  CHECK_THAT(text_of([&] { sgd.set_names({"a", "a"}); }), Contains("two parameters are called a"));
}

TEST_CASE("adagrad starts from its initial accumulator") {
  Tensor p = param({1});
  optim::Adagrad adagrad({p}, {.lr = 1, .initial_accumulator_value = 3, .eps = 0});
  adagrad.step({tensor({1}, float64)});
  CHECK(p.item() == 0.5);  // 1 / sqrt(3 + 1)
  adagrad.step({tensor({-2}, float64)});
  CHECK(p.item() == Approx(0.5 + 2 / std::sqrt(8.0)).epsilon(1e-15));
}

// The expected values come from the algorithm in NumPy; PyTorch has no LAMB.
TEST_CASE("lamb follows the formulas of its paper") {
  const std::vector<Values> grads = {{0.1, -0.2, 0.3, -0.4, 0.5, 0.6},
                                     {0.2, 0.1, -0.3, 0.4, -0.1, 0.2},
                                     {-0.5, 0.25, 0.125, 1.0, 0.75, -0.5}};
  const std::vector<Values> expected = {{0.8326037412511726, -1.8246316177972508, 0.3365883415884553,
                                         0.4074332965162746, 2.8166598131877736, -1.6474692714546033},
                                        {0.5702904060790939, -1.7312554576471242, 0.34592831969439536,
                                         0.3883883345587275, 2.6463245721289095, -1.8536339463221403},
                                        {0.652745686638566, -1.8147100354989565, 0.2932702434915167,
                                         0.19192225506744612, 2.3547464253186208, -1.8665436954685743}};
  for (const DType t : {float64, float32}) {
    Tensor p = tensor({{1, -2, 0.5}, {0.25, 3, -1.5}}, float64), q = empty({2, 3}, t);
    q.copy_(p);
    LAMB lamb({q.requires_grad_()}, {.lr = 0.1, .beta2 = 0.99, .weight_decay = 0.05});
    for (size_t step = 0; step < grads.size(); ++step) {
      Tensor g = empty({2, 3}, t);
      g.copy_(tensor(grads[step], float64).reshape({2, 3}));
      lamb.step({g});
      CHECK(testing::difference(q, tensor(expected[step], float64).reshape({2, 3}), 0,
                                t == float64 ? 1e-14 : 1e-6) == "");
    }
  }
}

TEST_CASE("lamb's ratio is 1 where a norm is zero") {
  Tensor p = param({0, 0}), still = param({2});
  LAMB lamb({p, still}, {.lr = 0.5, .weight_decay = 0});
  lamb.step({tensor({1, -1}, float64), tensor({0}, float64)});
  CHECK(p.to_vector<double>()[0] == Approx(-0.5).epsilon(1e-5));
  CHECK(still.item() == 2);
}

TEST_CASE("norms are those of plain loops, for any size and strides") {
  Generator random(1);
  for (const int64_t n : {0, 1, 15, 16, 17, 1000}) {
    const Tensor t = empty({n}, float64);
    double sum = 0, most = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double x = t.data<double>()[i] = random.uniform(-1, 1);
      sum += x * x, most = std::max(most, std::fabs(x));
    }
    CHECK(optim::sum_of_squares(t) == Approx(sum).epsilon(1e-13));
    CHECK(optim::largest(t) == most);
    CHECK(optim::all_finite(t));
    for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
      if (n == 0) break;
      t.alias({}, {}, n - 1).fill_(bad);
      CHECK_FALSE(optim::all_finite(t));
      CHECK_FALSE(std::isfinite(optim::largest(t)));
      CHECK_FALSE(std::isfinite(optim::sum_of_squares(t)));
    }
  }
  CHECK(optim::sum_of_squares(tensor({3e38F, 4}).alias({2, 2}, {0, 0}, 0)) ==
        4 * double(3e38F) * double(3e38F));
}

TEST_CASE("one element that is not finite is found wherever it is") {
  for (const DType dtype : {float32, float64, bfloat16, float16})
    for (const int64_t n : {1, 7, 37, 130}) {
      const Tensor t = full({n}, dtype == float32 ? -3.4028234e38 : -6e4).to(dtype);
      CAPTURE(dtype, n);
      CHECK(optim::all_finite(t));
      for (int64_t i = 0; i < n; ++i)
        for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
          const Tensor broken = t.clone_data();
          broken.alias({}, {}, i).fill_(bad);
          CHECK_FALSE(optim::all_finite(broken));
        }
    }
}
