// Operators of shape and value: what their samples in the list of operators cannot show.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "autograd/engine.h"
#include "core/base/error.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;

namespace {

using testing::error_of;

Tensor leaf(std::vector<double> values, const Shape& shape) {
  Tensor t = tensor(values, float64).reshape(shape);
  t.requires_grad_();
  return t;
}
std::vector<double> list(const Tensor& t) { return t.to_vector<double>(); }

TEST_CASE("equal largest, smallest and middle elements share the gradient, and NaNs do too") {
  const Tensor x = leaf({1, 5, 5, -2, 5, -2}, {2, 3});
  CHECK(list(autograd::grad({ops::max(x)}, {x})[0]) == std::vector<double>{0, 1 / 3., 1 / 3., 0, 1 / 3., 0});
  CHECK(list(autograd::grad({ops::min(x)}, {x})[0]) == std::vector<double>{0, 0, 0, 0.5, 0, 0.5});
  CHECK(ops::median(x).item() == 1);
  const Tensor odd = leaf({1, NAN, 3}, {3});
  CHECK(std::isnan(ops::max(odd).item()));
  CHECK(std::isnan(ops::median(odd).item()));
  CHECK(list(autograd::grad({ops::min(odd)}, {odd})[0]) == std::vector<double>{0, 1, 0});
}

TEST_CASE("largest, smallest and middle elements along a dimension come with their places") {
  const Tensor x = tensor({{3, 1, 2}, {9, 8, 7}});
  CHECK(list(ops::max(x, 0).values) == std::vector<double>{9, 8, 7});
  CHECK(list(ops::min(x, 1).indices) == std::vector<double>{1, 2});
  CHECK(ops::median(x, 1, true).values.shape() == Shape{2, 1});
  CHECK(list(ops::median(x, 1).values) == std::vector<double>{2, 8});
  const Tensor odd = tensor({4, NAN, 1}, float64);
  CHECK(ops::median(odd, 0).indices.item() == 1);
  CHECK(ops::argmax(x).item() == 3);
}

TEST_CASE("the gradient of a running product is right behind its zeros") {
  const Tensor x = leaf({2, 0, 3, 0, 5}, {5});
  const Tensor g = autograd::grad({ops::cumprod(x, 0)}, {x}, {ones({5}, float64)})[0];
  CHECK(list(g) == std::vector<double>{1, 2 + 6, 0, 0, 0});
}

TEST_CASE("parts of no elements are joined with all others, and get a gradient of none") {
  const Tensor none = leaf({}, {0}), x = leaf({1, 2}, {1, 2});
  const Tensor y = ops::cat({none, x}, 1);
  CHECK(y.shape() == Shape{1, 2});
  CHECK(autograd::grad({y.sum()}, {none})[0].shape() == Shape{0});
}

TEST_CASE("integers are multiplied as matrices, in batches") {
  const Tensor a = tensor({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}}), b = tensor({{1, 0}, {2, -1}});
  CHECK(list(ops::matmul(a, b)) == std::vector<double>{5, -2, 11, -4, 17, -6, 23, -8});
  CHECK(list(ops::linear(a, b)) == std::vector<double>{1, 0, 3, 2, 5, 4, 7, 6});
  CHECK(ops::matmul(b.select(0, 1), b.select(0, 1)).item() == 5);
}

TEST_CASE("views of shape share memory with their input") {
  const Tensor x = zeros({2, 1, 3}, float64);
  ops::unbind(x, 2)[1].fill_(1);
  ops::movedim(x, 0, 2).select(2, 1).fill_(2);
  ops::narrow(ops::squeeze(x), 1, -1, 1).fill_(3);
  CHECK(list(x) == std::vector<double>{0, 1, 3, 2, 2, 3});
}

TEST_CASE("gradients where infinities, zeros and NaN meet are PyTorch's") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto gradient = [](std::vector<double> values, const std::function<Tensor(const Tensor&)>& f) {
    const Tensor x = tensor(values, float64).requires_grad_();
    autograd::backward(ops::sum(f(x)));
    return list(x.grad());
  };
  const auto prod = [](const Tensor& x) { return ops::prod(x); };
  const auto of_infinity = gradient({kInf, 0.5}, prod);  // the result over the element
  CHECK(std::isnan(of_infinity[0]));
  CHECK(of_infinity[1] == kInf);
  CHECK(gradient({0, kInf, 2}, prod)[0] == kInf);  // the others' product
  CHECK(gradient({0, kInf, 0}, prod) == std::vector<double>{0, 0, 0});
  CHECK(std::isnan(gradient({0, kInf, 0}, [](const Tensor& x) { return ops::prod(x, {0}); })[0]));
  CHECK(gradient({-kInf}, [](const Tensor& x) { return ops::cumprod(x, 0); })[0] == 1);
  const auto var = [](const Tensor& x) { return ops::var(x, {}); };
  CHECK(std::isnan(gradient({kInf}, var)[0]));  // it is its mean
  CHECK(gradient({std::nan("")}, var)[0] == kInf);
  CHECK(std::isnan(gradient({2}, var)[0]));
  CHECK(std::isnan(gradient({1e-300}, [](const Tensor& x) { return ops::mul(ops::div(1.0, x), 0.0); })[0]));
}

