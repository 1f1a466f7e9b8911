// Values and gradients at equal elements, at bounds, at zero, at infinities and at NaN are those of
// PyTorch 2.15.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tests/support/near.h"

namespace troupe {
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

Tensor gradient(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, bool again = false) {
  return autograd::grad({f(x).sum()}, {x}, {}, {.create_graph = again})[0];
}

void check(const Function& one) {
  for (const DType t : {float64, float32, float16, bfloat16}) {
    INFO(one.name << " of " << name(t));
    const double close = is_half(t) ? 5e-3 : t == float32 ? 1e-6 : 1e-14;
    const Tensor x = Tensor::of(kPoints).to(t).set_requires_grad();
    CHECK(difference(one.f(x), Tensor::of(one.values), close, 0) == "");
    CHECK(difference(gradient(one.f, x), Tensor::of(one.gradient), close, 0) == "");
    // A vector of each point by itself, which fills the lanes of the kernels.
    for (size_t i = 0; i < kPoints.size(); ++i) {
      const Tensor many = Tensor::full({67}, kPoints[i], t).set_requires_grad();
      const Tensor wanted = Tensor::full({67}, one.gradient[i], float64);
      CHECK(difference(gradient(one.f, many), wanted, close, 0) == "");
    }
  }
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
      const Tensor x = Tensor::full({1}, bound, t).set_requires_grad();
      CHECK(gradient([&](const Tensor& y) { return y.clamp(bound); }, x).item() == 0);
      CHECK(gradient([&](const Tensor& y) { return y.clamp({}, bound); }, x).item() == 0);
      CHECK(x.clamp(bound).item() == x.item());
    }
}

}  // namespace
}  // namespace troupe
