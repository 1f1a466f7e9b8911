// Adamax and Rprop beside the formulas of their papers.
#include <catch2/catch.hpp>
#include <cmath>

#include "core/tensor/creation.h"
#include "optim/optim.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;
using Values = std::vector<double>;

namespace {

const std::vector<Values> kGrads = {{0.1, -0.2, 0.3, -0.4, 0.5, 0.6},
                                    {0.2, 0.1, -0.3, 0.4, 0.0, 0.2},
                                    {-0.5, 0.25, 0.125, 1.0, 0.75, -0.5},
                                    {0.25, 0.5, 0.5, 0.0, -0.25, -0.125}};

Tensor as(const Values& values, DType t) {
  const Tensor out = empty({2, 3}, t);
  out.copy_(tensor(values, float64).reshape({2, 3}));
  return out;
}

// Follows `expected`, step by step; a second optimizer takes over the state in the middle.
void follow(const std::string& name, const ValueMap& options, const std::vector<Values>& expected) {
  for (const DType t : {float64, float32}) {
    const Tensor p = as({1, -2, 0.5, 0.25, 3, -1.5}, t).requires_grad_();
    auto optimizer = optim::make(name, options, {p});
    for (size_t step = 0; step < kGrads.size(); ++step) {
      INFO(name << " step " << step << " in " << troupe::name(t));
      if (step == 2) {
        auto next = optim::make(name, options, {p});
        next->load_state(optimizer->state());
        optimizer = std::move(next);
      }
      optimizer->step({as(kGrads[step], t)});
      CHECK(testing::difference(p, tensor(expected[step], float64).reshape({2, 3}), 0,
                                t == float64 ? 1e-14 : 1e-6) == "");
    }
  }
}

}  // namespace

// The expected values come from the papers' algorithms in Python.
TEST_CASE("adamax follows the formulas of its paper, with eps and decay as in PyTorch") {
  follow("adamax", {{"lr", 0.1}, {"beta1", 0.8}, {"beta2", 0.95}, {"weight_decay", 0.05}},
         {{0.9000000066666662, -1.9000000033333333, 0.40000000307692296, 0.3499999974193549,
           2.9000000015384617, -1.5999999980952382},
          {0.8172335701726127, -1.8541910379662117, 0.4035987433793556, 0.33569527388916975,
           2.8401709426229282, -1.660150372899975},
          {0.8321526712972864, -1.849542512920726, 0.38554884928284244, 0.29124526043718385,
           2.7747444334645563, -1.6495350164523255},
          {0.8198898526923802, -1.881375665693559, 0.3449318140560925, 0.25979517713247957, 2.733652128553057,
           -1.6294563917567684}});
}

TEST_CASE("rprop follows the rules of its paper: steps grow, shrink, wait once, and have limits") {
  follow("rprop", {{"lr", 0.1}, {"eta_plus", 1.25}, {"step_min", 0.06}, {"step_max", 0.12}},
         {{0.9, -1.9, 0.4, 0.35, 2.9, -1.6},
          {0.78, -1.9, 0.4, 0.35, 2.9, -1.7200000000000002},
          {0.78, -1.96, 0.34, 0.29, 2.8, -1.7200000000000002},
          {0.72, -2.035, 0.265, 0.29, 2.8, -1.6600000000000001}});
}

TEST_CASE("a gradient that is not a number shows in the parameter, also of rprop and adamax") {
  for (const char* name : {"rprop", "adamax"}) {
    INFO(name);
    const Tensor p = tensor({1, 1}, float64).requires_grad_();
    optim::make(name, {}, {p})->step({tensor({std::nan(""), 1}, float64)});
    CHECK(std::isnan(p.to_vector<double>()[0]));
    CHECK(p.to_vector<double>()[1] < 1);
  }
}

TEST_CASE("rprop's options have an order") {
  const Tensor p = tensor({1}, float64).requires_grad_();
  CHECK_THAT(testing::text_of([&] { optim::Rprop({p}, {.step_min = 2, .step_max = 1}); }),
             Catch::Contains("step_min must be at most step_max, got 2"));
  CHECK_THAT(testing::text_of([&] { optim::Rprop({p}, {.eta_plus = 0.5}); }),
             Catch::Contains("option eta_plus must be a finite number of at least 1"));
}
