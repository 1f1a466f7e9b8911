// What the samples cannot show of comparisons, logic, order, dropout and layout: special values, ties,
// errors.
#include <catch2/catch.hpp>
#include <cmath>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;

namespace {

using Catch::Contains;
using Values = std::vector<double>;
using Ints = std::vector<int64_t>;
using Flags = std::vector<bool>;
using testing::text_of;

const double kNan = std::nan(""), kInf = HUGE_VAL;

Flags flags(const Tensor& t) {
  CHECK(t.dtype() == boolean);
  return t.to_vector<bool>();
}

TEST_CASE("comparisons know NaN and every dtype") {
  const Tensor a = tensor({1, 2, kNan, kInf}, float64), b = tensor({1, 3, kNan, -kInf}, float64);
  CHECK(flags(a.eq(b)) == Flags{true, false, false, false});
  CHECK(flags(a.ne(b)) == Flags{false, true, true, true});
  CHECK(flags(a.lt(b)) == Flags{false, true, false, false});
  CHECK(flags(a.le(b)) == Flags{true, true, false, false});
  CHECK(flags(a.gt(b)) == Flags{false, false, false, true});
  CHECK(flags(a.ge(b)) == Flags{true, false, false, true});
  for (const DType t : {float32, int64, boolean, bfloat16, float16}) {
    const Tensor x = tensor({0, 1}, float64).to(t), y = tensor({1, 1}, float64).to(t);
    CHECK(flags(x.ge(y)) == Flags{false, true});
    CHECK(flags(x.ne(y)) == Flags{true, false});
  }
}

TEST_CASE("integers are compared with a number that is not cut") {
  const Tensor i = tensor({2, 3, -1});
  CHECK(flags(i.lt(2.5)) == Flags{true, false, true});
  CHECK(flags(i.ge(3)) == Flags{false, true, false});
  CHECK(flags(i.eq(2.5)) == Flags{false, false, false});
  CHECK(flags(i.lt(kInf)) == Flags{true, true, true});
  CHECK(flags(tensor({true, false}).eq(1)) == Flags{true, false});
  CHECK(flags(tensor({true, false}).gt(0.5)) == Flags{true, false});
}

TEST_CASE("special values are found") {
  const Tensor x = tensor({0, kNan, kInf, -kInf}, float64);
  for (const DType t : {float64, float32, bfloat16, float16}) {
    CHECK(flags(x.to(t).isnan()) == Flags{false, true, false, false});
    CHECK(flags(x.to(t).isfinite()) == Flags{true, false, false, false});
  }
  CHECK(flags(tensor({1}).isfinite()) == Flags{true});
}

TEST_CASE("logic takes what is not 0 for true, and any and all are for everything") {
  const Tensor a = tensor({false, false, true, true}), b = tensor({false, true, false, true});
  CHECK(flags(ops::logical_and(a, b)) == Flags{false, false, false, true});
  CHECK(flags(ops::logical_or(a, b)) == Flags{false, true, true, true});
  CHECK(flags(a.logical_not()) == Flags{true, true, false, false});
  CHECK(flags(ops::logical_and(a, tensor({kNan, 1, 0, -0.5}, float64))) == Flags{false, false, false, true});
  CHECK(a.any().item() == 1);
  CHECK(a.all().item() == 0);
  const Tensor x = tensor({{0, kNan}, {0, 0}}, float64);
  CHECK(flags(ops::any(x, {1})) == Flags{true, false});
  CHECK(ops::all(x, {0}, true).shape() == Shape{1, 2});
  CHECK(zeros({0}).any().item() == 0);
  CHECK(zeros({0}).all().item() == 1);
}

TEST_CASE("masked_fill keeps x's dtype, and no gradient flows where it filled") {
  Tensor x = tensor({{1, 2}, {3, 4}}, float64).requires_grad_();
  const Tensor mask = tensor({true, false});
  const Tensor y = x.masked_fill(mask, -kInf);
  CHECK(y.to_vector<double>() == Values{-kInf, 2, -kInf, 4});
  autograd::backward(y.softmax(-1).sum());
  autograd::backward((x.masked_fill(mask, 0) * 3).sum());
  CHECK(x.grad().to_vector<double>() == Values{0, 3, 0, 3});
  CHECK(zeros({2}).masked_fill(zeros({3, 2}, boolean), 0).shape() == Shape{3, 2});
  CHECK_THAT(text_of([&] { x.masked_fill(x, 0); }), Contains("[masked_fill] needs bool, got float64 [2, 2]"));
}

TEST_CASE("sort is stable and takes NaN for the largest") {
  const Tensor x = tensor({2, kNan, 1, 2, -kInf, 1}, float64);
  auto up = x.sort();
  CHECK(up.indices.to_vector<int64_t>() == Ints{4, 2, 5, 0, 3, 1});
  CHECK(up.values.to_vector<double>()[0] == -kInf);
  CHECK(std::isnan(up.values.to_vector<double>()[5]));
  CHECK(x.sort(0, true).indices.to_vector<int64_t>() == Ints{1, 0, 3, 2, 5, 4});
  CHECK(ops::argsort(x).to_vector<int64_t>() == Ints{4, 2, 5, 0, 3, 1});
  CHECK(tensor({true, false, true}).sort().indices.to_vector<int64_t>() == Ints{1, 0, 2});
  const auto half = tensor({3, -1, 2}, float64).to(bfloat16).sort();
  CHECK(half.values.dtype() == bfloat16);
  CHECK(half.values.to_vector<double>() == Values{-1, 2, 3});
  // Many equal keys, in lines that do not lie together.
  Generator g(3);
  const Tensor keys = ops::rand({200, 3}, g) * 5;
  const Tensor whole = keys.to(int64);
  const auto sorted = whole.sort(0);
  const auto value = sorted.values.to_vector<int64_t>(), place = sorted.indices.to_vector<int64_t>();
  for (size_t i = 3; i < value.size(); ++i) {
    CHECK(value[i - 3] <= value[i]);
    if (value[i - 3] == value[i]) CHECK(place[i - 3] < place[i]);
  }
}

TEST_CASE("topk is the beginning of the stable sort") {
  Generator g(4);
  const Tensor x = (ops::rand({50, 7}, g) * 10).to(int64).to(float32);
  for (const bool largest : {true, false}) {
    const auto sorted = x.sort(0, largest), top = x.topk(9, 0, largest);
    CHECK(bit_equal(top.values, sorted.values.slice(0, 0, 9)));
    CHECK(bit_equal(top.indices, sorted.indices.slice(0, 0, 9)));
  }
  CHECK(tensor({1, kNan, 2}, float64).topk(2).indices.to_vector<int64_t>() == Ints{1, 2});
  CHECK(x.topk(0).values.shape() == Shape{50, 0});
  CHECK_THAT(text_of([&] { x.topk(8); }), Contains("[topk] k is 8, expected 0 to 7 for float32 [50, 7]"));
}

TEST_CASE("argmin and argmax find the first, and NaN first of all") {
  const Tensor x = tensor({3, 1, 1, 3}, float64);
  CHECK(x.argmin(0).item() == 1);
  CHECK(x.argmax(0).item() == 0);
  CHECK(tensor({3, kNan, 1, kNan}, float64).argmin(-1).item() == 1);
}

TEST_CASE("prod counts zeros right, also in its gradient") {
  Tensor x = tensor({{2, 3, 0}, {4, 0, 5}, {0, 6, 7}}, float64).requires_grad_();
  const Tensor y = ops::prod(x, {1});
  CHECK(y.to_vector<double>() == Values{0, 0, 0});
  autograd::backward(y.sum());
  CHECK(x.grad().to_vector<double>() == Values{0, 0, 6, 0, 20, 0, 42, 0, 0});
  CHECK(ops::prod(tensor({3, -5})).dtype() == int64);
  CHECK(ops::prod(tensor({true, true})).item() == 1);
  CHECK(ops::std(tensor({1, 3, 5, 7}, float64)).item() == Approx(std::sqrt(20.0 / 3)));
}

TEST_CASE("dropout's mask depends on the generator alone") {
  Generator a(7), b(7);
  const Tensor x = full({64, 65}, 2.0);
  const Tensor y = ops::dropout(x, 0.25, a);
  CHECK(bit_equal(y, ops::dropout(x, 0.25, b)));
  CHECK_FALSE(bit_equal(y, ops::dropout(x, 0.25, b)));
  Generator c(7);
  const Tensor other = full({65, 64}, 2, bfloat16).transpose(0, 1);
  CHECK(bit_equal(ops::dropout(other, 0.25, c).eq(0), y.eq(0)));
  double zeros = 0;
  for (const double v : y.to_vector<double>()) {
    CHECK((v == 0 || v == Approx(2 / 0.75)));
    zeros += v == 0;
  }
  CHECK(zeros / 4160 == Approx(0.25).margin(0.03));
  for (const double p : {1.0, -0.1, kNan})
    CHECK_THAT(text_of([&] { ops::dropout(x, p, a); }),
               Contains("[dropout] the probability must be in [0, 1)"));
  CHECK_THAT(text_of([&] { ops::dropout(x, 7, false); }), Contains("must be in [0, 1), got 7"));
  CHECK(bit_equal(ops::dropout(x, 0, a), x));
}

TEST_CASE("flatten, select, chunk, split and view are views") {
  const Tensor x = tensor({{{0, 1}, {2, 3}, {4, 5}}, {{6, 7}, {8, 9}, {10, 11}}}, float64);
  CHECK(x.flatten().shape() == Shape{12});
  CHECK(x.flatten(1).shape() == Shape{2, 6});
  CHECK(x.flatten(0, 1).storage() == x.storage());
  CHECK(tensor(1.0).flatten().shape() == Shape{1});
  CHECK(x.select(1, -1).to_vector<double>() == Values{4, 5, 10, 11});
  CHECK(x.select(0, 1).storage() == x.storage());
  const auto parts = x.chunk(2, 1);
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].shape() == Shape{2, 2, 2});
  CHECK(parts[1].to_vector<double>() == Values{4, 5, 10, 11});
  CHECK(x.split(1, 1).size() == 3);
  CHECK(x.split(Ints{1, 2}, 1)[1].shape() == Shape{2, 2, 2});
  CHECK(zeros({0, 2}).chunk(3).size() == 1);
  CHECK(x.view({4, -1}).storage() == x.storage());
  CHECK_THAT(text_of([&] { x.transpose(0, 1).view({12}); }), Contains("[view]") && Contains("use reshape()"));
  CHECK_THAT(text_of([&] { x.select(0, 2); }), Contains("[select] index 2 is out of range"));
  CHECK_THAT(text_of([&] { x.flatten(2, 1); }), Contains("[flatten] start_dim 2 is after end_dim 1"));
  CHECK_THAT(text_of([&] { x.split(0); }), Contains("[split] the size of a piece must be at least 1"));
  CHECK_THAT(text_of([&] { tensor(1.0).chunk(2); }), Contains("[chunk] needs at least one dimension"));
  CHECK_THAT(text_of([] { Tensor().flatten(); }), Contains("[flatten] got an undefined tensor"));
  CHECK(ops::roll(tensor({1, 2, 3}, float64), {1}, {0}).to_vector<double>() == Values{3, 1, 2});
  CHECK(ops::repeat(tensor({1, 2}, float64), {2, 2}).to_vector<double>() == Values{1, 2, 1, 2, 1, 2, 1, 2});
  CHECK(ops::triu(full({3, 3}, kInf), 1).sum({0}).to_vector<double>() == Values{0, kInf, kInf});
}

