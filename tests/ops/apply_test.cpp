// What apply() promises: errors that say what to fix, saved tensors that are checked, graphs that are freed.
#include <catch2/catch.hpp>
#include <chrono>

#include "autograd/engine.h"
#include "core/base/error.h"
#include "core/graph/anomaly.h"
#include "ops/dispatch/kernel_table.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;

namespace {

using Catch::Contains;

Tensor leaf(const Shape& shape, double value = 1) {
  Tensor t = full(shape, value);
  t.requires_grad_();
  return t;
}

TEST_CASE("errors name the operator, what was got and what was expected") {
  const Tensor a = zeros({3, 4}), b = zeros({5, 6});
  CHECK(testing::text_of([&] { ops::matmul(a, b); }) == "[matmul] inner dimensions differ: [3, 4] x [5, 6]");
  CHECK(testing::text_of([&] { a + b; }) == "[add] shapes do not broadcast: [3, 4] and [5, 6]");
  CHECK_THAT(testing::text_of([&] { ops::matmul(a, zeros({4}, float64)); }),
             Contains("float32 [3, 4] and float64 [4]; use .to()"));
  CHECK_THAT(testing::text_of([&] { ops::gelu(zeros({2}, int64)); }),
             Contains("[gelu] needs a floating dtype, got int64 [2]; use .to()"));
  CHECK_THAT(testing::text_of([&] { a + Tensor(); }), Contains("[add] input 1 is an undefined tensor"));
  CHECK_THAT(testing::text_of([&] { ops::apply(ops::kAdd, std::vector{a}); }),
             Contains("[add] got 1 inputs, expected 2"));
  CHECK_THAT(testing::text_of([&] { ops::softmax(a, 2); }),
             Contains("[softmax] dimension 2 is out of range for shape [3, 4]"));
  CHECK_THAT(testing::text_of([&] { ops::sum(a, {0, -2}); }), Contains("[sum] dimension -2 is named twice"));
  CHECK_THAT(testing::text_of([&] {
               ops::reshape(a, {5, -1});
             }),
             Contains("[reshape] [3, 4] has 12 elements"));
  CHECK_THAT(testing::text_of([&] { ops::embedding(tensor({7}), a); }),
             Contains("index 7 is out of range for size 3"));
  CHECK_THAT(testing::text_of([&] {
               ops::cross_entropy(a, tensor({0, 1, 4}));
             }),
             Contains("target 4 is out of range for 4 classes"));
  CHECK_THAT(testing::text_of([&] { ops::mse_loss(a, a, "avg"); }),
             Contains("reduction is \"avg\", expected mean, sum or none"));
  CHECK_THAT(testing::text_of([&] { ops::gelu(a, "fast"); }),
             Contains("approximate is \"fast\", expected none or tanh"));
  CHECK_THAT(testing::text_of([&] { ops::amax(zeros({0, 2}), {0}); }), Contains("of no elements"));
  CHECK_THAT(testing::text_of([&] { ops::slice(a, 0, 0, 2, 0); }),
             Contains("step must be at least 1, got 0"));
}

TEST_CASE("a gradient rule that gives too many, too few or other gradients is named") {
  static int what = 0;
  static const ops::Op op{.name = "own_product",
                          .inputs = "input other",
                          .shape = [](const ops::Call& c) -> ops::Specs {
                            return {{c.in[0].shape(), c.in[0].dtype()}};
                          },
                          .gradient = [](const ops::Backward& b) -> Tensors {
                            const Tensor& g = b.grads[0];
                            switch (what) {
                              case 0:
                                return {g, g, Tensor()};
                              case 1:
                                return {g};
                              case 2:
                                return {};
                              case 3:
                                return {g, g.sum()};
                              case 4:
                                return {g.reshape({1, 6}), g};
                              case 5:
                                return {g, g.to(float64)};
                              case 6:
                                return {Tensor(), g};
                              default:
                                return {g, g};
                            }
                          }};
  ops::register_kernel(op, Device::Kind::cpu,
                       [](const ops::Call& c, Tensors& out) { out[0].copy_(ops::mul(c.in[0], c.in[1])); });
  const auto text = [&](int kind, bool second = true) {
    what = kind;
    const Tensor x = full({2, 3}, 2.).requires_grad_(), y = full({2, 3}, 3.).requires_grad_(second);
    // Behind it another step, which would take any shape.
    return testing::text_of([&] { ops::apply1(op, {x * 1, second ? y * 1 : y}).sum().backward(); });
  };
  CHECK(
      text(0) ==
      "[own_product] the gradient rule gave 3 gradients, expected one for each of the 2 inputs (an undefined "
      "one: none)");
  CHECK_THAT(text(1), Contains("gave 1 gradients, expected one for each of the 2 inputs"));
  CHECK_THAT(text(2), Contains("gave 0 gradients"));
  CHECK(text(1, false) == "no error");  // nobody asks for the one that is missing
  CHECK(text(3) == "[own_product] the gradient rule gave float32 [] for input 1, which is float32 [2, 3]");
  CHECK(text(3, false) == "no error");
  CHECK_THAT(text(4), Contains("gave float32 [1, 6] for input 0, which is float32 [2, 3]"));
  CHECK_THAT(text(5), Contains("gave float64 [2, 3] for input 1, which is float32 [2, 3]"));
  CHECK(text(6) == "no error");
  CHECK(text(7) == "no error");
  const AnomalyGuard on;
  CHECK_THAT(text(3), Contains("gave float32 [] for input 1, which is float32 [2, 3]"));
}

TEST_CASE("a record that nobody has made yet says that it is too early") {
  const ops::Op zeroed{
      .name = nullptr, .min_inputs = 0, .max_inputs = 0};  // as records are before their values are set
  CHECK_THAT(testing::text_of([&] { ops::apply1(zeroed, {tensor(1)}); }),
             Contains("before main() begins") && Contains("in a function"));
}

TEST_CASE("attributes are completed, converted and checked by name") {
  const Tensor x = tensor({{1, 2}, {3, 4}}, float64);
  CHECK(ops::apply1(ops::kSum, {x}, {{"dim", 1}}).to_vector<double>() == std::vector<double>{3, 7});
  CHECK(ops::apply1(ops::kSum, {x}, {{"keepdim", true}, {"dim", 0}}).shape() == Shape{1, 2});
  CHECK(ops::apply1(ops::kPowScalar, {x}, {{"exponent", 2}}).to_vector<double>() ==
        std::vector<double>{1, 4, 9, 16});
  CHECK(testing::text_of([&] {
          ops::apply1(ops::kSum, {x}, {{"dims", 1}});
        }) == "[sum] no attribute dims; it has [dim, keepdim]");
  CHECK_THAT(testing::text_of([&] {
               ops::apply1(ops::kSum, {x}, {{"keepdim", "yes"}});
             }),
             Contains("keepdim is a boolean, got a text"));
  CHECK_THAT(testing::text_of([&] {
               ops::apply1(ops::kAddScalar, {x}, {{"value", "one"}});
             }),
             Contains("value is a number, got a text"));
  CHECK_THAT(testing::text_of([&] {
               ops::apply1(ops::kSum, {x}, {{"dim", 0}, {"dim", 1}});
             }),
             Contains("given twice"));
}

TEST_CASE("backward finds that a saved tensor was changed in place, and by whom") {
  const auto complaint = [](auto write) {
    Tensor x = leaf({2}), y = leaf({2}, 3);
    const Tensor loss = ops::sum(x * y);
    {
      NoGradGuard off;  // y is a leaf
      write(y);
    }
    const std::string text = testing::text_of([&] { autograd::backward(loss); });
    CHECK_THAT(text,
               Contains("[mul] input 1 (float32 [2]), saved for the backward pass, was changed in place by"));
    CHECK_FALSE(x.grad().defined());
    return text;
  };
  const Tensor one = full({2}, 1.0);
  const auto by = [&](const char* writer, auto write) {
    CHECK_THAT(complaint(write),
               Contains(std::string("by ") + writer + " afterwards: version 1, expected 0"));
  };
  by("add_", [&](const Tensor& y) { ops::add_(y, one); });
  by("add_", [&](const Tensor& y) { ops::add_(y, 1.0); });
  by("mul_", [&](const Tensor& y) { ops::mul_(y, 2.0); });
  by("addcmul_", [&](const Tensor& y) { ops::addcmul_(y, one, one); });
  by("addcdiv_", [&](const Tensor& y) { ops::addcdiv_(y, one, one); });
  by("lerp_", [&](const Tensor& y) { ops::lerp_(y, one, 0.5); });
  by("maximum_", [&](const Tensor& y) { ops::maximum_(y, one); });
  by("sqrt_", [&](const Tensor& y) { ops::sqrt_(y); });
  by("copy_", [&](const Tensor& y) { y.copy_(one); });
  by("fill_", [&](const Tensor& y) { y.fill_(7); });
  by("fill_", [&](const Tensor& y) { y.alias({1}, {1}, 1).fill_(7); });  // through a view
  const std::string last = complaint([&](const Tensor& y) {
    ops::add_(y, one);
    y.fill_(0);
  });
  CHECK_THAT(last, Contains("by fill_ afterwards: version 2, expected 0"));
}

TEST_CASE("a result that was saved is watched too, and the rest of the graph stays usable") {
  Tensor x = leaf({2});
  const Tensor e = ops::exp(x), loss = ops::sum(e), other = ops::sum(x * x);
  e.fill_(0);
  CHECK_THAT(testing::text_of([&] { autograd::backward(loss); }),
             Contains("[exp] result 0") && Contains("changed in place by fill_"));
  autograd::backward(other);
  CHECK(x.grad().to_vector<float>() == std::vector<float>{2, 2});
}

TEST_CASE("a second backward needs retain_graph") {
  Tensor x = leaf({2});
  const Tensor loss = ops::sum(ops::exp(x) * x);
  autograd::backward(loss, {}, {.retain_graph = true});
  autograd::backward(loss);
  CHECK_THAT(testing::text_of([&] { autograd::backward(loss); }),
             Contains("was already run; pass retain_graph"));
}

TEST_CASE("an operator that saves its result makes no cycle") {
  const size_t before = allocator_stats().in_use;
  {
    Tensor x = leaf({100});
    const Tensor y = ops::softmax(ops::tanh(ops::exp(x)), 0);
    const Tensor g = autograd::grad({ops::sum(ops::square(y))}, {x}, {}, {.create_graph = true})[0];
    CHECK(g.requires_grad());
  }
  CHECK(allocator_stats().in_use == before);
}

TEST_CASE("results of integer and boolean operators need no gradient") {
  Tensor x = leaf({3});
  CHECK(!ops::gt(x, x).requires_grad());
  CHECK(!ops::argmax(x, 0).requires_grad());
  CHECK(!ops::to(x, int64).requires_grad());
  CHECK(ops::sum(ops::gt(x, tensor(0.0))).item() == 3);
}

TEST_CASE("operators on numbers and members read like arithmetic") {
  const Tensor x = tensor({1, 4}, float64);
  CHECK((2 - x).to_vector<double>() == std::vector<double>{1, -2});
  CHECK((8 / x).to_vector<double>() == std::vector<double>{8, 2});
  CHECK(((x + 1) * 2 - x / x).to_vector<double>() == std::vector<double>{3, 9});
  CHECK((-x.sqrt()).to_vector<double>() == std::vector<double>{-1, -2});
  CHECK((x - 1.0).sum().item() == 3);
  const Tensor i = tensor({3, -4});
  CHECK((i * 2.0 + i).to_vector<int64_t>() == std::vector<int64_t>{9, -12});
  // % has the sign of the divisor, as in Python.
  CHECK((tensor({5, -5, 7}) % 3).to_vector<int64_t>() == std::vector<int64_t>{2, 1, 1});
  CHECK((7 % tensor({2, -4})).to_vector<int64_t>() == std::vector<int64_t>{1, -1});
  CHECK((tensor({5.5, -5.5}) % 2).to_vector<double>() == std::vector<double>{1.5, 0.5});
  CHECK((tensor({5, -5}) % tensor({{3}, {-3}})).to_vector<int64_t>() == std::vector<int64_t>{2, 1, -1, -2});
  Tensor rest = tensor({5, -5});
  rest %= 3;
  CHECK(rest.to_vector<int64_t>() == std::vector<int64_t>{2, 1});
  Tensor y = tensor({4, -1}, float64).requires_grad_(), by = tensor({3, 3}, float64).requires_grad_();
  (y % by).sum().backward();
  CHECK(y.grad().to_vector<double>() == std::vector<double>{1, 1});
  CHECK(by.grad().to_vector<double>() == std::vector<double>{-1, 1});
  Tensor z = y * 1;
  z %= by;
  (z * z).sum().backward();
  CHECK(y.grad().to_vector<double>() == std::vector<double>{3, 5});
  CHECK(by.grad().to_vector<double>() == std::vector<double>{-3, 5});
}

}  // namespace
