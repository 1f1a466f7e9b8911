// Tensor::index and index_put_, beside what PyTorch gives.
#include "core/tensor/indexing.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "core/graph/node.h"
#include "ops/gradient_rules.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;
using testing::invalid_text;

namespace {

using Ints = std::vector<int64_t>;

Tensor counting(const Shape& shape) {
  Ints values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0);
  return tensor(values).reshape(shape);
}

Tensor flags(const Ints& values, const Shape& shape) { return tensor(values).reshape(shape).ne(0); }

void check(const Tensor& got, const Shape& shape, const Ints& values) {
  CHECK(got.shape() == shape);
  CHECK(got.to_vector<int64_t>() == values);
}

const Tensor i = tensor({1, 0, -1}), j = tensor({{0}, {1}}), k = tensor({0, 1}),
             m = tensor({{1, 0, 1}, {0, 0, 1}}, boolean), n = tensor({1, 0, 1, 0}, boolean);

}  // namespace

TEST_CASE("indices give what PyTorch gives") {
  const Tensor x = counting({2, 3, 4});
  check(x.index({1}), {3, 4}, {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23});
  check(x.index({-1, Slice(None, None, 2)}), {2, 4}, {12, 13, 14, 15, 20, 21, 22, 23});
  check(x.index({Ellipsis, 0}), {2, 3}, {0, 4, 8, 12, 16, 20});
  check(x.index({Slice(), None, 1}), {2, 1, 4}, {4, 5, 6, 7, 16, 17, 18, 19});
  check(x.index({Slice(None, 1), Ellipsis, Slice(-2, None)}), {1, 3, 2}, {2, 3, 6, 7, 10, 11});
  check(x.index({Slice(), i}), {2, 3, 4},
        {4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 12, 13, 14, 15, 20, 21, 22, 23});
  check(x.index({k, i.slice(0, 0, 2)}), {2, 4}, {4, 5, 6, 7, 12, 13, 14, 15});
  check(x.index({k, Slice(), k}), {2, 3}, {0, 4, 8, 13, 17, 21});
  check(x.index({m}), {3, 4}, {0, 1, 2, 3, 8, 9, 10, 11, 20, 21, 22, 23});
  check(x.index({Slice(), Slice(), n}), {2, 3, 2}, {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22});
  check(x.index({j, k}), {2, 2, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 16, 17, 18, 19});
  check(x.index({0, i, k.index({1})}), {3}, {5, 1, 9});
  check(x.index({m, 2}), {3}, {2, 10, 22});
  check(x.index({Ellipsis, k, None}), {2, 3, 2, 1}, {0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21});
  check(x.index({1, None, i}), {1, 3, 4}, {16, 17, 18, 19, 12, 13, 14, 15, 20, 21, 22, 23});
  check(x.index({k, None, Slice(0, 1), i.slice(0, 0, 2)}), {2, 1, 1}, {1, 12});
  check(x.index({flags({0, 0, 0, 0, 0, 0}, {2, 3})}), {0, 4}, {});
  check(counting({2}).index({Slice(5, 1)}), {0}, {});
}

TEST_CASE("indices without tensors give views, tensors copies") {
  const Tensor x = counting({2, 3});
  CHECK(x.index({1, Slice(1, None)}).storage() == x.storage());
  CHECK(x.index({Ellipsis}).storage() == x.storage());
  CHECK(tensor(3.0).index({None, Ellipsis}).shape() == Shape{1});
  CHECK(x.index({tensor(1)}).storage() == x.storage());  // as a number
  CHECK(x.index({k}).storage() != x.storage());
}

