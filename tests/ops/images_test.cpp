// Operators on images beyond the samples: sizes that fill oneDNN's blocks and several pieces, threads,
// special values, wrong calls.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <thread>

#include "autograd/engine.h"
#include "core/base/error.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;

namespace {

using Catch::Contains;
using ops::Attrs, ops::Pair;
using testing::difference, testing::text_of;
using Ints = std::vector<int64_t>;

Tensor random(const Shape& shape, DType dtype, uint64_t seed = 1) {
  Generator g(seed);
  return ops::randn(shape, g, dtype);
}

struct Case {
  Shape x, weight;
  Pair stride{1, 1}, padding{0, 0}, dilation{1, 1};
  int64_t groups = 1;
};

// y and the gradients of x, weight and bias for a gradient of ones times 0.1.
Tensors convolve(const Case& c, DType dtype) {
  Tensor x = random(c.x, dtype), w = random(c.weight, dtype, 2), b = random({c.weight[0]}, dtype, 3);
  for (Tensor* t : {&x, &w, &b}) t->requires_grad_();
  const Tensor y = ops::conv2d(x, w, b, c.stride, c.padding, c.dilation, c.groups);
  Tensors all = autograd::grad({y}, {x, w, b}, {random(y.shape(), dtype, 4)});
  all.push_back(y);
  return all;
}

const Case kCases[] = {{{64, 32, 14, 14}, {64, 32, 3, 3}, {1, 1}, {1, 1}},
                       {{33, 16, 28, 28}, {48, 16, 5, 5}, {1, 1}, {2, 2}},
                       {{5, 1, 28, 28}, {32, 1, 3, 3}, {1, 1}, {1, 1}},
                       {{3, 17, 13, 11}, {19, 17, 3, 2}, {2, 3}, {1, 0}},
                       {{2, 32, 9, 9}, {32, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 32},
                       {{2, 6, 12, 9}, {9, 2, 3, 3}, {2, 1}, {4, 2}, {3, 2}, 3},
                       {{4, 64, 7, 7}, {16, 64, 1, 1}},
                       {{2, 3, 8, 8}, {4, 3, 8, 8}}};

TEST_CASE("conv2d in float32 is near float64 at sizes that fill blocks") {
  for (const Case& c : kCases) {
    INFO(c.x.str() << " and " << c.weight.str());
    const Tensors single = convolve(c, float32), twice = convolve(c, float64);
    for (size_t i = 0; i < single.size(); ++i) {
      double largest = 0;  // float32 numbers were rounded before
      for (const double v : twice[i].to_vector<double>()) largest = std::max(largest, std::abs(v));
      CHECK(difference(single[i], twice[i], 1e-5, 3e-6 * largest) == "");
    }
  }
}

TEST_CASE("convolutions have the same bits again, on any thread and with any number of threads") {
  const int before = ops::num_threads();
  for (const Case& c : kCases) {
    INFO(c.x.str() << " and " << c.weight.str());
    ops::set_num_threads(1);
    const Tensors one = convolve(c, float32);
    Tensors two, other;
    ops::set_num_threads(2);
    two = convolve(c, float32);
    std::thread([&] { other = convolve(c, float32); }).join();
    for (size_t i = 0; i < one.size(); ++i) {
      CHECK(bit_equal(one[i], two[i]));
      CHECK(bit_equal(one[i], other[i]));
    }
  }
  ops::set_num_threads(before);
}

TEST_CASE("pools of 2 x 2 give what the general loop gives, with NaN, infinities and equal elements") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                   kInf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {float32, float64})
    for (const Shape& shape : {Shape{2, 3, 8, 36}, Shape{1, 2, 5, 7}, Shape{3, 1, 2, 2}}) {
      Tensor x = ops::mul(random(shape, float64), 2.0);
      int64_t special = 0;
      for (double *p = x.data<double>(), *end = p + x.numel(); p != end; ++p) {
        *p = std::round(*p);  // many are equal
        if (++special % 13 == 0) *p = special % 2 ? kNan : -kInf;
      }
      x = ops::to(x, dtype).requires_grad_();
      const Tensor y = ops::max_pool2d(x, {2, 2}),
                   picked = ops::apply1(ops::kMaxPool2dPick, {x, x}, {{"kernel_size", 2}});
      CHECK(bit_equal(y, picked.detach()));
      // Each gradient arrives once, at an element that is its window's result.
      const Tensor g = random(y.shape(), dtype, 2), gx = autograd::grad({y}, {x}, {g})[0];
      const auto xs = x.to_vector<double>(), ys = y.to_vector<double>(), gs = g.to_vector<double>(),
                 got = gx.to_vector<double>();
      const int64_t w = shape[3], oh = y.size(2), ow = y.size(3);
      double total = 0;
      for (const double v : got) total += v != 0;
      CHECK(total == static_cast<double>(g.numel()));
      for (int64_t p = 0; p < shape[0] * shape[1]; ++p)
        for (int64_t i = 0; i < oh * ow; ++i) {
          bool found = false;
          for (const int64_t at : {int64_t{0}, int64_t{1}, w, w + 1}) {
            const auto k = static_cast<size_t>(p * shape[2] * w + i / ow * 2 * w + i % ow * 2 + at);
            const double v = ys[static_cast<size_t>(p * oh * ow + i)];
            const bool same = xs[k] == v || (std::isnan(xs[k]) && std::isnan(v));
            if (same && got[k] == gs[static_cast<size_t>(p * oh * ow + i)]) {
              found = true;
              break;
            }
          }
          REQUIRE(found);
        }
    }
}

