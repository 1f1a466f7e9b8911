// What reference values do not show of windows, sizes, order and sequences: special values, refusals,
// gradients.
#include <catch2/catch.hpp>
#include <cmath>

#include "autograd/autograd.h"
#include "autograd/gradcheck.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;
using Catch::Contains;
using testing::text_of;

namespace {

using Doubles = std::vector<double>;

Doubles read(const Tensor& t) { return t.to_vector<double>(); }
Tensor line(std::initializer_list<double> values) { return tensor(Doubles(values), float64); }

TEST_CASE("fold adds up what unfold cut, as often as each element occurs") {
  const Tensor x = ops::randn({2, 3, 5, 6}, Generator(1), float64), one = ones({2, 3, 5, 6}, float64);
  const auto there_and_back = [](const Tensor& t) {
    return ops::fold(ops::unfold(t, {2, 3}, {2, 1}, {1, 0}, {1, 2}), {5, 6}, {2, 3}, {2, 1}, {1, 0}, {1, 2});
  };
  CHECK(testing::difference(there_and_back(x), x * there_and_back(one), 1e-12, 1e-12) == "");
}

TEST_CASE("a transposed convolution is the gradient of the convolution") {
  Tensor x = ops::randn({2, 4, 7, 6}, Generator(1), float64).requires_grad_();
  const Tensor w = ops::randn({6, 2, 3, 2}, Generator(2), float64);
  const Tensor y = ops::conv2d(x, w, {}, {2, 1}, {1, 0}, {1, 2}, 2);
  const Tensor g = ops::randn(y.shape(), Generator(3), float64);
  const Tensor back = ops::conv_transpose2d(g, w, {}, {2, 1}, {1, 0}, {0, 0}, 2, {1, 2});
  CHECK(testing::difference(back, autograd::grad({y}, {x}, {g})[0], 1e-12, 1e-12) == "");
}

TEST_CASE("sizes that do not fit are refused before anything is computed") {
  const Tensor x = zeros({1, 2, 4, 4});
  CHECK_THAT(text_of([&] {
               ops::conv1d(x, zeros({1, 2, 3}));
             }),
             Contains("[conv1d] input must be [N, C, L]"));
  CHECK_THAT(text_of([&] {
               ops::conv_transpose2d(x, zeros({2, 1, 2, 2}), {}, {1, 1}, {0, 0}, {1, 1});
             }),
             Contains("output_padding 1 must be below stride 1 or dilation 1"));
  CHECK_THAT(text_of([&] { ops::unfold(x, {5, 1}); }), Contains("does not fit into size 4"));
  CHECK_THAT(text_of([&] { ops::fold(zeros({1, 4, 8}), {4, 4}, {2, 2}); }), Contains("a multiple of 4, 9"));
  CHECK_THAT(text_of([&] { ops::pixel_shuffle(x, 2); }), Contains("a factor of at least 1"));
  CHECK_THAT(text_of([&] { ops::interpolate(x, IntList(2), {2.0}); }), Contains("and not both"));
  CHECK_THAT(text_of([&] { ops::interpolate(x, IntList(2), {}, "linear"); }), Contains("needs 3 dimensions"));
  CHECK_THAT(text_of([&] { ops::interpolate(x, IntList(2), {}, "nearest", true); }),
             Contains("align_corners"));
  CHECK_THAT(text_of([&] { ops::instance_norm(zeros({1, 2, 1})); }), Contains("more than one element"));
}

TEST_CASE("running extrema are NaN from the first one on") {
  const auto [values, places] = ops::cummax(line({1, std::nan(""), 5}), 0);
  CHECK((read(values)[0] == 1 && std::isnan(read(values)[1]) && std::isnan(read(values)[2])));
  CHECK(read(places) == Doubles{0, 1, 1});
  CHECK(read(ops::cummin(tensor({3, 1, 2}, uint8), 0).values) == Doubles{3, 1, 1});
  CHECK(ops::cummax(tensor({true, false}), 0).values.dtype() == boolean);
}

TEST_CASE("quantiles, places and distinct elements of special values") {
  CHECK(std::isnan(ops::quantile(line({1, std::nan("")}), 0.5).item()));
  CHECK_THAT(text_of([] { ops::quantile(line({1}), 1.5); }), Contains("q must be in [0, 1], got 1.5"));
  CHECK_THAT(text_of([] { ops::kthvalue(line({1}), 2); }), Contains("k is 2, expected 1 to 1"));
  CHECK(read(ops::searchsorted(line({1, 2}), line({std::nan(""), -HUGE_VAL}))) == Doubles{2, 0});
  CHECK_THAT(text_of([] {
               ops::searchsorted(zeros({2, 3}), zeros({3, 1}));
             }),
             Contains("do not fit the lines"));
  const auto [values, inverse, counts] = ops::unique(tensor({{true, false}, {true, true}}));
  CHECK((read(values) == Doubles{0, 1} && read(inverse) == Doubles{1, 0, 1, 1} &&
         read(counts) == Doubles{1, 3}));
  CHECK(ops::unique(zeros({0})).values.numel() == 0);
}

TEST_CASE("ctc_loss has a gradient, of sequences with repetitions and of several lengths") {
  const Tensor targets = tensor({{1, 1}, {2, 0}}), lengths = tensor({2, 1});
  const Tensor scores = ops::randn({4, 2, 3}, Generator(1), float64);
  const auto loss = [&](const Tensors& in) {
    return ops::ctc_loss(ops::log_softmax(in[0], 2), targets, tensor({4, 3}), lengths, 0, "sum");
  };
  CHECK(autograd::gradcheck(loss, {scores}).ok);
  const Tensor p = zeros({2, 1, 2}, float64);
  const auto of = [&](bool zero) {
    return ops::ctc_loss(p, tensor({{1, 1}}), tensor({2}), tensor({2}), 0, "sum", zero);
  };
  CHECK(of(false).item() == HUGE_VAL);  // a blank has to be between equal ones
  CHECK(of(true).item() == 0);
  CHECK_THAT(text_of([&] { ops::ctc_loss(p, tensor({{2}}), tensor({2}), tensor({1})); }),
             Contains("targets must be classes in [0, 2) but the blank 0, got 2"));
  CHECK_THAT(text_of([&] { ops::ctc_loss(p, tensor({{1}}), tensor({3}), tensor({1})); }),
             Contains("at most 2, got 3"));
}

}  // namespace
