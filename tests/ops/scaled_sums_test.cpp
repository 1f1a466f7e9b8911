// addcmul, addcdiv, lerp, and add and sub with alpha: dtypes as in PyTorch, and what is refused.
#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;
using testing::invalid_text;

namespace {

const Tensor kInts = tensor({3, 7}), kFloats = tensor({1.5, 2.5}), kFlags = tensor({true, false});

TEST_CASE("sums with a factor have the dtype in which all operands meet") {
  CHECK(bit_equal(ops::addcmul(kInts, kInts, kInts, 2), tensor({21, 105})));
  CHECK(bit_equal(ops::addcmul(kInts, kFloats, kFloats), tensor({5.25, 13.25})));
  CHECK(bit_equal(ops::addcmul(kInts.to(uint8), kFlags, kFlags), tensor({4, 7}, uint8)));
  CHECK(bit_equal(ops::addcdiv(kInts, kFloats, kFloats), tensor({4., 8.})));
  CHECK(ops::addcmul(tensor(2.5, float64), kFloats.to(bfloat16), kFloats.to(bfloat16)).dtype() == bfloat16);
  CHECK(bit_equal(ops::add(kFlags, kFlags, 2), kFlags));
  CHECK(bit_equal(ops::add(kInts, kFlags, 2), tensor({5, 7})));
  CHECK(invalid_text([] { ops::addcmul(kFlags, kFlags, kFlags); }).find("[addcmul] is not for bool") == 0);
  CHECK_THAT(invalid_text([] { ops::addcmul(kInts, kInts, kInts, 0.5); }),
             Contains("value must be an integer for integers, got 0.5"));
  CHECK_THAT(invalid_text([] { ops::addcdiv(kFloats, kInts, kFlags); }),
             Contains("[addcdiv] divides no integers, got int64 [2] and bool [2]; use .to(float32)"));
  CHECK_THAT(invalid_text([] { ops::add(kInts.to(uint8), kInts.to(uint8), 300); }),
             Contains("[add] 300 is beyond what uint8 holds"));
  CHECK_THAT(invalid_text([] { ops::sub(kInts, kInts, 0.5); }),
             Contains("[sub] alpha must be an integer for int64 [2] and int64 [2], got 0.5"));
}

TEST_CASE("lerp reaches its end exactly, in place too") {
  const Tensor far = tensor({1e8}), end = tensor({1.}), w = tensor({1.});
  CHECK(ops::lerp(far, end, 1).item() == 1);
  CHECK(ops::lerp(far, end, w).item() == 1);
  CHECK(ops::lerp(end, far, 0).item() == 1);
  const Tensor in_place = far.clone();
  CHECK(in_place.lerp_(end, 1).item() == 1);
  for (const double weight : {-0.7, -0.2, 0.1, 0.5, 0.9, 1.3}) {
    const Tensor x = kFloats.clone();
    ops::lerp_(x, kInts.to(float32), weight);
    CHECK(bit_equal(x, ops::lerp(kFloats, kInts.to(float32), weight)));
    CHECK(ops::lerp(kFloats, kInts.to(float32), tensor(weight, float64)).dtype() == float32);
  }
}

TEST_CASE("lerp is of one floating dtype") {
  CHECK_THAT(invalid_text([] { ops::lerp(kInts, kInts, 0.5); }),
             Contains("[lerp] needs a floating dtype, got int64 [2]; use .to()"));
  CHECK_THAT(invalid_text([] { ops::lerp(kFloats, kFloats.to(float64), 0.5); }),
             Contains("[lerp] end must be float32 as the input is, got float64 [2]"));
  CHECK_THAT(invalid_text([] { ops::lerp(kFloats, kFloats, kInts); }),
             Contains("[lerp] weight must be float32 as the input is, got int64 [2]"));
  CHECK_THAT(invalid_text([] { kFloats.clone().lerp_(kFloats.to(float64), 0.5); }), Contains("[lerp] end"));
}

TEST_CASE("the 0-norm counts, with a gradient of zeros") {
  const Tensor x = tensor({{0., 3., NAN}, {0., 0., -2.}}, float64).requires_grad_();
  const Tensor all = ops::norm(x, 0), rows = ops::norm(x, 0, 1, true);
  CHECK(all.item() == 3);
  CHECK(rows.to_vector<double>() == std::vector<double>{2, 1});
  autograd::backward(all);
  CHECK(bit_equal(x.grad(), zeros({2, 3}, float64)));
  CHECK(bit_equal(autograd::grad({rows.sum()}, {x})[0], zeros({2, 3}, float64)));
}

TEST_CASE("einsum of integers sums one operand in int64, as in PyTorch") {
  const Tensor a = ones({2, 2}, int32), b = ones({2, 3}, int32);
  CHECK(bit_equal(ops::einsum("ij,kl->il", {a, b}), full({2, 3}, 4, int64)));
  CHECK(bit_equal(ops::einsum("ij,jk->ik", {a, b}), full({2, 3}, 2, int32)));
  CHECK(bit_equal(ops::einsum("ij,jk->k", {a, b}), full({3}, 4, int64)));
  CHECK(bit_equal(ops::einsum("ij,i->i", {ones({2, 3}, boolean), ones({2}, boolean)}), full({2}, 3, int64)));
}

TEST_CASE("masked_fill takes a 0-d tensor, which gets what flows to the mask") {
  const Tensor x = tensor({1., 2., 3.}, float64).requires_grad_(),
               value = tensor(9., float32).requires_grad_();
  const Tensor mask = tensor({true, false, true});
  const Tensor y = x.masked_fill(mask, value);
  CHECK(bit_equal(y.detach(), tensor({9., 2., 9.}, float64)));
  const Tensors g = autograd::grad({y}, {x, value}, {tensor({1., 10., 100.}, float64)});
  CHECK(bit_equal(g[0], tensor({0., 10., 0.}, float64)));
  CHECK(bit_equal(g[1], tensor(101., float32)));
  CHECK(bit_equal(kInts.masked_fill(kFlags, tensor(7.5)), tensor({7, 7})));
  CHECK_THAT(invalid_text([] { kInts.to(uint8).masked_fill(kFlags, tensor(300)); }),
             Contains("[masked_fill] 300 is beyond what uint8 holds"));
  CHECK_THAT(invalid_text([] { kFloats.masked_fill(kFlags, tensor({7.})); }),
             Contains("the value must be a number or a 0-d tensor, got float32 [1]"));
}

TEST_CASE("a bool tensor is added to at places: true once there is one") {
  const Tensor x = tensor({true, false, false}), index = tensor({0, 1, 1}), yes = tensor({true, true, true});
  CHECK(bit_equal(ops::scatter_add(x, 0, index, yes), tensor({true, true, false})));
  CHECK(bit_equal(ops::index_add(x, 0, index, yes, 2), tensor({true, true, false})));
  CHECK(bit_equal(ops::index_add(x, 0, index, ops::logical_not(yes)), x));
  CHECK(bit_equal(ops::index_add(tensor({false, false}), 0, tensor({1}), tensor({true}), false),
                  tensor({false, false})));
}

}  // namespace