TEST_CASE("the norm of a layer whose squares overflow is NaN, as in PyTorch") {
  for (const double x : list(ops::layer_norm(tensor({1e300, 1, 2}, float64), {3}))) CHECK(std::isnan(x));
}

TEST_CASE("a row of equal numbers is normalized to zeros, however long it is") {
  for (const DType dtype : {float32, float64})
    for (const int64_t n : {2, 3, 7, 10, 100, 1000}) {
      const Tensor x = full({1, n}, 0.1, dtype);
      for (const double y : list(ops::layer_norm(x, n, {}, {}, 1e-12))) CHECK(y == 0);
    }
}

TEST_CASE("differences of no elements are those elements, without a context of gradients, too") {
  const Tensor x = leaf({}, {2, 0});
  NoGradGuard none;
  CHECK(ops::diff(x).requires_grad());
  CHECK_FALSE(ops::diff(x, 0).requires_grad());
  CHECK(ops::diff(x, 3, 0).shape() == Shape({0, 0}));
}

TEST_CASE("a slice of one element has the stride of its step, as in PyTorch") {
  const Tensor x = zeros({1, 4}, float64), part = ops::slice(x, 0, -2, 5, 2);
  CHECK(part.strides() == Shape({8, 1}));
  CHECK_THROWS_AS(ops::mul_(part, x), Error);  // the same places by other strides
  CHECK(ops::slice(x, 0, 0, 1, std::numeric_limits<int64_t>::max()).shape() == Shape({1, 4}));
}

TEST_CASE("classes of the scores' own shape are taken for probabilities, which are not integers") {
  const Tensor x = zeros({1}, float64), pair = zeros({2}, float64);
  const Error e = error_of([&] { ops::cross_entropy(x, tensor({0})); });
  CHECK(e.kind() == ErrorKind::invalid);
  CHECK(ops::cross_entropy(x, tensor({1}, float64)).item() == 0);
  CHECK(ops::cross_entropy(pair, tensor({1})).item() == std::log(2.0));  // one class for [C]
  CHECK(error_of([] {
          ops::cross_entropy(zeros({2, 3}), zeros({2}));
        }).message() ==
        "[cross_entropy] target is float32 [2], which is neither class numbers, int64 (use .to(int64)), nor "
        "probabilities of the "
        "shape of the scores, [2, 3]");
}

TEST_CASE("what cannot be picked or counted is refused in words") {
  const Tensor x = zeros({2, 3}, float64);
  const auto refused = [](auto f) {
    const Error e = error_of(f);
    CHECK(e.kind() == ErrorKind::invalid);
    return std::string(e.what());
  };
  CHECK(refused([&] { ops::masked_select(x, x); }) ==
        "[masked_select] the mask must be bool, got float64 [2, 3]");
  CHECK(refused([&] { ops::bincount(tensor({-1})); }) == "[bincount] needs numbers of at least 0, got -1");
  CHECK(refused([&] { ops::bincount(tensor({std::numeric_limits<int64_t>::max()}, int64)); }) ==
        "[bincount] 9223372036854775807 is too large a number");
  CHECK(refused([&] {
          ops::t(zeros({1, 1, 1}));
        }) == "[t] needs at most two dimensions, got float32 [1, 1, 1]; use transpose");
  CHECK(refused([&] { ops::outer(x, x); }) == "[outer] needs two 1-d tensors, got float64 [2, 3]");
  CHECK(refused([&] { ops::max(zeros({0})); }) == "[max] of no elements: shape [0]");
  CHECK(refused([&] { ops::narrow(x, 0, 1, 2); }) ==
        "[narrow] start 1 and length 2 exceed dimension 0 of float64 [2, 3]");
  CHECK(refused([&] { ops::unbind(tensor(1.0)); }) ==
        "[unbind] needs at least one dimension, got a 0-d tensor");
}

}  // namespace
