// Options of operators beyond the oracle's (tests/script/pytorch_values_test.cpp): int32 places, writes in
// place that are recorded, and what is refused.
#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "autograd/gradcheck.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;
using testing::text_of;

namespace {

Tensor some(const Shape& shape, uint64_t seed = 1) { return ops::randn(shape, Generator(seed), float64); }

TEST_CASE("places may be int32, with the same results and gradients") {
  const Tensor at = tensor({{0, 3}, {1, 2}, {2, 0}}), line = tensor({2, 0, 2}), src = some({3, 2}, 2);
  const auto both = [](auto f, const Tensor& places) {
    const Tensor a = some({3, 4}).requires_grad_(), b = some({3, 4}).requires_grad_();
    const Tensor one = f(a, places), other = f(b, places.to(int32));
    autograd::backward(ops::sum(ops::square(one)));
    autograd::backward(ops::sum(ops::square(other)));
    CHECK(bit_equal(one.detach(), other.detach()));
    CHECK(bit_equal(a.grad(), b.grad()));
  };
  both([](const Tensor& x, const Tensor& i) { return ops::gather(x, 1, i); }, at);
  both([](const Tensor& x, const Tensor& i) { return ops::take_along_dim(x, i, 1); }, at);
  both([&](const Tensor& x, const Tensor& i) { return ops::scatter(x, 1, i, src); }, at);
  both([&](const Tensor& x, const Tensor& i) { return ops::scatter(x, 1, i, 2.0); }, at);
  both([&](const Tensor& x, const Tensor& i) { return ops::scatter_add(x, 1, i, src); }, at);
  both([&](const Tensor& x, const Tensor& i) { return ops::scatter_reduce(x, 1, i, src, "prod"); }, at);
  both([](const Tensor& x, const Tensor& i) { return ops::index_select(x, 0, i); }, line);
  both([](const Tensor& x, const Tensor& i) { return ops::index_add(x, 0, i, some({3, 4}, 3)); }, line);
  both([](const Tensor& x, const Tensor& i) { return ops::index_fill(x, 0, i, 1.0); }, line);
  CHECK_THAT(text_of([&] {
               ops::gather(some({3, 4}), 1, at.to(uint8));
             }),
             Contains("[gather] index must be"));
  CHECK_THAT(text_of([&] { ops::gather(some({3, 4}), 1, tensor({{9}}).to(int32)); }), Contains("[gather]"));
}

TEST_CASE("clamp_ by tensors, div_ with a rounding mode and round_ to decimals write what the others give") {
  const Tensor low = ops::sub(some({4}, 2), 0.5), high = ops::add(low, 1.0);
  const auto same = [](auto write, auto make, const Shape& shape) {
    const Tensor a = some(shape).requires_grad_(), b = some(shape).requires_grad_();
    const Tensor written = ops::mul(a, 1.0);
    write(written);
    const Tensor made = make(ops::mul(b, 1.0));
    CHECK(bit_equal(written.detach(), made.detach()));
    autograd::backward(ops::sum(ops::square(written)));
    autograd::backward(ops::sum(ops::square(made)));
    CHECK(bit_equal(a.grad(), b.grad()));
  };
  same([&](const Tensor& x) { ops::clamp_(x, low, high); },
       [&](const Tensor& x) { return ops::clamp(x, low, high); }, {3, 4});
  same([&](const Tensor& x) { ops::clamp_(x, Tensor(), high); },
       [&](const Tensor& x) { return ops::clamp(x, Tensor(), high); }, {3, 4});
  same([&](const Tensor& x) { ops::div_(x, high, "trunc"); },
       [&](const Tensor& x) { return ops::div(x, high, "trunc"); }, {3, 4});
  same([&](const Tensor& x) { ops::div_(x, 0.3, "floor"); },
       [&](const Tensor& x) { return ops::div(x, 0.3, "floor"); }, {3, 4});
  same([&](const Tensor& x) { ops::round_(x, 1); }, [&](const Tensor& x) { return ops::round(x, 1); },
       {3, 4});
  const Tensor whole = tensor({7, -7});
  ops::div_(whole, 2, "floor");
  CHECK(whole.to_vector<int64_t>() == std::vector<int64_t>{3, -4});
}

TEST_CASE("pools and paddings of every form have gradients and second ones") {
  const auto check = [](auto f, const Tensor& x) {
    CHECK(autograd::gradcheck([f](const Tensors& in) { return f(in[0]); }, {x}).ok);
    CHECK(autograd::gradgradcheck([f](const Tensors& in) { return f(in[0]); }, {x}).ok);
  };
  const Tensor x = some({1, 2, 5, 4}).requires_grad_();
  check([](const Tensor& in) { return ops::max_pool2d(in, 2, {}, 1, ops::MaxPoolForm{{2, 1}, true}); }, x);
  check([](const Tensor& in) { return ops::avg_pool2d(in, 3, 2, 1, ops::AvgPoolForm{true, false}); }, x);
  for (const char* mode : {"reflect", "replicate", "circular"})
    check([mode](const Tensor& in) { return ops::square(ops::pad(in, {1, 2, 2, 0}, mode)); }, x);
  check([](const Tensor& in) { return ops::conv2d_same(in, some({1, 2, 2, 3}, 2)); }, x);
}

TEST_CASE("forms that no window or padding has are refused by name") {
  const Tensor x = some({1, 1, 3, 3});
  const auto pool = [&](int64_t kernel, int64_t padding) {
    return text_of([&] { ops::max_pool2d(x, kernel, {}, padding, ops::MaxPoolForm{2, false}); });
  };
  CHECK_THAT(pool(3, 0), Contains("[max_pool2d] a window of 5 does not fit into size 3"));
  CHECK_THAT(pool(2, 2), Contains("padding 2 must be in [0, half of the window's 3]"));
  CHECK_THAT(text_of([&] {
               ops::avg_pool2d(x, 2, {}, 0, ops::AvgPoolForm{false, true, 0});
             }),
             Contains("divisor_override must not be 0"));
  CHECK_THAT(text_of([&] { ops::pad(x, {3, 0}, "reflect"); }), Contains("[pad] mode \"reflect\""));
  CHECK_THAT(text_of([&] {
               ops::pad(some({1, 1, 3}), {3, 0}, "reflect");
             }),
             Contains("cannot put 3 and 0 elements around 3"));
  CHECK_THAT(text_of([&] { ops::pad(x, {1, 1}, "mirror"); }), Contains("\"circular\", got \"mirror\""));
  CHECK_THAT(text_of([&] { ops::round(tensor({1, 2}), 1); }), Contains("[round] decimals are for floating"));
}

TEST_CASE("volumes, bags and products over zeros have gradients and second ones") {
  const auto check = [](auto f, const Tensors& in) {
    CHECK(autograd::gradcheck(f, in).ok);
    CHECK(autograd::gradgradcheck(f, in).ok);
  };
  check(
      [](const Tensors& in) {
        return ops::conv3d(in[0], in[1], in[2], {2, 1, 1}, {1, 0, 1}, {1, 2, 1}, 2);
      },
      {some({1, 2, 3, 4, 3}), some({2, 1, 2, 2, 2}, 2), some({2}, 3)});
  const Tensor ids = tensor({1, 3, 3, 0, 2, 1}), offsets = tensor({0, 2, 2, 5});
  for (const char* mode : {"sum", "mean", "max"})
    check(
        [&](const Tensors& in) {
          return ops::square(ops::embedding_bag(ids, in[0], offsets, mode, {}, false, 3));
        },
        {some({4, 2})});
  check([&](const Tensors& in) { return ops::embedding_bag(ids, in[0], offsets, "sum", in[1]); },
        {some({4, 2}), some({6}, 2)});
  const Tensor at = tensor({{0, 1, 0, 0}});
  for (const bool include_self : {true, false})  // two zeros in one product, and one in another
    check([&](const Tensors& in) { return ops::scatter_reduce(in[0], 1, at, in[1], "prod", include_self); },
          {tensor({{2.0, 0.0, 3.0}}), tensor({{0.0, 1.5, 0.0, 2.0}})});
}

TEST_CASE("volumes, sorters, sizes and slices that do not fit are refused by name") {
  const Tensor x = some({1, 2, 3, 4, 3}), w = some({2, 2, 2, 2, 2});
  CHECK_THAT(text_of([&] { ops::conv3d(x[0][0], w); }), Contains("[conv3d] input must be [N, C, D, H, W]"));
  CHECK_THAT(text_of([&] { ops::conv3d(x, w[0]); }),
             Contains("[conv3d] weight must be [O, C / groups, d, h, w]"));
  CHECK_THAT(text_of([&] {
               ops::conv3d(x, w, {}, {1, 1, 1}, {0, 0, 0}, {3, 1, 1});
             }),
             Contains("a window of depth 4 does not fit into depth 3"));
  CHECK_THAT(text_of([&] {
               ops::conv3d(x, some({2, 3, 1, 1, 1}));
             }),
             Contains("[conv3d] weight is for 3 channels, and input has 2"));
  const Tensor line = tensor({1.0, 2.0});
  CHECK_THAT(text_of([&] { ops::searchsorted(line, line, false, tensor({0})); }),
             Contains("sorter must be int64 [2]"));
  CHECK_THAT(text_of([&] { ops::searchsorted(line, line, false, tensor({0, 2})); }), Contains("2"));
  CHECK_THAT(text_of([] { ops::unique(zeros({2, 0}), 0); }), Contains("have no elements"));
  CHECK_THAT(text_of([] { ops::unique(tensor(1.0), 0); }), Contains("leave out dim"));
  CHECK(ops::unique(zeros({0, 2}), 0).values.shape() == Shape{0, 2});
  const Tensor image = some({1, 1, 4, 4});
  CHECK_THAT(text_of([&] { ops::interpolate(image, IntList(2), {}, "bilinear", {}, true); }),
             Contains("recompute_scale_factor is for scale_factor"));
  CHECK_THAT(text_of([&] { ops::interpolate(image, IntList(2), {}, "nearest", {}, false, true); }),
             Contains("antialias is for modes"));
}

}  // namespace
