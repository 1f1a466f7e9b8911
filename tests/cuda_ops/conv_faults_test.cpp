// The tests of convolutions find what could be wrong with their products: each rule is left out once
// (conv_without.py).
#ifdef TROUPE_CUDA_SIM
#include <catch2/catch.hpp>
#include <cstdlib>
#include <limits>

#include "core/base/error.h"
#include "ops/conv.h"
#include "ops/ops.h"
#include "tests/cuda/gpus.h"
#include "tests/cuda_ops/conv_with_switches.h"
#include "tests/support/sim_cuda/matrix_unit.h"
#include "tests/support/sim_cuda/sim.h"

using namespace troupe;

namespace {

using testing::gpu0;
using Ints = std::vector<int64_t>;

struct Problem {
  Tensor x, w, bias, g;
  ops::Attrs attrs;
  Tensors wanted;

  Problem(Shape image, const Shape& weight, int64_t stride, int64_t padding, int64_t dilation, int64_t groups)
      : attrs{{"stride", Ints{stride, stride}},
              {"padding", Ints{padding, padding}},
              {"dilation", Ints{dilation, dilation}},
              {"groups", groups}} {
    Generator random(1);
    const auto drawn = [&](const Shape& shape) {
      return ops::to(ops::randn(shape, random, float32), bfloat16);
    };
    // What is read behind the last image would be seen.
    const auto first_of = [&](Shape shape) {
      const int64_t n = shape[0]++;
      return ops::slice(drawn(shape).data_on(gpu0), 0, 0, n).detach();
    };
    w = drawn(weight).data_on(gpu0), bias = drawn({weight[0]}).data_on(gpu0);
    // The last group has an infinite element, which no other group has to do with.
    const float infinite = std::numeric_limits<float>::infinity();
    x = first_of(image);
    if (groups > 1) {
      const Tensor far = zeros(image, {bfloat16, gpu0});
      Tensor one = far;
      for (const int64_t at : {int64_t{0}, image[1] - image[1] / groups, int64_t{1}, int64_t{3}})
        one = ops::select(one, 0, at);
      one.fill_(infinite);
      x = ops::add(x, far);
    }
    const Tensor in[] = {x, w, bias};
    const Tensor y = ops::apply1(ops::kConv2d, {x, w, bias}, attrs);
    g = first_of(y.shape());
    const ops::Call c{ops::kConv2d, in, attrs};
    wanted = testing::conv_passes(c, g);
    CHECK(bit_equal(wanted[0].data_on(cpu), y.data_on(cpu)));
  }
};

// "" if the kernels give what they give with all their rules.
std::string found(const Problem& p) {
  sim_cuda::reset_matrix_counts();
  const Tensor in[] = {p.x, p.w, p.bias};
  try {
    const Tensors got = testing::conv_passes({ops::kConv2d, in, p.attrs}, p.g);
    for (size_t i = 0; i < got.size(); ++i)
      if (!bit_equal(got[i].data_on(cpu), p.wanted[i].data_on(cpu))) return "other bits";
  } catch (const Error& e) {
    sim_cuda::take_fault();
    return e.message();
  }
  return sim_cuda::matrix_counts().conflicts ? "conflicts" : "";
}

TEST_CASE("convolution on the matrix unit: each rule that is left out is found") {
  if (!testing::needs_gpus(1) || std::getenv("TROUPE_SIM_SEED")) return;  // it has seeds of its own
  const Problem all[] = {{{2, 12, 9, 8}, {6, 6, 3, 3}, 2, 1, 1, 2},
                         {{2, 20, 7, 6}, {5, 20, 3, 3}, 1, 1, 1, 1}};
  const auto tried = [&](uint64_t seeds) {
    for (uint64_t seed = 0; seed < seeds; ++seed)
      for (const Problem& p : all) {
        sim_cuda::schedule_by_seed(seed);
        if (const std::string what = found(p); !what.empty()) return what;
      }
    return std::string();
  };
  CHECK(tried(3) == "");
  for (size_t rule = 0; rule < testing::kConvRules.size(); ++rule) {
    INFO(testing::kConvRules[rule]);
    testing::leave_out_of_conv(rule);
    sim_cuda::take_fault();  // of the rule before
    CHECK(tried(40) != "");
  }
  testing::leave_out_of_conv(SIZE_MAX);
  CHECK(tried(1) == "");
  sim_cuda::schedule_eagerly();
}

}  // namespace
#endif
