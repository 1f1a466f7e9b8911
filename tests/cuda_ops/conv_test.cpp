// Convolutions that are more columns than fit at once, and those that need none.
#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "core/cuda/install.h"
#include "ops/ops.h"
#include "tests/cuda/gpus.h"
#include "tests/support/near.h"

using namespace troupe;

namespace {

using testing::gpu0;

struct How {
  ops::Pair stride{1, 1}, padding{0, 0}, dilation{1, 1};
  int64_t groups = 1;
};

// The result and the gradients of x, weight and bias.
Tensors passes(const Shape& image, const Shape& weight, const How& how, Device device, DType dtype = float64,
               DType computed = float64) {
  Generator g(1);
  const auto leaf = [&](const Shape& shape) {
    return ops::to(ops::to(ops::randn(shape, g, float64), dtype), computed).data_on(device).requires_grad_();
  };
  Tensor x = leaf(image), w = leaf(weight), bias = leaf({weight[0]});
  const Tensor y = ops::conv2d(x, w, bias, how.stride, how.padding, how.dilation, how.groups);
  const Tensor slope = ops::to(ops::to(ops::randn(y.shape(), g, float64), dtype), computed).data_on(device);
  Tensors all = autograd::grad({y}, {x, w, bias}, {slope});
  all.push_back(y.detach());
  return all;
}

void compare(const Shape& image, const Shape& weight, const How& how = {}) {
  const Tensors got = passes(image, weight, how, gpu0), wanted = passes(image, weight, how, cpu);
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("tensor " << i);
    CHECK(testing::difference(got[i].data_on(cpu), wanted[i], 1e-10, 1e-9) == "");
  }
}

TEST_CASE("a convolution whose columns do not fit at once goes through its images in parts") {
  if (testing::needs_gpus(1)) compare({5, 32, 90, 90}, {2, 32, 3, 3}, {.padding = {1, 1}});
}

TEST_CASE("a convolution with a window of one element is a product of the image itself") {
  if (testing::needs_gpus(1)) compare({3, 4, 5, 6}, {7, 4, 1, 1});
}

TEST_CASE("groups, steps, padding and dilation") {
  if (!testing::needs_gpus(1)) return;
  compare({2, 6, 9, 8}, {4, 3, 3, 2}, {.padding = {1, 2}, .groups = 2});
  compare({2, 4, 9, 8}, {3, 4, 3, 2}, {.stride = {2, 3}, .padding = {1, 0}, .dilation = {2, 1}});
}

TEST_CASE("convolutions of halves are summed in float32 and rounded once, and so are their gradients") {
  if (!testing::needs_gpus(1)) return;
  for (const auto& [image, weight, how] :
       {std::tuple(Shape{2, 4, 9, 8}, Shape{3, 4, 3, 2},
                   How{.stride = {2, 3}, .padding = {1, 0}, .dilation = {2, 1}}),
        {Shape{3, 4, 5, 6}, Shape{7, 4, 1, 1}, How{}},
        {Shape{2, 6, 9, 8}, Shape{4, 3, 3, 2}, How{.padding = {1, 2}, .groups = 2}},
        {Shape{2, 8, 20, 20}, Shape{5, 8, 3, 3}, How{.padding = {1, 1}}}})
    for (const DType t : {bfloat16, float16}) {
      INFO(name(t) << ", " << image.str());
      const Tensors got = passes(image, weight, how, gpu0, t, t), wanted = passes(image, weight, how, cpu, t);
      const double rounding = t == bfloat16 ? 0x1p-8 : 0x1p-11;
      for (size_t i = 0; i < got.size(); ++i) {
        INFO("tensor " << i);
        CHECK(got[i].dtype() == t);
        CHECK(testing::difference(ops::to(got[i].data_on(cpu), float64), wanted[i], 1.02 * rounding + 2e-5,
                                  2e-4) == "");
      }
    }
}

}  // namespace