TEST_CASE("wrong indices are refused, and nothing is written") {
  const Tensor x = counting({2, 3}), before = x.clone();
  CHECK(invalid_text([&] { x.index({2}); }) ==
        "[select] index 2 is out of range for dimension 0 of int64 [2, 3]");
  CHECK(invalid_text([&] {
          x.index({0, 0, 0});
        }) == "[index] too many indices: they stand for 3 dimensions, the tensor is int64 [2, 3]");
  CHECK(invalid_text([&] {
          x.index({tensor({0, -3})});
        }) == "[index] index -3 is out of range for dimension 0 of int64 [2, 3]");
  CHECK_THAT(invalid_text([&] { x.index({Ellipsis, Ellipsis}); }), Contains("Ellipsis stands twice"));
  CHECK_THAT(invalid_text([&] { x.index({tensor({1}, float32)}); }), Contains("are bool, int64 or int32"));
  CHECK_THAT(invalid_text([&] { x.index({n}); }), Contains("does not fit the dimensions"));
  CHECK_THAT(invalid_text([&] { x.index({Slice(0, 2, 0)}); }), Contains("step must be at least 1"));
  CHECK_THAT(invalid_text([&] { x.index({Tensor()}); }), Contains("undefined tensor"));
  CHECK_THAT(invalid_text([&] { x.index_put_({k}, zeros({2})); }), Contains("use .to() on the value"));
  CHECK_THAT(invalid_text([&] { x.index_put_({m}, counting({2})); }),
             Contains("[index_put_] shapes do not broadcast: [3] and [2]"));
  CHECK_THAT(invalid_text([&] { x.index_put_({1}, counting({2})); }), Contains("[copy_]"));
  CHECK_THAT(invalid_text([&] { x.index_put_({k}, x); }),
             Contains("shares elements with an index or the value"));
  CHECK(bit_equal(x, before));
  CHECK(x.version() == 0);
  const Tensor own = counting({2});
  CHECK_THAT(invalid_text([&] { own.index_put_({own}, 5.0); }), Contains("shares elements"));
  CHECK(own.to_vector<int64_t>() == Ints{0, 1});
}

TEST_CASE("items are set as in PyTorch") {
  const auto after = [](const std::vector<TensorIndex>& at, auto value) {
    const Tensor x = counting({2, 3});
    CHECK(x.index_put_(at, value).is_same(x));
    CHECK(x.version() > 0);
    return x.to_vector<int64_t>();
  };
  CHECK(after({1}, 7.0) == Ints{0, 1, 2, 7, 7, 7});
  CHECK(after({Ellipsis, Slice(1, None)}, tensor({8, 9})) == Ints{0, 8, 9, 3, 8, 9});
  CHECK(after({0}, tensor({{{7, 8, 9}}})) == Ints{7, 8, 9, 3, 4, 5});  // leading ones go
  CHECK(after({0}, tensor({1.5})) == Ints{1, 1, 1, 3, 4, 5});          // as copy_ converts
  CHECK(after({m}, -1.0) == Ints{-1, 1, -1, 3, 4, -1});
  CHECK(after({m}, tensor({7, 8, 9})) == Ints{7, 1, 8, 3, 4, 9});
  CHECK(after({Slice(), tensor({2, 0})}, tensor({{7, 8}, {9, 6}})) == Ints{8, 1, 7, 6, 4, 9});
  CHECK(after({tensor({1, 1}), tensor({0, -1})}, tensor({7, 8})) == Ints{0, 1, 2, 7, 4, 8});
  CHECK(after({Slice(None, None, 2), tensor({1})}, 5.0) == Ints{0, 5, 2, 3, 4, 5});
}

TEST_CASE("gradients go through index and index_put_") {
  const Tensor x = ops::sample({2, 3, 4}), y = ops::sample({3, 4}, -2, 2, 1);
  const auto right = [](const auto& f, const Tensors& in) {
    const auto first = autograd::gradcheck(f, in), second = autograd::gradgradcheck(f, in);
    INFO(first.text << "; " << second.text);
    CHECK(first.ok);
    CHECK(second.ok);
  };
  const auto twice = tensor({1, 0, 1});
  right([&](const Tensors& in) { return in[0].index({Ellipsis, twice, Slice(1, None)}).square(); }, {x});
  right([&](const Tensors& in) { return in[0].index({m}).square(); }, {x});
  right([&](const Tensors& in) { return in[0].index({1, Slice(None, None, 2), None}).square(); }, {x});
  const auto put = [&](const std::vector<TensorIndex>& at, bool some) {
    right(
        [&](const Tensors& in) {
          const Tensor t = in[0].square();
          return t.index_put_(at, some ? in[1] : in[1].sum()).square();
        },
        {x, y});
  };
  put({1}, true);
  put({m}, true);
  put({Slice(None, None, 2), tensor({2, 0})}, false);
  put({0, Slice(1, None)}, false);
  right([&](const Tensors& in) { return (in[0] * 2).index_put_({m, 1}, 3.0).square(); }, {x});
}

TEST_CASE("a slice has libtorch's defaults") {
  const Tensor x = arange(12).reshape({4, 3});
  CHECK(x.slice().equal(x));
  CHECK(x.slice(0, 1).equal(x.slice(0, 1, 4)));
  CHECK(x.slice(1, 1).equal(x.slice(1, 1, 3)));
  CHECK(x.slice(0, {}, 2).equal(x.slice(0, 0, 2)));
  CHECK(x.slice(0, -1).equal(x.slice(0, 3, 4)));
  CHECK(ops::slice(x, 0, {}, {}, 2).equal(x.slice(0, 0, 4, 2)));
}