TEST_CASE("batch statistics stay exact far from zero and over many elements") {
  Tensor x = ops::add(random({64, 2, 64, 64}, float64), 1000.0);
  x = ops::to(x, float32);
  const auto r = ops::batch_norm_train(x, ones({2}), zeros({2}));
  const Tensor wide = ops::to(x, float64);
  CHECK(difference(r.mean, ops::to(ops::mean(wide, {0, 2, 3}), float32), 1e-7, 0) == "");
  CHECK(difference(r.var, ops::to(ops::var(wide, {0, 2, 3}, false), float32), 1e-6, 0) == "");
  const auto empty = ops::batch_norm_train(zeros({0, 2}), ones({2}), zeros({2}));
  CHECK(empty.var.to_vector<double>() == std::vector<double>{0, 0});
}

TEST_CASE("one integer stands for both sides of an image") {
  const Tensor x = random({1, 2, 9, 9}, float32), w = random({2, 2, 3, 3}, float32);
  const Tensor y = ops::apply1(ops::kConv2d, {x, w}, {{"stride", 2}, {"padding", 1}});
  CHECK(bit_equal(y, ops::conv2d(x, w, {}, {2, 2}, {1, 1})));
  CHECK(y.shape() == Shape{1, 2, 5, 5});
  CHECK(ops::apply1(ops::kMaxPool2d, {x}, {{"kernel_size", 3}}).shape() == Shape{1, 2, 3, 3});
  CHECK(ops::avg_pool2d(x, {3, 2}, Pair{2, 1}).shape() == Shape{1, 2, 4, 8});
}

