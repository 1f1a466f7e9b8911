// Schedules follow PyTorch 1.13's values; they set all groups, and can be saved.
#include <catch2/catch.hpp>
#include <cmath>

#include "core/tensor/creation.h"
#include "optim/optim.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::optim;
using Catch::Contains;
using testing::text_of;
using Values = std::vector<double>;

namespace {

void follow(const Schedule& schedule, const Values& expected, double base = 0.5) {
  for (size_t step = 0; step < expected.size(); ++step) {
    INFO("step " << step);
    CHECK(schedule(base, static_cast<int64_t>(step)) == Approx(expected[step]).epsilon(1e-13).margin(1e-16));
  }
}

Tensor param() { return tensor({1}, float64).requires_grad_(); }

// Both rates of two groups after each measure.
void follow(Plateau plateau, const Values& measures, const Values& expected) {
  SGD sgd({SGD::Group{{param()}, {.lr = 0.5}}, SGD::Group{{param()}, {.lr = 0.5}}});
  for (size_t i = 0; i < measures.size(); ++i) {
    INFO("measure " << i);
    const double before = sgd.lr();
    const bool lowered = plateau.step(sgd, measures[i]);
    CHECK(sgd.lr(0) == Approx(expected[i]).epsilon(1e-13));
    CHECK(sgd.lr(1) == sgd.lr(0));
    CHECK((lowered || sgd.lr() == before));
  }
}

}  // namespace

TEST_CASE("schedules have PyTorch's values") {
  follow(step_decay(3, 0.2), {0.5, 0.5, 0.5, 0.1, 0.1, 0.1, 0.02, 0.02});
  follow(multi_step({2, 5, 5}, 0.3), {0.5, 0.5, 0.15, 0.15, 0.15, 0.0135, 0.0135, 0.0135});
  follow(exponential(0.7), {0.5, 0.35, 0.245, 0.1715, 0.12005, 0.084035});
  follow(cosine(6, 0.05), {0.5, 0.4698557158514987, 0.3875, 0.275, 0.1625, 0.0801442841485013, 0.05,
                           /*it stays:*/ 0.05, 0.05});
  follow(warm_up(4, {}, 0.25), {0.125, 0.21875, 0.3125, 0.40625, 0.5, 0.5, 0.5});
  follow(warm_up(4, cosine(5), 0.25), {0.125, 0.21875, 0.3125, 0.40625, 0.5, 0.45225424859373686,
                                       0.32725424859373686, 0.17274575140626314, 0.04774575140626316, 0});
  follow(warm_up(2), {0, 0.25, 0.5});
}

TEST_CASE("one cycle has PyTorch's rates and momenta") {
  follow(one_cycle(11), {0.02, 0.2111705568673679, 0.4801307123613087, 0.48987328391065077,
                         0.4422378623843152, 0.36304352464876416, 0.2652913540437999, 0.16502901449364746,
                         0.07871625639975394, 0.020522771603145428, 2e-06, /*it stays:*/ 2e-06});
  follow(one_cycle_momentum(11), {0.95, 0.9101728006526316, 0.8541394349247273, 0.8520253513192751,
                                  0.8615524737330319, 0.8773914046358657, 0.8969419169589078,
                                  0.9169944650791307, 0.9342570857483922, 0.9458958292626879, 0.95});
  follow(one_cycle(9, {.pct_start = 0.4, .div_factor = 10, .final_div_factor = 100, .linear = true}),
         {0.05, 0.22307692307692306, 0.39615384615384613, 0.463, 0.3705, 0.278, 0.1855, 0.093});
}

TEST_CASE("a plateau lowers the rate when PyTorch does") {
  const Values measures = {1,   0.9, 0.95, 0.91, 0.9, 0.5, 0.4999999, 0.6, 0.6,
                           0.6, 0.6, 0.3,  0.7,  0.7, 0.7, NAN,       0.7, 0.7};
  follow(Plateau({.factor = 0.5, .patience = 2}), measures,
         {0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.0625,
          0.0625, 0.0625, 0.03125});
  follow(
      Plateau(
          {.factor = 0.5, .patience = 1, .threshold = 0.05, .absolute = true, .cooldown = 2, .min_lr = 0.1}),
      measures,
      {0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.1, 0.1, 0.1, 0.1,
       0.1});
  follow(Plateau({.larger_is_better = true, .factor = 0.1, .patience = 1, .threshold = 0.01}), measures,
         {0.5, 0.5, 0.05, 0.05, 5e-3, 5e-3, 5e-4, 5e-4, 5e-5, 5e-5, 5e-6, 5e-6, 5e-7, 5e-7, 5e-8, 5e-8, 5e-9,
          5e-9});
}

