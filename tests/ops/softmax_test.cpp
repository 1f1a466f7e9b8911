// Softmax along a dimension that is not the last: columns side by side, in blocks.
#include <catch2/catch.hpp>
#include <cmath>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tests/support/near.h"

using namespace troupe;

namespace {

using testing::difference;

using Operator = Tensor (*)(const Tensor&, int64_t);

TEST_CASE("softmax along columns is that along rows of the transposed tensor") {
  Generator g(5);
  for (const Operator f : {Operator{&ops::softmax}, Operator{&ops::log_softmax}})
    for (const DType dtype : {float32, float64})
      for (const Shape& shape :
           {Shape{2, 700, 130}, Shape{3, 5, 40000}, Shape{1, 1, 7}, Shape{2, 33, 2}, Shape{2, 90, 37}}) {
        CAPTURE(shape.str(), dtype);
        const Tensor x = (ops::randn(shape, g, dtype) * 3).detach().requires_grad_(),
                     over_rows = x.detach().transpose(1, 2).contiguous().requires_grad_(),
                     grad = ops::randn(shape, g, dtype);
        const Tensor y = f(x, 1), wanted = f(over_rows, -1);
        const double relative = dtype == float32 ? 1e-5 : 1e-13, absolute = dtype == float32 ? 1e-6 : 1e-14;
        CHECK(difference(y, wanted.transpose(1, 2), relative, absolute) == "");
        const Tensor gx = autograd::grad({y}, {x}, {grad})[0];
        const Tensor gr = autograd::grad({wanted}, {over_rows}, {grad.transpose(1, 2).contiguous()})[0];
        CHECK(difference(gx, gr.transpose(1, 2), relative, 10 * absolute) == "");
      }
}

TEST_CASE("a column of softmax is not touched by its neighbours") {
  constexpr float kInf = INFINITY;
  for (const int64_t columns : {4, 40}) {
    CAPTURE(columns);
    const auto n = static_cast<size_t>(columns);
    std::vector<float> first(n), second(n);
    first[0] = -kInf, first[1] = 1, first[2] = NAN, first[3] = kInf;
    second[0] = -kInf, second[1] = 2;
    first.insert(first.end(), second.begin(), second.end());
    const Tensor x = tensor(first).reshape({2, columns});
    const auto y = ops::softmax(x, 0).to_vector<double>(), z = ops::log_softmax(x, 0).to_vector<double>();
    CHECK(std::isnan(y[0]));  // 0 / 0, as along rows
    CHECK(y[1] == Approx(1 / (1 + std::exp(1.0))));
    CHECK(y[1] + y[n + 1] == Approx(1));
    CHECK(std::isnan(y[2]));
    CHECK(std::isnan(y[3]));
    CHECK(z[n + 1] == Approx(-std::log1p(std::exp(-1.0))));
    CHECK(std::isnan(z[n + 2]));
  }
  CHECK(ops::softmax(zeros({3, 0, 4}), 1).numel() == 0);
  CHECK(ops::softmax(zeros({3, 4, 0}), 1).numel() == 0);
}

TEST_CASE("softmax along columns has the same bits on several threads") {
  const int before = ops::num_threads();
  Generator g(6);
  const Tensor x = ops::randn({3, 200, 500}, g);
  ops::set_num_threads(1);
  const Tensor once = ops::softmax(x, 1);
  ops::set_num_threads(2);
  const Tensor two = ops::softmax(x, 1);
  ops::set_num_threads(before);
  CHECK(bit_equal(once, two));
}

}  // namespace
