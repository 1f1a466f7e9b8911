// gradcheck finds wrong gradients and says where.
#include "autograd/gradcheck.h"

#include <catch2/catch.hpp>

#include "tests/autograd/graph.h"

using namespace troupe;
using namespace troupe::testing;
using autograd::gradcheck;
using Catch::Contains;

TEST_CASE("gradcheck accepts a right gradient") {
  const auto report = gradcheck([](const Tensors& in) { return mul(mul(in[0], in[1]), in[0]); },
                                {tensor({1, 2, 3}, float32), tensor({-1, 0.5, 2}, float64)});
  CHECK(report.ok);
  CHECK(report.entries == 6);
}

TEST_CASE("gradcheck catches one wrong entry and names it") {
  const auto wrong = [](const Tensors& in) {
    const Tensor a = in[0], b = in[1];
    return record(
        zip(a, b, std::multiplies<>()), {a, b},
        [a, b](const Tensors& g) {
          Tensor gb = mul(g[0], a);
          gb.data<double>()[4] *= 1.01;
          return Tensors{mul(g[0], b), gb};
        },
        "wrong", nullptr);
  };
  const Tensor a = tensor({{1, 2, 3}, {4, 5, 6}}, float64), b = tensor({{6, 5, 4}, {3, 2, 1}}, float64);
  const auto report = gradcheck(wrong, {a, b});
  CHECK_FALSE(report.ok);
  CHECK(report.input == 1);
  CHECK(report.index == 4);
  CHECK(report.analytic == Approx(1.01 * report.numeric));
  CHECK_THAT(report.text, Contains("input 1 (float64 [2, 3]) at [1, 1]: analytic"));
}

TEST_CASE("gradcheck catches a gradient that is missing, or not a number") {
  const Tensor x = tensor({2, 3}, float64);
  const auto with = [&](Tensor gradient) {
    return gradcheck(
        [gradient](const Tensors& in) {
          return record(
              zip(in[0], in[0], std::multiplies<>()), {in[0]},
              [gradient](const Tensors&) { return Tensors{gradient}; }, "square", nullptr);
        },
        {x});
  };
  CHECK_FALSE(with({}).ok);
  CHECK_FALSE(with(tensor({NAN, 6}, float64)).ok);
}

TEST_CASE("gradcheck moves only inputs that require a gradient, if there are any") {
  Tensor x = leaf({2, 3});
  const Tensor constant = tensor({4, 5}, float64), index = tensor({1});
  const auto product = [](const Tensors& in) { return mul(in[0], in[1]); };
  CHECK(gradcheck(product, {x, constant, index}).entries == 2);
  CHECK(gradcheck(product, {x.detach(), constant, index}).entries == 4);
}

TEST_CASE("gradcheck refuses what it cannot check") {
  const Tensor x = tensor({2}, float64);
  CHECK_THAT(testing::text_of([&] { gradcheck([](const Tensors& in) { return in[0].clone_data(); }, {x}); }),
             Contains("no history"));
  CHECK_THAT(testing::text_of([&] { gradcheck([](const Tensors& in) { return in[0]; }, {tensor({1})}); }),
             Contains("no floating input"));
  CHECK_THAT(
      testing::text_of([&] { gradcheck([](const Tensors& in) { return mul(in[0], in[0]); }, {x}, 0); }),
      Contains("eps must be above 0"));
}