TEST_CASE("operators on images say what is wrong with a call") {
  const Tensor x = zeros({2, 4, 5, 5}), w = zeros({6, 4, 3, 3});
  const auto conv = [&](const Tensor& image, const Tensor& weight, Attrs attrs) {
    return text_of([&] { ops::apply1(ops::kConv2d, {image, weight}, attrs); });
  };
  CHECK_THAT(conv(x, zeros({6, 4, 7, 3}), {}),
             Contains("[conv2d] the kernel covers 7 rows, but [2, 4, 5, 5] has only 5 with its padding"));
  CHECK_THAT(conv(x, w, {{"dilation", Ints{1, 3}}}), Contains("covers 7 columns"));
  CHECK_THAT(conv(x, w, {{"groups", 3}}), Contains("groups 3 do not divide the channels"));
  CHECK_THAT(conv(x, w, {{"groups", 0}}), Contains("groups must be at least 1, got 0"));
  CHECK_THAT(conv(x, w, {{"groups", 2}}), Contains("weight [6, 4, 3, 3] is for 8 input channels"));
  CHECK_THAT(conv(x, w, {{"stride", 0}}), Contains("stride must be at least 1"));
  CHECK_THAT(conv(x, w, {{"padding", -1}}), Contains("padding must be at least 0"));
  CHECK_THAT(conv(x, w, {{"dilation", 0}}), Contains("dilation must be at least 1"));
  CHECK_THAT(conv(x, w, {{"dilation", int64_t{1} << 40}}), Contains("below 2^31"));
  CHECK_THAT(conv(x, w, {{"stride", Ints{1, 1, 1}}}),
             Contains("stride must be one integer or two, got [1, 1, 1]"));
  CHECK_THAT(conv(x, w, {{"padding", Ints{}}}), Contains("padding must be one integer or two"));
  CHECK_THAT(conv(x, zeros({6, 4, 0, 3}), {}), Contains("the kernel has no elements"));
  CHECK_THAT(conv(x, zeros({6, 4, 3}), {}), Contains("weight must be [O, C / groups, kh, kw]"));
  CHECK_THAT(conv(zeros({4, 5, 5}), w, {}), Contains("input must be [N, C, H, W], got [4, 5, 5]"));
  CHECK_THAT(conv(x, zeros({6, 4, 3, 3}, float64), {}), Contains("inputs differ in dtype"));
  CHECK_THAT(conv(zeros({2, 4, 5, 5}, int64), w, {}), Contains("needs a floating dtype"));
  CHECK_THAT(text_of([&] { ops::conv2d(x, w, zeros({4})); }), Contains("bias must be [6], got [4]"));
  CHECK_THAT(text_of([&] {
               ops::apply1(ops::kConv2dInputGrad, {x, w}, {{"input", Ints{5, 5}}});
             }),
             Contains("[conv2d_input_grad] gradient must be [2, 6, 3, 3], got [2, 4, 5, 5]"));
  CHECK_THAT(text_of([&] { ops::max_pool2d(x, {6, 2}); }), Contains("[max_pool2d] the kernel covers 6 rows"));
  CHECK_THAT(text_of([&] {
               ops::max_pool2d(x, {2, 2}, {}, {2, 2});
             }),
             Contains("padding 2 is more than half of kernel_size 2"));
  CHECK_THAT(text_of([&] { ops::max_pool2d(x, {0, 2}); }), Contains("kernel_size must be at least 1"));
  CHECK_THAT(text_of([&] { ops::avg_pool2d(x, {2, 2}, Pair{0, 1}); }), Contains("stride must be at least 1"));
  CHECK_THAT(text_of([&] {
               ops::avg_pool2d(zeros({1, 1, 0, 4}), {2, 2}, {}, {1, 1});
             }),
             Contains("the images have no elements"));
  CHECK_THAT(text_of([&] { ops::apply1(ops::kMaxPool2d, {x}); }),
             Contains("kernel_size must be one integer or two"));
  const Tensor four = zeros({4}), five = zeros({5});
  CHECK_THAT(text_of([&] { ops::batch_norm_train(x, five, four); }),
             Contains("[batch_norm_train] weight must be [4] for input [2, 4, 5, 5], got [5]"));
  CHECK_THAT(text_of([&] { ops::batch_norm_train(four, four, four); }),
             Contains("needs [N, C, ...], got [4]"));
  CHECK_THAT(text_of([&] { ops::batch_norm_train(x, four, four, 0); }),
             Contains("[batch_norm_train] eps must be above 0, got 0"));
  CHECK_THAT(text_of([&] { ops::batch_norm_eval(x, four, four, four, four, -1); }),
             Contains("eps must be at least 0, got -1"));
  CHECK_THAT(text_of([&] { ops::batch_norm_eval(x, four, four, five, four); }), Contains("mean must be [4]"));
  CHECK_THAT(text_of([&] { ops::group_norm(x, 3, four, four); }),
             Contains("groups must divide the 4 channels"));
  CHECK_THAT(text_of([&] { ops::group_norm(x, 0, four, four); }), Contains("got 0"));
}

}  // namespace
