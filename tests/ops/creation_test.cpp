// Functions that make tensors, comparisons and norms: special values, and what is refused.
#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "ops/gradient_rules.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

template <class F>
std::string refusal(F&& f) {
  const Error e = error_of(f);
  CHECK(e.kind() == ErrorKind::invalid);
  return e.message();
}

}  // namespace

TEST_CASE("numbers keep their digits, and what a dtype cannot hold is refused") {
  constexpr int64_t kLarge = (int64_t{1} << 53) + 1;
  CHECK(tensor({kLarge, INT64_MIN}).to_vector<int64_t>() == std::vector<int64_t>{kLarge, INT64_MIN});
  CHECK(arange(kLarge, kLarge + 2).to_vector<int64_t>() == std::vector<int64_t>{kLarge, kLarge + 1});
  CHECK(tensor(kLarge).item<int64_t>() == kLarge);
  CHECK(arange(0).shape() == Shape{0});
  CHECK(bit_equal(arange(5, 0, -2), tensor({5, 3, 1})));
  CHECK(linspace(0, 1, 7, float64).to_vector<double>().back() == 1);
  CHECK(bit_equal(tensor(std::vector<bool>{true, false}), tensor({true, false})));
  CHECK_THAT(refusal([] { tensor({300}, uint8); }), Contains("[tensor] 300 is beyond what uint8 holds"));
  CHECK_THAT(refusal([] { tensor({{1, 2}, {3}}); }), Contains("must have one length: got sizes [2] and [1]"));
  CHECK_THAT(refusal([] { tensor({1, 2}, requires_grad()); }), Contains("needs a floating dtype"));
  CHECK_THAT(refusal([] { arange(0, 5, -1); }), Contains("step -1 does not lead from 0 to 5"));
  CHECK_THAT(refusal([] { arange(0, 5, 0); }), Contains("step 0 does not lead"));
  CHECK_THAT(refusal([] { eye(-1); }), Contains("[eye]"));
  CHECK_THAT(refusal([] { linspace(0, 1, -1); }), Contains("[linspace]"));
  CHECK_THAT(refusal([] {
               tensor({1, 2}).item<int64_t>();
             }),
             Contains("[item] needs a tensor of one element"));
  CHECK_THAT(refusal([] { (void)tensor(1e30).item<int64_t>(); }), Contains("[item]"));
}

TEST_CASE("ranges of integers that are given by fractions have PyTorch's numbers") {
  using Ints = std::vector<int64_t>;
  CHECK(arange(0, 4, 0.5, int64).to_vector<int64_t>() == Ints(8, 0));
  CHECK(arange(-0.9, 2.1, 2.0, int64).to_vector<int64_t>() == Ints{0, 2});
  CHECK(arange(0.5, 5, 1, int32).to_vector<int64_t>() == Ints{0, 1, 2, 3, 4});
  CHECK(arange(5, 1, -1.5, int32).to_vector<int64_t>() == Ints{5, 4, 3});
  CHECK(arange(0.5, 5, 1, float64).to_vector<double>() == std::vector<double>{0.5, 1.5, 2.5, 3.5, 4.5});
  const Ints line = linspace(4.3, -3, 50, int64).to_vector<int64_t>();
  const Ints counts = [&] {
    Ints out;
    for (int64_t n = 4; n >= -3; --n) out.push_back(std::count(line.begin(), line.end(), n));
    return out;
  }();
  CHECK(counts == Ints{1, 7, 7, 7, 13, 7, 7, 1});
  CHECK_THAT(refusal([] { arange(0, 400, 50.5, uint8); }), Contains("[arange] 350"));
  CHECK_THAT(refusal([] { arange(1e30, 2e30, 1e29, int64); }), Contains("[arange]"));
}

