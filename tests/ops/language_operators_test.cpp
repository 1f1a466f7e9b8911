// What samples and reference values do not show of the operators of language models: special values,
// refusals, halves, and that grouped keys are not copied.
#include <catch2/catch.hpp>
#include <cmath>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;
using Catch::Contains;
using testing::text_of;

namespace {

using Doubles = std::vector<double>;
constexpr double kInf = HUGE_VAL;

Tensor of(std::initializer_list<double> values, DType t = float64) {
  return ops::to(tensor(Doubles(values), float64), t);
}
Doubles read(const Tensor& t) { return t.to_vector<double>(); }

TEST_CASE("numbers take the place of NaN and infinities, up to the largest of each dtype") {
  const Doubles most{65504, 3.3895313892515355e38, 3.4028234663852886e38, 1.7976931348623157e308};
  const DType types[] = {float16, bfloat16, float32, float64};
  for (size_t i = 0; i < most.size(); ++i) {
    const Tensor x = of({1, std::nan(""), kInf, -kInf}, types[i]);
    CHECK(read(ops::nan_to_num(x)) == Doubles{1, 0, most[i], -most[i]});
    CHECK(read(ops::nan_to_num(x, 2, 3, -4)) == Doubles{1, 2, 3, -4});
  }
  const Tensor x = of({1, std::nan(""), kInf}).requires_grad_();
  CHECK(read(autograd::grad({ops::sum(ops::nan_to_num(x))}, {x})[0]) == Doubles{1, 0, 0});
  CHECK(read(ops::nan_to_num(tensor({3, 4}))) == Doubles{3, 4});
}

TEST_CASE("sums of exponentials hold at infinity, and quotients are rounded as asked") {
  CHECK(read(ops::logaddexp(of({kInf, -kInf, 1000}), of({kInf, -kInf, 1000}))) ==
        Doubles{kInf, -kInf, 1000 + std::log(2.0)});
  const Tensor a = tensor({7, -7, 7, -7}), b = tensor({2, 2, -2, -2});
  CHECK(read(a.div(b, "trunc")) == Doubles{3, -3, -3, 3});
  CHECK(read(a.div(b, "floor")) == Doubles{3, -4, -4, 3});
  CHECK(a.div(b, "trunc").dtype() == int64);
  CHECK(read(of({7, -7}).div(2, "trunc")) == Doubles{3, -3});
  const Tensor x = of({1, 2}).requires_grad_();
  CHECK(read(autograd::grad({ops::sum(x.div(of({0, 3}), "floor"))}, {x})[0]) == Doubles{0, 0});
  CHECK_THAT(text_of([&] { a.div(b, "round"); }), Contains("\"trunc\" or \"floor\", got \"round\""));
}

TEST_CASE("clamp takes tensors of other dtypes and shapes, and lets NaN through") {
  const Tensor y = ops::clamp(tensor({1, 5, 9}), of({2.5}, float32), tensor({8}));
  CHECK((y.dtype() == float32 && read(y) == Doubles{2.5, 5, 8}));
  CHECK(std::isnan(read(ops::clamp(of({1}), of({std::nan("")})))[0]));
  CHECK_THAT(text_of([] { ops::clamp(tensor({true}), tensor({false})); }), Contains("not for bool"));
  CHECK_THAT(text_of([] { ops::clamp(tensor({1}), Tensor()); }), Contains("needs min, max or both"));
}

TEST_CASE("a sum in another dtype is made in it") {
  const Tensor x = of({256, 1, 1}, bfloat16);
  CHECK(
      (ops::sum(x, {}, false, float32).dtype() == float32 && ops::sum(x, {}, false, float32).item() == 258));
  CHECK(ops::sum(of({1.5, 1.5}), {}, false, int32).dtype() == int32);
  CHECK(ops::sum(of({1.5, 1.5}), {}, false, int32).item() == 2);
  CHECK(x.softmax(0, float32).dtype() == float32);
  CHECK(tensor({1, 2}).mean({}, false, float64).item() == 1.5);
}

TEST_CASE("grouped keys give what repeated keys give, in every way of attention") {
  const Tensor q = ops::randn({2, 6, 5, 4}, Generator(1), float64),
               k = ops::randn({2, 2, 5, 4}, Generator(2), float64),
               v = ops::randn({2, 2, 5, 3}, Generator(3), float64);
  const Tensor keys = k.repeat_interleave(3, 1), values = v.repeat_interleave(3, 1);
  const Tensor mask = ops::rand({5, 5}, Generator(4)) < 0.7;
  for (const bool causal : {false, true})
    for (const Tensor& m : {Tensor(), mask}) {
      if (causal && m.defined()) continue;
      const Tensor grouped = ops::scaled_dot_product_attention(q, k, v, m, 0, causal, 0.4, true);
      CHECK(testing::difference(grouped,
                                ops::scaled_dot_product_attention(q, keys, values, m, 0, causal, 0.4), 1e-12,
                                1e-12) == "");
    }
  // Heads of values that differ from those of keys, and one head for all.
  CHECK(ops::scaled_dot_product_attention(q, k, v.repeat_interleave(3, 1), {}, 0, false, {}, true).shape() ==
        Shape{2, 6, 5, 3});
  CHECK(ops::scaled_dot_product_attention(q, k.narrow(1, 0, 1), v.narrow(1, 0, 1), {}, 0, false, {}, true)
            .shape() == Shape{2, 6, 5, 3});
  const auto refused = [&](int64_t heads) {
    const Tensor few = zeros({2, heads, 5, 4}, float64);
    return text_of([&] { ops::scaled_dot_product_attention(q, few, few, {}, 0, false, {}, true); });
  };
  CHECK_THAT(refused(4), Contains("the heads of q, 6, are no multiple of those of k, 4, and v, 4"));
  CHECK_THAT(text_of([&] { ops::scaled_dot_product_attention(q, k, v); }),
             Contains("[scaled_dot_product_attention]"));
}

TEST_CASE("a diagonal is a view, of any strides") {
  const Tensor x = arange(12, float64).reshape({3, 4}).clone();
  x.t().diagonal(1).fill_(-1);
  CHECK(read(x) == Doubles{0, 1, 2, 3, -1, 5, 6, 7, 8, -1, 10, 11});
  CHECK(x.diagonal(-2).shape() == Shape{1});
  CHECK(x.diagonal(9).shape() == Shape{0});
  CHECK_THAT(text_of([&] { x.diagonal(0, 1, -1); }), Contains("dim1 and dim2 must differ"));
}

TEST_CASE("what is written along a dimension is checked before") {
  const Tensor x = zeros({2, 3}), index = tensor({{0, 2}});
  CHECK_THAT(text_of([&] { x.scatter(1, tensor({{3}}), 1); }),
             Contains("index 3 is out of range for size 3"));
  CHECK_THAT(text_of([&] { x.scatter(1, tensor({{-1}}), 1); }), Contains("out of range"));
  CHECK_THAT(text_of([&] {
               x.scatter(1, index, zeros({1, 1}));
             }),
             Contains("index [1, 2] is larger than src [1, 1]"));
  CHECK_THAT(text_of([&] { x.scatter_reduce(1, index, index.to(float32), "max"); }),
             Contains("\"amin\", got \"max\""));
  CHECK_THAT(text_of([&] {
               x.masked_scatter(tensor({{true, true, true}}), zeros({2}));
             }),
             Contains("the mask is true 6 times"));
  CHECK_THAT(text_of([&] { x.repeat_interleave(tensor({1, 2, 3}), 0); }), Contains("repeats must be [2]"));
  CHECK_THAT(text_of([&] { x.unflatten(1, {2, -1}); }), Contains("sizes [2, -1] do not fill dimension 1"));
  CHECK(read(x) == Doubles(6, 0));
  CHECK(read(of({1, 2}).scatter_reduce(0, tensor({0, 0}), of({std::nan(""), -kInf}), "amin"))[1] == 2);
  CHECK(std::isnan(read(of({1, 2}).scatter_reduce(0, tensor({0, 0}), of({std::nan(""), -kInf}), "amin"))[0]));
  CHECK(read(tensor({200}, uint8).scatter_reduce(0, tensor({0}), tensor({100}, uint8), "amax")) ==
        Doubles{200});
}

TEST_CASE("probabilities outside [0, 1] are no input of a loss of probabilities") {
  CHECK(ops::binary_cross_entropy(of({0, 1}), of({1, 0})).item() == 100);
  CHECK_THAT(text_of([] { ops::binary_cross_entropy(of({1.5}), of({1})); }),
             Contains("use binary_cross_entropy_with_logits() of scores"));
  CHECK_THAT(text_of([] { ops::binary_cross_entropy(of({std::nan("")}), of({1})); }), Contains("[0, 1]"));
  CHECK_THAT(text_of([] { ops::binary_cross_entropy(of({0.5}), of({1}), of({1}, float32)); }),
             Contains("weight must be float64"));
}

TEST_CASE("index_put_ adds where indices repeat, if told so") {
  Tensor x = zeros({3}, float64);
  x.index_put_({tensor({0, 0, 2})}, of({1, 2, 4}), true);
  CHECK(read(x) == Doubles{3, 0, 4});
  x.index_put_({Slice(0, 2)}, of({1}), true);
  CHECK(read(x) == Doubles{4, 1, 4});
}

}  // namespace