TEST_CASE("a scheduler sets an option of all groups, and goes on from its state") {
  SGD sgd({SGD::Group{{param()}, {.lr = 1, .momentum = 0.9}},
           SGD::Group{{param()}, {.lr = 0.5, .momentum = 0.9}}});
  Scheduler rate(sgd, step_decay(2, 0.1)), momentum(sgd, one_cycle_momentum(11), "momentum");
  CHECK(sgd.options(1).momentum == 0.95);
  for (int i = 0; i < 3; ++i) rate.step(), momentum.step();
  CHECK(sgd.lr(0) == Approx(0.1));
  CHECK(sgd.lr(1) == Approx(0.05));
  CHECK(sgd.options(0).momentum == Approx(0.8520253513192751));
  CHECK(rate.count() == 3);

  SGD again({SGD::Group{{param()}, {.lr = 9}}, SGD::Group{{param()}, {.lr = 7}}});
  Scheduler next(again, step_decay(2, 0.1));
  next.load_state(rate.state());
  CHECK(again.lr(0) == sgd.lr(0));
  next.step();
  CHECK(again.lr(1) == Approx(0.005));
  auto bad = rate.state();
  bad["base"] = tensor({1}, float64);
  CHECK_THAT(text_of([&] { next.load_state(bad); }), Contains("[scheduler] state base is float64 [1]"));
  CHECK_THAT(text_of([&] { next.load_state({}); }), Contains("state step is missing"));
  CHECK_THAT(text_of([&] { Scheduler(sgd, step_decay(2), "nesterov"); }), Contains("no option \"nesterov\""));
}

TEST_CASE("a plateau goes on from its state") {
  SGD sgd({param()}, {.lr = 1}), again({param()}, {.lr = 1});
  Plateau one({.patience = 2, .cooldown = 1}), two({.patience = 2, .cooldown = 1});
  CHECK(std::isinf(one.best()));
  for (int i = 0; i < 3; ++i) CHECK_FALSE(one.step(sgd, 1));
  two.load_state(one.state());
  CHECK(two.best() == 1);
  CHECK(one.step(sgd, 1));
  CHECK(two.step(again, 1));
  CHECK(again.lr() == Approx(0.1));
  auto bad = one.state();
  bad["bad"] = tensor(-1);
  CHECK_THAT(text_of([&] { two.load_state(bad); }), Contains("[plateau] state bad is -1"));
}

TEST_CASE("schedules refuse numbers that make no sense") {
  CHECK_THAT(text_of([] { step_decay(0); }), Contains("[step_decay] needs at least 1 step, got 0"));
  CHECK_THAT(text_of([] { cosine(-1); }), Contains("[cosine]"));
  CHECK_THAT(text_of([] { cosine(3, NAN); }), Contains("[cosine] floor must be a number from 0 to inf"));
  CHECK_THAT(text_of([] { multi_step({3, 2}); }), Contains("must ascend"));
  CHECK_THAT(text_of([] { exponential(-1); }), Contains("[exponential] gamma"));
  CHECK_THAT(text_of([] { warm_up(3, {}, 2); }),
             Contains("[warm_up] start must be a number from 0 to 1, got 2"));
  CHECK_THAT(text_of([] { one_cycle(5, {.pct_start = 1.5}); }), Contains("[one_cycle] pct_start"));
  CHECK_THAT(text_of([] { one_cycle_momentum(5, 0.9, 0.8); }), Contains("[one_cycle_momentum]"));
  CHECK_THAT(text_of([] { Plateau({.factor = 1}); }), Contains("[plateau] the factor must be below 1"));
  CHECK_THAT(text_of([] { Plateau({.patience = -1}); }), Contains("got -1 and 0"));
}
