// Assignment to a view that is no variable writes to its elements; to a variable it gives another handle.
#include <catch2/catch.hpp>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "core/tensor/indexing.h"
#include "ops/gradient_rules.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;
using testing::invalid_text;

namespace {

using Doubles = std::vector<double>;

template <class Index>
concept Assigns = requires(const Tensor& x, Index at) {
  x.index({at}) = x;
  x.index({at}) = 1;
};
static_assert(Assigns<int> && Assigns<int64_t> && Assigns<Slice> && Assigns<NoneType> &&
              Assigns<EllipsisType>);
static_assert(!Assigns<Tensor>);  // a copy
static_assert(!std::is_assignable_v<Tensor&, int> && std::is_assignable_v<Tensor, int>);
static_assert(std::is_nothrow_move_constructible_v<Tensor> && std::is_nothrow_move_assignable_v<Tensor>);

Tensor blank() { return zeros({2, 3}, float64); }
Doubles list(const Tensor& t) { return t.to_vector<double>(); }

}  // namespace

TEST_CASE("assignment to a view writes to the tensor") {
  const Tensor y = tensor({1, 2, 3}, float64), x = blank();
  x.select(0, 0) = y;
  CHECK(list(x) == Doubles{1, 2, 3, 0, 0, 0});
  x.slice(0, 1, 2) = y;  // broadcast
  CHECK(list(x) == Doubles{1, 2, 3, 1, 2, 3});
  x.index({0}) = tensor({7, 8, 9});  // converted
  CHECK(list(x) == Doubles{7, 8, 9, 1, 2, 3});
  x.index({Ellipsis, Slice(1, None)}) = tensor({{5}, {6}}, float64);
  CHECK(list(x) == Doubles{7, 5, 5, 1, 6, 6});
  x.index({1, -1}) = x.index({0, 0});
  CHECK(list(x) == Doubles{7, 5, 5, 1, 6, 7});
  x.transpose(0, 1).select(0, 0) = tensor(4, float64);
  CHECK(list(x) == Doubles{4, 5, 5, 4, 6, 7});
  x.select(0, 0) = x.select(0, 1) = y;
  CHECK(list(x) == Doubles{1, 2, 3, 1, 2, 3});
  CHECK((x.select(0, 0) = y).storage() == x.storage());
  CHECK(x.version() == 9);
}

TEST_CASE("assignment of a number to a view fills it") {
  const Tensor x = blank(), whole = zeros({3}, int64);
  x.select(0, 0) = 1;
  x.index({1, Slice(1, None)}) = 2.5;
  x.index({1, 0}) = true;
  CHECK(list(x) == Doubles{1, 1, 1, 1, 2.5, 2.5});
  const int64_t large = (int64_t{1} << 53) + 1;
  whole.slice(0, 0, 2) = large;
  CHECK(whole.to_vector<int64_t>() == std::vector<int64_t>{large, large, 0});
}

TEST_CASE("assignment to a view is recorded as copy_ is") {
  const Tensor a = ops::sample({2, 3}), b = ops::sample({3}, -2, 2, 1);
  const auto assigned = [](const Tensors& in) {
    const Tensor x = in[0].square(), row = x.select(0, 1), before = x.slice(1, 0, 2);
    x.select(0, 1) = in[1] * 2;
    x.index({0, Slice(1, None)}) = row.slice(0, 0, 2);
    x.index({Ellipsis, 0}).slice(0, 0, 1) = 3;
    return ops::cat({x.reshape({6}), before.square().reshape({4}), row}, 0);
  };
  const auto copied = [](const Tensors& in) {
    const Tensor x = in[0].square(), row = x.select(0, 1), before = x.slice(1, 0, 2);
    row.copy_(in[1] * 2);
    x.select(0, 0).slice(0, 1, 3).copy_(row.slice(0, 0, 2));
    x.select(0, 0).slice(0, 0, 1).fill_(3);
    return ops::cat({x.reshape({6}), before.square().reshape({4}), row}, 0);
  };
  CHECK(bit_equal(assigned({a, b}), copied({a, b})));
  const auto first = autograd::gradcheck(assigned, {a, b}),
             second = autograd::gradgradcheck(assigned, {a, b});
  INFO(first.text << "; " << second.text);
  CHECK(first.ok);
  CHECK(second.ok);
}

TEST_CASE("a buffer gets its history from what is assigned to its views") {
  Tensor w = tensor({1, 2, 3}, float64).requires_grad_();
  const Tensor buffer = blank();
  buffer.select(0, 1) = w * 2;
  CHECK(buffer.requires_grad());
  autograd::backward(buffer.square().sum());
  CHECK(list(w.grad()) == Doubles{8, 16, 24});
}

TEST_CASE("what copy_ refuses, assignment to a view refuses, and so what would be lost") {
  Tensor w = blank().requires_grad_();
  CHECK_THAT(invalid_text([&] { w.select(0, 0) = 1; }),
             Contains("is a view of a leaf that requires a gradient"));
  CHECK_THAT(invalid_text([&] { w.index({0}) = w.detach().select(0, 1); }), Contains("[copy_]"));
  {
    NoGradGuard off;
    w.index({0}) = 2;
  }
  CHECK(list(w.detach()) == Doubles{2, 2, 2, 0, 0, 0});
  const Tensor x = blank(), mask = x.eq(0);
  CHECK_THAT(invalid_text([&] { x.select(0, 0) = zeros({2}); }), Contains("[copy_] shapes"));
  CHECK_THAT(invalid_text([&] { x.select(0, 0) = Tensor(); }), Contains("undefined"));
  CHECK_THAT(invalid_text([&] { Tensor() = x; }), Contains("undefined"));
  CHECK_THAT(invalid_text([&] { (x + x) = x; }), Contains("[=] the tensor float64 [2, 3] is no view"));
  CHECK_THAT(invalid_text([&] { x.clone() = 1; }), Contains("would be lost"));
  CHECK_THAT(invalid_text([&] { ops::index(x, {mask}) = 1; }), Contains("index_put_()"));
  CHECK(x.version() == 0);
}

TEST_CASE("assignment to a variable gives it the other handle") {
  const Tensor a = blank(), b = blank();
  Tensor x = a, y = b;
  x = b;
  CHECK(x.is_same(b));
  x = Tensor(a);
  CHECK(x.is_same(a));
  std::swap(x, y);
  CHECK((x.is_same(b) && y.is_same(a)));
  CHECK(std::exchange(x, a).is_same(b));
  CHECK(x.is_same(a));
  std::tie(x, y) = std::pair(b, a);
  CHECK((x.is_same(b) && y.is_same(a)));
  std::optional<Tensor> maybe = a;
  maybe = b;
  CHECK(maybe->is_same(b));
  Tensors all{a, a};
  all[1] = b;
  all.front() = std::move(x);
  CHECK((all[0].is_same(b) && all[1].is_same(b) && !x.defined()));
  std::pair<Tensor, Tensor> both{a, a};
  both = std::pair(b, b);
  CHECK((both.first.is_same(b) && both.second.is_same(b)));
  x = {};
  CHECK_FALSE(x.defined());
  CHECK(a.version() + b.version() == 0);
}
