// Values and gradients at equal elements, at bounds, at zero, at infinities and at NaN are those of
// PyTorch 2.15.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tests/support/near.h"

using namespace troupe;

namespace {

using Values = std::vector<double>;
using testing::difference;

constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN();
const Values kPoints{-kInf, -2, -1, -0.5, 0, 0.5, 1, 2, kInf, kNan};

struct Function {
  const char* name;
  std::function<Tensor(const Tensor&)> f;
  Values values, gradient;  ///< at kPoints
};

Tensor number(double value, const Tensor& like) { return tensor(value, like.dtype()); }

Tensor gradient(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, bool again = false) {
  return autograd::grad({f(x).sum()}, {x}, {}, {.create_graph = again})[0];
}

void check(const Function& one) {
  for (const DType t : {float64, float32, float16, bfloat16}) {
    INFO(one.name << " of " << name(t));
    const double close = is_half(t) ? 5e-3 : t == float32 ? 1e-6 : 1e-14;
    const Tensor x = tensor(kPoints, float64).to(t).requires_grad_();
    CHECK(difference(one.f(x), tensor(one.values, float64), close, 0) == "");
    CHECK(difference(gradient(one.f, x), tensor(one.gradient, float64), close, 0) == "");
    // A vector of each point by itself, which fills the lanes of the kernels.
    for (size_t i = 0; i < kPoints.size(); ++i) {
      const Tensor many = full({67}, kPoints[i], t).requires_grad_();
      const Tensor wanted = full({67}, one.gradient[i], float64);
      CHECK(difference(gradient(one.f, many), wanted, close, 0) == "");
    }
  }
}

// At the first points.
void check_second(const std::function<Tensor(const Tensor&)>& f, const Values& wanted) {
  const Tensor x =
      tensor(Values(kPoints.begin(), kPoints.begin() + std::ssize(wanted)), float64).requires_grad_();
  const Tensor second = autograd::grad({gradient(f, x, true).sum()}, {x})[0];
  CHECK(difference(second, tensor(wanted, float64), 1e-14, 0) == "");
}

TEST_CASE("the gradient of clamp is 0 at its bounds, beyond them and at NaN") {
  const Values none(10, 0.0), between{-1, -1, -1, -0.5, 0, 0.5, 1, 1, 1, kNan},
      inside{0, 0, 0, 1, 1, 1, 0, 0, 0, 0};
  const std::vector<Function> all{
      {"min",
       [](const Tensor& x) { return x.clamp(-1); },
       {-1, -1, -1, -0.5, 0, 0.5, 1, 2, kInf, kNan},
       {0, 0, 0, 1, 1, 1, 1, 1, 1, 0}},
      {"max",
       [](const Tensor& x) { return x.clamp({}, 1); },
       {-kInf, -2, -1, -0.5, 0, 0.5, 1, 1, 1, kNan},
       {1, 1, 1, 1, 1, 1, 0, 0, 0, 0}},
      {"both", [](const Tensor& x) { return x.clamp(-1, 1); }, between, inside},
      {"in place", [](const Tensor& x) { return (x * 1).clamp_(-1, 1); }, between, inside},
      {"one number", [](const Tensor& x) { return x.clamp(1, 1); }, {1, 1, 1, 1, 1, 1, 1, 1, 1, kNan}, none},
      {"infinite min",
       [](const Tensor& x) { return x.clamp(-kInf); },
       kPoints,
       {0, 1, 1, 1, 1, 1, 1, 1, 1, 0}},
      {"infinite max",
       [](const Tensor& x) { return x.clamp({}, kInf); },
       kPoints,
       {1, 1, 1, 1, 1, 1, 1, 1, 0, 0}},
      {"NaN", [](const Tensor& x) { return x.clamp(-1, kNan); }, Values(10, kNan), none},
  };
  for (const Function& one : all) check(one);
}

TEST_CASE("a bound of clamp is compared in the dtype of the tensor") {
  for (const DType t : {float64, float32, float16, bfloat16})
    for (const double bound : {0.1, 0.3}) {
      const Tensor x = full({1}, bound, t).requires_grad_();
      CHECK(gradient([&](const Tensor& y) { return y.clamp(bound); }, x).item() == 0);
      CHECK(gradient([&](const Tensor& y) { return y.clamp({}, bound); }, x).item() == 0);
      CHECK(x.clamp(bound).item() == x.item());
    }
}

TEST_CASE("sign, abs and activations at zero and NaN") {
  const Values e{std::exp(-2), std::exp(-1), std::exp(-0.5)}, step{0, 0, 0, 0, 0, 1, 1, 1, 1, 1};
  const std::vector<Function> all{
      {"sign", ops::sign, {-1, -1, -1, -1, 0, 1, 1, 1, 1, 0}, Values(10, 0.0)},
      {"abs", ops::abs, {kInf, 2, 1, 0.5, 0, 0.5, 1, 2, kInf, kNan}, {-1, -1, -1, -1, 0, 1, 1, 1, 1, 0}},
      {"relu", ops::relu, {0, 0, 0, 0, 0, 0.5, 1, 2, kInf, kNan}, step},
      {"relu in place",
       [](const Tensor& x) { return (x * 1).relu_(); },
       {0, 0, 0, 0, 0, 0.5, 1, 2, kInf, kNan},
       step},
      {"leaky_relu",
       [](const Tensor& x) { return ops::leaky_relu(x, 0.5); },
       {-kInf, -1, -0.5, -0.25, 0, 0.5, 1, 2, kInf, kNan},
       {0.5, 0.5, 0.5, 0.5, 0.5, 1, 1, 1, 1, 0.5}},
      {"elu",
       [](const Tensor& x) { return ops::elu(x, 2); },
       {-2, 2 * std::expm1(-2), 2 * std::expm1(-1), 2 * std::expm1(-0.5), 0, 0.5, 1, 2, kInf, kNan},
       {0, 2 * e[0], 2 * e[1], 2 * e[2], 2, 1, 1, 1, 1, 1}},
  };
  for (const Function& one : all) check(one);
  CHECK_FALSE(std::signbit(ops::sign(tensor({-0.f})).item()));
  check_second([](const Tensor& x) { return ops::elu(x, 2); },
               {0, 2 * e[0], 2 * e[1], 2 * e[2], 0, 0, 0, 0, 0, 0});
}

TEST_CASE("maximum and minimum share a gradient between equal elements, and both have it beside a NaN") {
  const std::vector<Function> all{
      {"maximum",
       [](const Tensor& x) { return ops::maximum(x, number(1, x)); },
       {1, 1, 1, 1, 1, 1, 1, 2, kInf, kNan},
       {0, 0, 0, 0, 0, 0, 0.5, 1, 1, 1}},
      {"minimum",
       [](const Tensor& x) { return ops::minimum(number(1, x), x); },
       {-kInf, -2, -1, -0.5, 0, 0.5, 1, 1, 1, kNan},
       {1, 1, 1, 1, 1, 1, 0.5, 0, 0, 1}},
      {"of one tensor",
       [](const Tensor& x) { return ops::maximum(x, x); },
       kPoints,
       {1, 1, 1, 1, 1, 1, 1, 1, 1, 2}},
      {"beside NaN", [](const Tensor& x) { return ops::minimum(x, number(kNan, x)); }, Values(10, kNan),
       Values(10, 1.0)},
  };
  for (const Function& one : all) check(one);
}

TEST_CASE("losses of distances that are zero, on the bound, infinite or NaN") {
  const auto zero = [](const Tensor& x) { return zeros(x.shape(), x.dtype()); };
  const Values slope{-1, -1, -1, -1, 0, 1, 1, 1, 1, 0}, distance{kInf, 2, 1, 0.5, 0, 0.5, 1, 2, kInf, kNan};
  const std::vector<Function> all{
      {"l1", [&](const Tensor& x) { return ops::l1_loss(x, zero(x), "none"); }, distance, slope},
      {"smooth l1",
       [&](const Tensor& x) { return ops::smooth_l1_loss(x, zero(x), "none"); },
       {kInf, 1.5, 0.5, 0.125, 0, 0.125, 0.5, 1.5, kInf, kNan},
       {-1, -1, -1, -0.5, 0, 0.5, 1, 1, 1, kNan}},
      {"smooth l1, beta 0", [&](const Tensor& x) { return ops::smooth_l1_loss(x, zero(x), "none", 0); },
       distance, slope},
      {"huber, delta 0.5",
       [&](const Tensor& x) { return ops::huber_loss(x, zero(x), "none", 0.5); },
       {kInf, 0.875, 0.375, 0.125, 0, 0.125, 0.375, 0.875, kInf, kNan},
       {-0.5, -0.5, -0.5, -0.5, 0, 0.5, 0.5, 0.5, 0.5, kNan}},
  };
  for (const Function& one : all) check(one);
  check_second([&](const Tensor& x) { return ops::smooth_l1_loss(x, zero(x), "none"); },
               {0, 0, 0, 1, 1, 1, 0, 0, 0});
}

TEST_CASE("the gradient of amax and amin of a NaN is NaN") {
  for (const auto f : {ops::amax, ops::amin}) {
    for (const Shape& shape : {Shape{}, {1}}) {
      const Tensor x = full(shape, kNan, float64).requires_grad_();
      CHECK(std::isnan(gradient([&](const Tensor& y) { return f(y, {}, false); }, x).item()));
    }
    const Tensor x = tensor({{kNan, 1}, {2, 2}}, float64).requires_grad_();
    CHECK(difference(gradient([&](const Tensor& y) { return f(y, {1}, false); }, x),
                     tensor({{kNan, kNan}, {0.5, 0.5}}, float64), 0, 0) == "");
  }
}

// The gradient of f, and that of the sum of (1, 2, ...) times it.
void check_twice(const char* what, const std::function<Tensor(const Tensor&)>& f, const Tensor& at,
                 const Values& first, const Values& second) {
  INFO(what);
  const Tensor x = at.detach().requires_grad_();
  const Tensor g = gradient(f, x, true), counts = arange(1, g.numel() + 1).to(float64).reshape(g.shape());
  CHECK(difference(g.flatten(), tensor(first, float64), 1e-12, 1e-12) == "");
  const Tensor again = autograd::grad({(g * counts).sum()}, {x})[0];
  CHECK(difference(again.flatten(), tensor(second, float64), 1e-12, 1e-12) == "");
}

TEST_CASE("second derivatives where the first is zero, shared or constant") {
  const auto at = [](Values values) { return tensor(values, float64); };
  const auto prod = [](const Tensor& x) { return ops::prod(x); };
  check_twice("prod", prod, at({2, 3, 0, 0}), {0, 0, 0, 0}, {0, 0, 24, 18});
  check_twice("prod of three zeros", prod, at({2, 0, 0, 0}), {0, 0, 0, 0}, {0, 0, 0, 0});
  check_twice("prod along a dimension", [](const Tensor& x) { return ops::prod(x, 0); },
              at({2, 0, 0, 0, 5, 1}).reshape({3, 2}), {0, 0, 10, 0, 0, 0}, {15, 4, 15, 2, 6, 0});
  {
    const Tensor x = at({2, 3, 0, 0}).requires_grad_();  // one entry by itself
    const Tensor g = gradient(prod, x, true);
    CHECK(autograd::grad({g[2]}, {x})[0].to_vector<double>() == Values{0, 0, 0, 6});
  }
  check_twice("cumprod", [](const Tensor& x) { return ops::cumprod(x, 0); }, at({2, 0, 3, 0}), {1, 8, 0, 0},
              {8, 34, 4, 12});
  const auto norm = [](double p) { return [p](const Tensor& x) { return x.norm(p); }; };
  const auto lines = [](double p) { return [p](const Tensor& x) { return x.norm(p, 1); }; };
  for (const double p : {2., 1.5, 0.5}) check_twice("norm of 0", norm(p), at({0, 0}), {0, 0}, {kNan, kNan});
  for (const double p : {1., 3.}) check_twice("norm of 0", norm(p), at({0, 0}), {0, 0}, {0, 0});
  check_twice("norm", norm(2), at({0, 3}), {0, 1}, {1 / 3., 0});
  check_twice("norm 3", norm(3), at({0, 3}), {0, 1}, {0, 0});
  check_twice("norms along a dimension", lines(2), at({0, 0, 3, 4}).reshape({2, 2}), {0, 0, 0.6, 0.8},
              {kNan, kNan, 0, 0});
  for (const double p : {0.5, 1.5}) check_twice("norm", norm(p), at({0, 3}), {0, 1}, {kNan, 0});
  check_twice("var", [](const Tensor& x) { return ops::var(x, 0); }, at({1, 1, 1}), {0, 0, 0}, {-1, 0, 1});
  check_twice("std", [](const Tensor& x) { return ops::std(x, 0); }, at({1, 1, 1}), {0, 0, 0}, {0, 0, 0});
  const auto power = [](double e) { return [e](const Tensor& x) { return x.pow(e); }; };
  check_twice("pow 1", power(1), at({0, 2}), {1, 1}, {0, 0});
  check_twice("pow 2", power(2), at({0, 2}), {0, 4}, {2, 4});
  check_twice("pow 3", power(3), at({0, 2}), {0, 12}, {0, 24});
  check_twice("pow 0.5", power(0.5), at({0, 4}), {kInf, 0.25}, {-kInf, -0.0625});
  check_twice("pow of tensors",
              [&](const Tensor& x) {
                return x.pow(at({1, 2, 3, 2}));
              },
              at({0, 0, 0, -1}), {1, 0, 0, -2}, {0, 4, 0, 8});
  check_twice("sqrt", ops::sqrt, at({0, 4}), {kInf, 0.25}, {-kInf, -0.0625});
  check_twice("clamp", [](const Tensor& x) { return x.clamp(-1, 1).square(); }, at({-1, 0.5, 1, 2}),
              {0, 1, 0, 0}, {0, 4, 0, 0});
  check_twice("max", [](const Tensor& x) { return x.max().square(); }, at({2, 2, 1}), {2, 2, 0},
              {1.5, 1.5, 0});
  check_twice("amax", [](const Tensor& x) { return x.amax().square(); }, at({2, 2, 1}), {2, 2, 0},
              {1.5, 1.5, 0});
  check_twice("maximum",
              [&](const Tensor& x) {
                return x.maximum(at({2, 1, 0})).square();
              },
              at({2, 2, -1}), {2, 4, 0}, {0.5, 4, 0});
  check_twice("median", [](const Tensor& x) { return x.median().square(); }, at({1, 2, 2}), {0, 2, 2},
              {0, 2.5, 2.5});
  check_twice("abs", [](const Tensor& x) { return x.abs() * x; }, at({0, -2}), {0, 4}, {0, -4});
  check_twice("logsumexp", [](const Tensor& x) { return x.logsumexp(0); }, at({0, 0}), {0.5, 0.5},
              {-0.25, 0.25});
  check_twice("remainder",
              [&](const Tensor& x) {
                return ops::remainder(x, at({3, 3})).square();
              },
              at({4, -1}), {2, 4}, {2, 4});
  check_twice("remainder by",
              [&](const Tensor& x) {
                return ops::remainder(at({4, -1}), x).square();
              },
              at({3, 3}), {-2, 4}, {2, 4});
  check_twice("relu", [](const Tensor& x) { return x.relu().square(); }, at({0, 2}), {0, 4}, {0, 4});
}

TEST_CASE("powers of an infinite base are roots, but in float16") {
  const auto power = [](double e) { return [e](const Tensor& x) { return x.pow(e); }; };
  for (const DType t : {float64, float32, float16, bfloat16}) {
    INFO(name(t));
    const bool standard = t == float16;
    const Tensor x = tensor({-kInf, -0.0, 0, 4, kInf, kNan}, float64).to(t).requires_grad_();
    const auto check_at = [&](const Tensor& got, const Values& wanted) {
      CHECK(difference(got, tensor(wanted, float64), is_half(t) ? 5e-3 : 1e-6, 0) == "");
    };
    check_at(x.pow(0.5), {standard ? kInf : kNan, 0, 0, 2, kInf, kNan});
    check_at(x.pow(-0.5), {standard ? 0 : kNan, standard ? kInf : -kInf, kInf, 0.5, 0, kNan});
    check_at(x.pow(1.5), {kInf, 0, 0, 8, kInf, kNan});
    check_at(x.detach().clone().pow_(0.5), {standard ? kInf : kNan, 0, 0, 2, kInf, kNan});
    check_at(gradient(power(0.5), x), {standard ? 0 : kNan, standard ? kInf : -kInf, kInf, 0.25, 0, kNan});
    check_at(gradient(power(1.5), x), {standard ? kInf : kNan, 0, 0, 3, kInf, kNan});
    CHECK(std::signbit(x.pow(0.5).to_vector<double>()[1]) == !standard);
    CHECK(x.pow(0.5).dtype() == t);
  }
}

}  // namespace