TEST_CASE("random functions draw what they say, and refuse what has no meaning") {
  Generator g(3);
  const auto dice = ops::randint(1, 7, {6000}, g).to_vector<int64_t>();
  for (int64_t face = 1; face < 7; ++face)
    CHECK(std::abs(std::count(dice.begin(), dice.end(), face) - 1000) < 150);
  const auto drawn = ops::multinomial(tensor({1., 0., 3.}), 8000, true, g).to_vector<int64_t>();
  CHECK(std::count(drawn.begin(), drawn.end(), 1) == 0);
  CHECK(std::abs(std::count(drawn.begin(), drawn.end(), 2) - 6000) < 250);
  int64_t first = 0;
  for (int i = 0; i < 4000; ++i)
    first += ops::multinomial(tensor({1., 3.}), 2, false, g)[0].item<int64_t>() == 0;
  CHECK(std::abs(first - 1000) < 150);
  CHECK_THAT(refusal([&] { ops::randint(3, 3, {1}, g); }), Contains("[randint] needs low < high"));
  CHECK_THAT(refusal([&] { ops::randint(0, 300, {1}, g, uint8); }), Contains("[randint]"));
  CHECK_THAT(refusal([&] { ops::bernoulli(tensor({1.5}), g); }), Contains("must be in [0, 1], got 1.5"));
  CHECK_THAT(refusal([&] { ops::bernoulli(tensor({1}), g); }), Contains("floating"));
  CHECK_THAT(refusal([&] {
               ops::multinomial(tensor({1., 0.}), 2, false, g);
             }),
             Contains("without replacement"));
  CHECK_THAT(refusal([&] { ops::multinomial(tensor({-1., 2.}), 1, true, g); }), Contains("at least 0"));
  CHECK_THAT(refusal([&] {
               ops::multinomial(tensor({0., 0.}), 1, true, g);
             }),
             Contains("no element above 0"));
}

TEST_CASE("norms of every p, with a gradient of zero at zero") {
  const Tensor x = tensor({{3., -4.}, {0., 0.}}, dtype(float64).requires_grad());
  const auto rows = [&](Scalar p) { return ops::norm(x, p, 1).to_vector<double>(); };
  CHECK(rows(0) == std::vector<double>{2, 0});
  CHECK(rows(1) == std::vector<double>{7, 0});
  CHECK(rows(2) == std::vector<double>{5, 0});
  CHECK(rows(HUGE_VAL) == std::vector<double>{4, 0});
  CHECK(rows(-HUGE_VAL) == std::vector<double>{3, 0});
  CHECK(rows(3)[0] == Approx(std::cbrt(27 + 64)));
  CHECK(ops::norm(x, 2, {}, true).shape() == Shape{1, 1});
  ops::norm(x, 2, 1).sum().backward();
  CHECK(testing::difference(x.grad(), tensor({{0.6, -0.8}, {0., 0.}}), 1e-6, 0) == "");
  CHECK_THAT(refusal([] { ops::norm(tensor({1, 2}), 1); }), Contains("[norm] needs a floating dtype"));
}

TEST_CASE("comparisons of two tensors, and bools alone have bits") {
  const Tensor x = tensor({1, 2, 3});
  CHECK(bit_equal((x > 1) & ~(x == 3), tensor({false, true, false})));
  CHECK(bit_equal((x > 2) ^ (x < 2), tensor({true, false, true})));
  CHECK(bit_equal(!(x >= 2), tensor({true, false, false})));
  CHECK_THAT(refusal([&] { x& x; }), Contains("[bitwise_and] is for bool tensors here, got int64 [3]"));
  CHECK_THAT(refusal([&] { ops::allclose(x, x.to(float32)); }), Contains("inputs differ in dtype"));
  CHECK(ops::allclose(tensor({INFINITY, NAN}), tensor({INFINITY, NAN}), 1e-5, 1e-8, true));
  CHECK_FALSE(ops::allclose(tensor({INFINITY}), tensor({1.})));
  CHECK_FALSE(ops::equal(x, tensor({1, 2})));
  CHECK_THAT(refusal([&] { ops::mm(x, x); }), Contains("[mm] needs 2 dimensions here, got int64 [3]"));
  CHECK_THAT(refusal([&] { ops::add(x, x, 0.5); }), Contains("[add] alpha must be an integer"));
  CHECK_THAT(refusal([&] { x.index({"..", 0}); }), Contains("[index]"));
}
