// Numbers with tensors: promotion, exact integers, exact division, and what has no answer.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "autograd/engine.h"
#include "core/base/error.h"
#include "ops/operators.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;

namespace {

using Catch::Contains;
using Ints = std::vector<int64_t>;
using Values = std::vector<double>;
using testing::text_of;

Values values(const Tensor& t) { return t.to_vector<double>(); }
Ints ints(const Tensor& t) {
  CHECK(!is_floating(t.dtype()));
  return t.to_vector<int64_t>();
}

TEST_CASE("an integer tensor and a number meet as in PyTorch") {
  const Tensor i = tensor({1, 2, 3, 4});
  CHECK((i / 2).dtype() == float32);
  CHECK(values(i / 2) == Values{0.5, 1, 1.5, 2});
  CHECK((i + 0.5).dtype() == float32);
  CHECK(values(i + 0.5) == Values{1.5, 2.5, 3.5, 4.5});
  CHECK((i + 2).dtype() == int64);
  CHECK(ints(7 - i) == Ints{6, 5, 4, 3});
  CHECK(values(0.5 - tensor({1, 0}, uint8)) == Values{-0.5, 0.5});
}

TEST_CASE("int64 keeps its digits beside a number") {
  constexpr int64_t kLarge = (int64_t{1} << 53) + 1;
  const Tensor i = tensor({kLarge, 1}, int64);
  CHECK(ints(i + kLarge) == Ints{2 * kLarge, kLarge + 1});
  CHECK(ints(i - kLarge) == Ints{0, 1 - kLarge});
  CHECK(ints(i * 3) == Ints{3 * kLarge, 3});
  CHECK(ints(i.eq(kLarge)) == Ints{1, 0});
  CHECK(ints(i.eq(kLarge - 1)) == Ints{0, 0});
  CHECK(ints(i.clamp(0, kLarge - 2)) == Ints{kLarge - 2, 1});
  CHECK(ints(i.masked_fill(i.eq(1), kLarge)) == Ints{kLarge, kLarge});
  CHECK(ints(ops::where(i.eq(1), kLarge + 1, i)) == Ints{kLarge, kLarge + 1});
  CHECK(ints(ops::pad(i, {0, 1}, "constant", kLarge)) == Ints{kLarge, 1, kLarge});
  CHECK(ints(ops::floor_divide(i, 2)) == Ints{kLarge / 2, 0});
}

TEST_CASE("division divides") {
  CHECK((tensor({49.0}, float64) / 49).item() == 1);
  CHECK((tensor({1e-300}, float64) / 1e-310).item() == 1e-300 / 1e-310);
  CHECK((49.0 / tensor({49.0}, float64)).item() == 1);
  Tensor x = tensor({1, 2}, float64).requires_grad_();
  autograd::backward((x / 49).sum());
  CHECK(values(x.grad()) == Values{1.0 / 49, 1.0 / 49});
}

TEST_CASE("integers are divided rounded down, and by 0 not at all") {
  const Tensor a = tensor({7, -7, 7, -7, INT64_MIN}, int64), b = tensor({2, 2, -2, -2, -1});
  CHECK(ints(ops::floor_divide(a, b)) == Ints{3, -4, -4, 3, INT64_MIN});
  CHECK(ints(ops::remainder(a, b)) == Ints{1, 1, -1, -1, 0});
  CHECK(ints(ops::fmod(a, b)) == Ints{1, -1, 1, -1, 0});
  CHECK(ints(ops::floor_divide(tensor({INT32_MIN}, int32), -1)) == Ints{INT32_MIN});
  for (auto* f : {static_cast<Tensor (*)(const Tensor&, Scalar)>(ops::floor_divide),
                  static_cast<Tensor (*)(const Tensor&, Scalar)>(ops::remainder),
                  static_cast<Tensor (*)(const Tensor&, Scalar)>(ops::fmod)})
    CHECK_THAT(text_of([&] { f(a, 0); }), Contains("an integer is divided by 0"));
  CHECK(ops::floor_divide(zeros({0}, int64), 0).numel() == 0);
  const Tensor x = tensor({7.5, -7.5, 1}, float64);
  CHECK(values(ops::floor_divide(x, 2)) == Values{3, -4, 0});
  CHECK(values(ops::floor_divide(x, 0)) == Values{HUGE_VAL, -HUGE_VAL, HUGE_VAL});
  CHECK(values(ops::remainder(x, 2)) == Values{1.5, 0.5, 1});
  CHECK(values(ops::remainder(10, x)) == Values{2.5, -5, 0});
}

TEST_CASE("a backward pass through floor_divide is refused, as in PyTorch") {
  Tensor x = tensor({7.5}, float64).requires_grad_();
  const Tensor y = ops::floor_divide(x, 2);
  CHECK(y.requires_grad());
  CHECK(text_of([&] { autograd::backward(y.sum()); }) ==
        "[floor_divide] has no gradient; detach() its inputs or its result");
}

TEST_CASE("integers to an integer power wrap, and have no negative ones") {
  const Tensor i = tensor({3, -2, 1, 0});
  CHECK(ints(i.pow(3)) == Ints{27, -8, 1, 0});
  CHECK(ints(i.pow(tensor({40, -3, -5, 0}))) == Ints{-6289078614652622815, 0, 1, 1});
  CHECK(ints(ops::pow(2, tensor({0, 62, 64}))) == Ints{1, int64_t{1} << 62, 0});
  CHECK_THAT(text_of([&] { i.pow(-1); }), Contains("[pow_scalar] integers have no negative powers"));
  CHECK(values(i.pow(0.5))[2] == 1);
}

TEST_CASE("the powers 0.5 and -0.5 are PyTorch's roots") {
  const Tensor x = tensor({4, -0.0, -HUGE_VAL}, float64);
  const Values root = values(x.pow(0.5)), inverse = values(x.pow(-0.5));
  CHECK(root[0] == 2);
  CHECK(std::signbit(root[1]));
  CHECK(std::isnan(root[2]));
  CHECK(inverse[0] == 0.5);
  CHECK(inverse[1] == -HUGE_VAL);
  CHECK(std::isnan(inverse[2]));
}

TEST_CASE("bools add as or, multiply as and, and are not subtracted") {
  const Tensor b = tensor({true, false}), t = tensor({true, true});
  CHECK((b + t).dtype() == boolean);
  CHECK(ints(b + t) == Ints{1, 1});
  CHECK(ints(b * t) == Ints{1, 0});
  CHECK(ints(b + 2) == Ints{3, 2});
  for (const auto& f : std::vector<std::function<void()>>{[&] { b - t; }, [&] { 1 - b; }, [&] { b - 1; },
                                                          [&] {
                                                            tensor({1, 2}) - b;
                                                          }})
    CHECK(text_of(f) == "[sub] is not for bool; use logical_not() to invert a mask, or .to(int64)");
}

TEST_CASE("tensors of several dtypes meet, and each gets its gradient in its own") {
  Tensor x = tensor({1, 2}, float32).requires_grad_(), y = tensor({3, 4}, float64).requires_grad_();
  const Tensor z = x * y;
  CHECK(z.dtype() == float64);
  autograd::backward(z.sum());
  CHECK(x.grad().dtype() == float32);
  CHECK(values(x.grad()) == Values{3, 4});
  CHECK(y.grad().dtype() == float64);
  CHECK(values(y.grad()) == Values{1, 2});
  Tensor s = tensor(2, float64).requires_grad_();
  const Tensor scaled = x * s;
  CHECK(scaled.dtype() == float32);  // a 0-d tensor does not raise the dtype within its category
  autograd::backward(scaled.sum());
  CHECK(s.grad().dtype() == float64);
  CHECK(s.grad().item() == 3);
  Tensor h = tensor({1, 2}, float32).to(float16).requires_grad_();
  const Tensor mixed = ops::cat({h, y}, 0);
  CHECK(mixed.dtype() == float64);
  autograd::backward(mixed.sum());
  CHECK(h.grad().dtype() == float16);
}

TEST_CASE("narrow integers wrap in their own width, and sum in int64") {
  const Tensor u = tensor({200, 100}, uint8), i = tensor({INT32_MAX, -5}, int32);
  CHECK(ints(u + u) == Ints{144, 200});
  CHECK(ints(u + 300) == Ints{244, 144});
  CHECK(ints(ops::neg(u)) == Ints{56, 156});
  CHECK(ints(i + 1) == Ints{INT32_MIN, -4});
  CHECK((i + 1).dtype() == int32);
  CHECK(u.sum().dtype() == int64);
  CHECK(u.sum().item() == 300);
  CHECK(ints(ops::prod(u)) == Ints{20000});
  CHECK(ints(u.cumsum(0)) == Ints{200, 300});
  CHECK(ints(ops::amax(i, {})) == Ints{INT32_MAX});
  CHECK_THAT(text_of([&] { u.lt(300); }), Contains("[lt] 300 is beyond what uint8 holds; use .to(int64)"));
  // What only moves elements takes them as they are.
  const Tensor grid = tensor({{1, 2, 3}, {4, 5, 6}}, int32);
  CHECK(ints(grid.transpose(0, 1).contiguous()) == Ints{1, 4, 2, 5, 3, 6});
  CHECK(ints(grid.index_select(1, tensor({2, 0}))) == Ints{3, 1, 6, 4});
  CHECK(ints(grid.flip({1}).tril()) == Ints{3, 0, 0, 6, 5, 0});
  CHECK(ints(ops::where(grid.gt(3), grid, grid.to(uint8))) == Ints{1, 2, 3, 4, 5, 6});
  CHECK(ints(grid.sort(1, true).values) == Ints{3, 2, 1, 6, 5, 4});
}

TEST_CASE("a number that the dtype cannot hold is refused where it would be stored") {
  const Tensor u = tensor({1, 2}, uint8), mask = tensor({true, false});
  CHECK_THAT(text_of([&] { u.masked_fill(mask, 300); }), Contains("300 is beyond what uint8 holds"));
  CHECK_THAT(text_of([&] { ops::where(mask, zeros({2}), 1e300); }),
             Contains("1e+300 is beyond what float32 holds"));
  CHECK(values(zeros({1}) + 1e300) == Values{HUGE_VAL});
}

TEST_CASE("clamp: one bound or two, whole for integers, NaN stays") {
  const Tensor x = tensor({-2, std::nan(""), 3}, float64);
  CHECK(testing::difference(x.clamp(-1), tensor({-1, std::nan(""), 3}, float64), 0, 0) == "");
  CHECK(testing::difference(x.clamp({}, 1), tensor({-2, std::nan(""), 1}, float64), 0, 0) == "");
  CHECK(std::isnan(x.clamp(std::nan("")).to_vector<double>()[0]));
  const Tensor i = tensor({-7, 7});
  CHECK(ints(i.clamp(-5, 5)) == Ints{-5, 5});
  CHECK(values(i.clamp(-0.5)) == Values{-0.5, 7});
  CHECK(i.clamp(-HUGE_VAL, 5).dtype() == float32);
  CHECK_THAT(text_of([&] { x.clamp(); }), Contains("[clamp] needs min, max or both"));
  Tensor y = tensor({-2, std::nan(""), 0.5}, float64).requires_grad_();
  autograd::backward(y.clamp(-1, 1).sum());
  CHECK(values(y.grad()) == Values{0, 0, 1});
}

TEST_CASE("atan2 beside bytes and a gradient is refused: PyTorch's wraps") {
  Tensor x = tensor({1}, float32).requires_grad_();
  const Tensor byte = tensor({253}, uint8);
  CHECK(text_of([&] { ops::atan2(x, byte); }) ==
        "[atan2] float32 [1] and uint8 [1] have no gradient together; use .to() on one of them");
  CHECK(ops::atan2(x.detach(), byte).dtype() == float32);
}

TEST_CASE("what is constant between its jumps has a gradient of zero") {
  for (const auto f : {ops::sign, ops::floor, ops::ceil, ops::round, ops::trunc}) {
    Tensor x = tensor({-1.5, 0.25}, float64).requires_grad_();
    const Tensor y = f(x);
    CHECK(y.requires_grad());
    autograd::backward((y * 3).sum());
    CHECK(values(x.grad()) == Values{0, 0});
  }
  CHECK(values(ops::round(tensor({0.5, 1.5, -2.5}, float64))) == Values{0, 2, -2});
}

TEST_CASE("the product of one element is a copy, and of none keeps its history") {
  const Tensor x = tensor({3}, float64), y = ops::prod(x);
  y.fill_(7);
  CHECK(values(x) == Values{3});
  const Tensor kept = ops::prod(x, {0}, true);
  CHECK(kept.storage() != x.storage());
  Tensor none = zeros({0, 2}, float64).requires_grad_();
  const Tensor ones = ops::prod(none, {0});
  CHECK(values(ones) == Values{1, 1});
  CHECK(ones.requires_grad());
  autograd::backward(ones.sum());
  CHECK(none.grad().shape() == Shape{0, 2});
}

TEST_CASE("the gradient of std is zero where it is zero") {
  Tensor x = tensor({{2, 2}, {1, 3}}, float64).requires_grad_();
  autograd::backward(ops::std(x, {1}).sum());
  CHECK(testing::difference(x.grad(), tensor({{0, 0}, {-std::sqrt(0.5), std::sqrt(0.5)}}, float64), 1e-15,
                            0) == "");
}

TEST_CASE("norm neither underflows nor overflows where its result does not") {
  Tensor x = tensor({3e-300, 4e-300}, float64).requires_grad_();
  const Tensor n = ops::norm(x);
  CHECK(n.item() == Approx(5e-300).epsilon(1e-15));
  autograd::backward(n);
  CHECK(testing::difference(x.grad(), tensor({0.6, 0.8}, float64), 1e-15, 0) == "");
  CHECK(ops::norm(tensor({3e200, 4e200}, float64)).item() == Approx(5e200).epsilon(1e-15));
  CHECK(ops::norm(tensor({HUGE_VAL, 1}, float64)).item() == HUGE_VAL);
  CHECK(ops::norm(zeros({3}, float64)).item() == 0);
  CHECK(std::isnan(ops::norm(tensor({std::nan(""), 1e-300}, float64)).item()));
}

}  // namespace
