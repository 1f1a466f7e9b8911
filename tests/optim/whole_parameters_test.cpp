// What Adafactor and Muon do besides PyTorch's trajectories (oracle_test.cpp): state, halves, refusals.
#include <catch2/catch.hpp>
#include <cmath>

#include "core/graph/autocast.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;
using testing::text_of;

namespace {

Tensor leaf(const Shape& shape, DType dtype = float32) {
  return ops::randn(shape, Generator(3), dtype).requires_grad_();
}

TEST_CASE("adafactor keeps a row and a column of each matrix") {
  const Tensor matrices = leaf({2, 5, 3}), vector = leaf({4});
  optim::Adafactor one({matrices, vector}, {});
  one.step({ones({2, 5, 3}), ones({4})});
  const StateDict state = one.state();
  CHECK(state.at("0.row_var").shape() == Shape{2, 5, 1});
  CHECK(state.at("0.col_var").shape() == Shape{2, 1, 3});
  CHECK(state.at("1.variance").shape() == Shape{4});
  CHECK_FALSE(state.contains("1.row_var"));
  auto broken = state;
  broken["0.row_var"] = zeros({2, 5, 3});
  CHECK_THAT(text_of([&] { one.load_state(broken); }), Contains("0.row_var") && Contains("[2, 5, 1]"));
}

TEST_CASE("muon's step has singular values near 1, of tall and of wide matrices") {
  for (const Shape& shape : {Shape{6, 3}, Shape{3, 6}}) {
    const Tensor p = zeros(shape).requires_grad_();
    optim::Muon({p}, {.lr = 1, .ns_steps = 7}).step({ops::randn(shape, Generator(1))});
    const Tensor made = ops::linalg_svdvals(p.detach());
    const double factor =
        std::sqrt(std::max(1.0, static_cast<double>(shape[0]) / static_cast<double>(shape[1])));
    for (const double value : made.to_vector<double>()) CHECK((value > 0.6 * factor && value < 1.3 * factor));
  }
}

TEST_CASE("a step of operators is the same under autocast, and of empty parameters it is none") {
  const Tensor grad = ops::randn({4, 3}, Generator(2));
  for (const char* name : {"adafactor", "muon"}) {
    INFO(name);
    const Tensor plain = leaf({4, 3}), mixed = plain.detach().clone().requires_grad_(), none = leaf({0, 3});
    optim::make(name, {}, {plain})->step({grad});
    {
      const AutocastGuard amp(bfloat16);
      optim::make(name, {}, {mixed})->step({grad});
    }
    CHECK(bit_equal(plain.detach(), mixed.detach()));
    CHECK_FALSE(plain.grad_fn().node);
    CHECK_NOTHROW(optim::make(name, {}, {none})->step({zeros({0, 3})}));
  }
}

TEST_CASE("small steps of halves add up") {
  for (const char* name : {"adafactor", "muon"}) {
    INFO(name);
    const Tensor half = ones({4, 3}, bfloat16).requires_grad_(), whole = ones({4, 3}).requires_grad_();
    const ValueMap options{{"lr", 1e-4}, {"weight_decay", 0.0}};
    const auto one = optim::make(name, options, {half}), other = optim::make(name, options, {whole});
    const Tensor grad = ops::randn({4, 3}, Generator(2));
    for (int i = 0; i < 100; ++i) one->step({grad}), other->step({grad});
    CHECK(bit_equal(one->state().at("0.master"), whole.detach()));
    CHECK(bit_equal(half.detach(), whole.detach().to(bfloat16)));
  }
}

TEST_CASE("what they cannot update is refused, and by name, too") {
  CHECK_THAT(text_of([] {
               optim::Muon({leaf({3, 2}), leaf({3})}, {});
             }),
             Contains("[muon] parameters must be matrices, got float32 [3]"));
  CHECK_THAT(text_of([] { optim::Muon({leaf({3, 2})}, {.ns_steps = 2.5}); }), Contains("whole number"));
  CHECK_THAT(text_of([] {
               optim::Muon({leaf({3, 2})}, {.match_rms_adamw = true, .spectral_unclamped = true});
             }),
             Contains("got both"));
  CHECK_THAT(text_of([] { optim::Adafactor({leaf({3})}, {.beta2_decay = 0.1}); }), Contains("at most 0"));
  CHECK_THAT(text_of([] { optim::Adafactor({leaf({3})}, {.d = 0.5}); }), Contains("d"));
  CHECK_THAT(text_of([] { optim::make("lbfgs", {}, {leaf({3})}); }), Contains("optim::LBFGS"));
}

}  // namespace