TEST_CASE("methods and operators read like PyTorch's") {
  Generator g(9);
  const Tensor x = ops::randn({4, 3}, g, float64);
  Tensor w = ops::randn({4, 5}, g, float64).requires_grad_(),
         b = ops::randn({5}, g, float64).requires_grad_();
  const Tensor y = x.transpose(0, 1).matmul(w) + b;
  CHECK(y.shape() == Shape{3, 5});
  CHECK(testing::difference(y, ops::linear(x.transpose(0, 1), w.transpose(0, 1), b), 1e-12, 1e-12) == "");
  const Tensor p = (-y * 2 + 1).softmax(-1),
               loss = -(p.log_softmax(-1).gather(1, p.argmax(1).unsqueeze(1))).mean();
  autograd::backward(loss + w.pow(2).sum() * 0.1);
  CHECK(w.grad().shape() == w.shape());
  CHECK(b.grad().dtype() == float64);
  const Tensor scores = y.detach().masked_fill(y.detach().gt(0), 0).reshape({-1}).clamp(-1, 1).abs();
  CHECK(scores.amax().item() <= 1);
  CHECK(scores.amin({0}, true).shape() == Shape{1});
  CHECK((1.0 - scores).ge(0).all().item() == 1);
  CHECK(y.to(bfloat16).var({0}).dtype() == bfloat16);
  CHECK(y.index_select(0, tensor({2, 0})).select(0, 1).shape() == Shape{5});
  CHECK(ops::silu(ops::gelu(y)).relu().isfinite().all().item() == 1);
}

}  // namespace
