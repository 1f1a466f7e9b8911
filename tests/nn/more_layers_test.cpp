// Running statistics of InstanceNorm, padding that is no zeros, and options of pools and others.
#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;
using Catch::Contains;
using testing::text_of;

namespace {

Tensor some(const Shape& shape, uint64_t seed = 1) { return ops::randn(shape, Generator(seed), float64); }
void near(const Tensor& a, const Tensor& b) {
  CHECK(testing::difference(a.detach(), b.detach(), 1e-12, 1e-12) == "");
}

const nn::InstanceNormOptions kTracked{
    .momentum = 0.25, .affine = true, .track_running_stats = true, .dtype = float64};

TEST_CASE("running statistics of InstanceNorm move to the means over samples, and are used in use") {
  nn::InstanceNorm2d norm(3, kTracked);
  const Tensor x = some({4, 3, 5, 2});
  const auto [var, mean] = ops::var_mean(x, {2, 3});
  const Tensor y = norm(x);
  near(y, ops::instance_norm(x, norm.weight, norm.bias));
  near(norm.running_mean, ops::mul(ops::mean(mean, {0}), 0.25));
  near(norm.running_var, ops::add(ops::mul(ops::mean(var, {0}), 0.25), 0.75));
  CHECK(norm.num_batches_tracked.item() == 0);  // as PyTorch's
  norm.eval();
  const Tensor before = norm.running_mean.clone();
  near(norm(x), ops::batch_norm_eval(x, norm.weight, norm.bias, norm.running_mean, norm.running_var));
  near(norm(x[0]), norm(x)[0]);
  CHECK(bit_equal(norm.running_mean, before));
  Generator g(1);
  norm.reset(g);
  CHECK(bit_equal(norm.running_mean, zeros({3}, float64)));
}

TEST_CASE("a batch in parts moves the running statistics of InstanceNorm as a whole one") {
  nn::InstanceNorm1d whole(2, kTracked), parts(2, kTracked);
  const Tensor x = some({6, 2, 4});
  whole(x);
  parts.set_statistics(nn::Statistics::gather);
  parts(ops::slice(x, 0, 0, 2)), parts(ops::slice(x, 0, 2, 6));
  parts.set_statistics(nn::Statistics::leave);
  parts(x);
  CHECK(bit_equal(parts.running_mean, zeros({2}, float64)));
  parts.settle();
  near(parts.running_mean, whole.running_mean);
  near(parts.running_var, whole.running_var);
  parts.set_statistics(nn::Statistics::gather);
  parts(x);
  parts.settle(false);
  near(parts.running_mean, whole.running_mean);
}

TEST_CASE("InstanceNorm refuses other shapes, and a channel of one element") {
  nn::InstanceNorm1d norm(2);
  CHECK_THAT(text_of([&] { norm(zeros({1, 3, 4})); }), Contains("of 2 channels"));
  CHECK_THAT(text_of([&] { norm(zeros({1, 2, 4, 4})); }), Contains("expected 2 dimensions, or one more"));
  CHECK_THAT(text_of([&] { norm(zeros({1, 2, 1})); }), Contains("more than one element"));
  CHECK_THAT(text_of([] { nn::InstanceNorm2d(2, {.momentum = 1.5}); }),
             Contains("momentum must be in [0, 1]"));
  const Tensor x = zeros({1, 2, 4});
  CHECK_THAT(text_of([&] { ops::instance_norm(x, {}, {}, {}, {}, false, 0.1, 1e-5); }),
             Contains("needs running_mean and running_var"));
  CHECK_THAT(text_of([&] { ops::instance_norm(x, zeros({3}), {}, {}, {}, true, 0.1, 1e-5); }),
             Contains("running_mean must be floating [2]"));
}

TEST_CASE("convolutions pad by reflection, and as the other modes say") {
  for (const char* mode : {"reflect", "replicate", "circular"}) {
    INFO(mode);
    nn::Conv2d image(2, 3, {3, 2}, {.padding = {2, 1}, .padding_mode = mode, .dtype = float64});
    const Tensor x = some({1, 2, 5, 4});
    near(image(x), ops::conv2d(ops::pad(x, {1, 1, 2, 2}, mode), image.weight, image.bias));
    nn::Conv1d line(2, 3, 3, {.padding = 2, .padding_mode = mode, .dtype = float64});
    const Tensor lines = some({1, 2, 9}, 2);
    near(line(lines), ops::conv1d(ops::pad(lines, {2, 2}, mode), line.weight, line.bias));
    nn::Conv3d volume(2, 3, {2, 3, 2}, {.padding = {1, 0, 1}, .padding_mode = mode, .dtype = float64});
    const Tensor deep = some({1, 2, 3, 4, 3});
    near(volume(deep), ops::conv3d(ops::pad(deep, {1, 1, 0, 0, 1, 1}, mode), volume.weight, volume.bias));
  }
  CHECK_THAT(text_of([] { nn::Conv2d(1, 1, 1, {.padding_mode = "mirror"}); }),
             Contains("[conv2d] padding_mode must be \"zeros\""));
}

TEST_CASE("options of pools, Flatten, GELU and norms are those of the functions") {
  const Tensor x = some({2, 4, 7, 6});
  near(nn::MaxPool2d(3, 2, 1, {.dilation = 2, .ceil_mode = true})(x),
       ops::max_pool2d(x, 3, ops::Pair(2), 1, {.dilation = 2, .ceil_mode = true}));
  near(nn::AvgPool2d(3, 2, 1, {.count_include_pad = false})(x),
       ops::avg_pool2d(x, 3, ops::Pair(2), 1, {.count_include_pad = false}));
  CHECK(nn::Flatten(-2)(x).shape() == Shape{2, 4, 42});
  CHECK(nn::Flatten(0, 1)(x).shape() == Shape{8, 7, 6});
  CHECK_THAT(text_of([&] { nn::Flatten(1, 4)(x); }), Contains("with dimensions 1 to 4"));
  near(nn::GELU("tanh")(x), ops::gelu(x, "tanh"));
  nn::Sequential net(nn::Linear(6, 2, true, float64), nn::GELU("tanh"));
  near(net(x), ops::gelu(net[0](x), "tanh"));
  CHECK_THAT(text_of([] { nn::GELU("exact"); }), Contains("must be \"none\" or \"tanh\", got \"exact\""));
  CHECK(nn::GroupNorm(2, 4, {.bias = false, .dtype = float64}).named_parameters().size() == 1);
  CHECK(nn::BatchNorm2d(4, {.bias = false, .dtype = float64})(x).shape() == x.shape());
}

}  // namespace
