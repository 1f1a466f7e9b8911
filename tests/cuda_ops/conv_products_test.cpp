// Convolutions on the matrix unit beside float64 on the CPU, and what they ask of it.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tests/cuda/gpus.h"
#ifdef TROUPE_CUDA_SIM
#include "tests/support/sim_cuda/matrix_unit.h"
#include "tests/support/sim_cuda/sim.h"
#endif

using namespace troupe;

namespace {

using testing::gpu0, testing::needs_gpus;

struct Problem {
  Shape image, weight;
  ops::Pair stride{1, 1}, padding{0, 0}, dilation{1, 1};
  int64_t groups = 1;

  std::string str() const {
    const auto pair = [](const ops::Pair& p) { return std::to_string(p[0]) + " " + std::to_string(p[1]); };
    return image.str() + " by " + weight.str() + ", stride " + pair(stride) + ", padding " + pair(padding) +
           ", dilation " + pair(dilation) + ", groups " + std::to_string(groups);
  }
};

struct Inputs {
  Tensor x, w, bias, slope;
  Inputs(const Problem& p, DType t, uint64_t seed) {
    Generator random(seed);
    const auto drawn = [&](const Shape& shape) { return ops::to(ops::randn(shape, random, float32), t); };
    x = drawn(p.image), w = drawn(p.weight), bias = drawn({p.weight[0]});
    slope = drawn(ops::conv2d(x, w, bias, p.stride, p.padding, p.dilation, p.groups).shape());
  }
};

// The result and the gradients of x, weight and bias.
Tensors passes(const Problem& p, const Inputs& in, DType t, Device device) {
  const auto leaf = [&](const Tensor& a) { return ops::to(a, t).data_on(device).requires_grad_(); };
  Tensor x = leaf(in.x), w = leaf(in.w), bias = leaf(in.bias);
  const Tensor y = ops::conv2d(x, w, bias, p.stride, p.padding, p.dilation, p.groups);
  Tensors all = autograd::grad({y}, {x, w, bias}, {ops::to(in.slope, t).data_on(device)});
  all.push_back(y.detach());
  return all;
}

double norm(const Tensor& t) { return std::sqrt(ops::sum(ops::mul(t, t)).item()); }

// All tensors are rounded once, and have the same bits once more.
void compare(const Problem& p, DType t, uint64_t seed = 1) {
  INFO(name(t) << ", " << p.str());
  const Inputs in(p, t, seed);
  const Tensors got = passes(p, in, t, gpu0), again = passes(p, in, t, gpu0);
  const Tensors wanted = passes(p, in, float64, cpu);
  const double rounding = t == bfloat16 ? 0x1p-8 : t == float16 ? 0x1p-11 : 2e-6;
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("tensor " << i << ", " << wanted[i].summary());
    CHECK(got[i].dtype() == t);
    CHECK(bit_equal(got[i].data_on(cpu), again[i].data_on(cpu)));
    const double off = norm(ops::sub(ops::to(got[i].data_on(cpu), float64), wanted[i]));
    CHECK(off <= rounding * norm(wanted[i]) + 1e-6 * std::sqrt(static_cast<double>(wanted[i].numel())));
  }
}

// Many seeds: TROUPE_SEEDS=200.
TEST_CASE("convolutions of random shapes, groups, steps, padding and dilation") {
  if (!needs_gpus(1)) return;
  const char* const more = std::getenv("TROUPE_SEEDS");
  std::mt19937_64 random(7);
  const auto up_to = [&](int64_t n) { return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int n = more ? std::atoi(more) : 12; n > 0; --n) {
#ifdef TROUPE_CUDA_SIM
    if (more) sim_cuda::schedule_by_seed(random());
#endif
    const DType t = std::array{bfloat16, float16, float32}[random() % 3];
    Problem p;
    p.groups = random() % 3 ? 1 : up_to(3);
    p.weight = {p.groups * (p.groups > 1 ? 3 + up_to(8) : up_to(70)), p.groups > 1 ? 3 + up_to(8) : up_to(20),
                up_to(4), up_to(4)};
    p.stride = {up_to(3), up_to(3)}, p.dilation = {up_to(3), up_to(3)},
    p.padding = {up_to(4) - 1, up_to(4) - 1};
    const auto side = [&](size_t d) {
      return std::max<int64_t>(
                 1, (p.weight[2 + static_cast<int>(d)] - 1) * p.dilation[d] + 1 - 2 * p.padding[d]) +
             up_to(14) - 1;
    };
    p.image = {up_to(3), p.groups * p.weight[1], side(0), side(1)};
    compare(p, t, random());
  }
}

TEST_CASE("convolutions of more channels and places than a tile has, in tiles of both heights") {
  if (!needs_gpus(1)) return;
  compare({{1, 2, 131, 130}, {130, 2, 3, 1}, {1, 1}, {1, 0}}, bfloat16);
  compare({{3, 66, 12, 11}, {70, 66, 3, 3}, {2, 1}, {1, 1}}, float32);
  compare({{2, 1, 1, 1000}, {8, 1, 1, 80}, {1, 40}, {0, 20}}, float16);  // sound
  compare({{2, 3, 32, 32}, {48, 3, 16, 16}, {16, 16}}, bfloat16);        // patches
}

TEST_CASE("an infinite element of a half makes infinite what it meets, and nothing else") {
  if (!needs_gpus(1)) return;
  const Problem p{{2, 4, 6, 6}, {5, 4, 3, 3}, {1, 1}, {1, 1}};
  Inputs in(p, float16, 1);
  Tensor one = in.x;
  for (const int64_t at : {1, 2, 3, 2}) one = ops::select(one, 0, at);
  one.fill_(std::numeric_limits<float>::infinity());
  const Tensor got = passes(p, in, float16, gpu0)[3].data_on(cpu), wanted = passes(p, in, float64, cpu)[3];
  const auto a = ops::to(got, float64).to_vector<double>(), b = wanted.to_vector<double>();
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO("element " << i << ": " << a[i] << ", and on the CPU " << b[i]);
    CHECK((std::isinf(b[i]) ? a[i] == b[i] : std::isfinite(a[i])));
  }
}

#ifdef TROUPE_CUDA_SIM
TEST_CASE("convolution asks the matrix unit for few products beyond the least, and reads without conflicts") {
  if (!needs_gpus(1) || std::getenv("TROUPE_SIM_SEED")) return;  // it would count the same
  const NoGradGuard off;
  const int64_t n = 2, side = 16, channels = 64;
  const ops::Attrs attrs{{"padding", 1}};
  for (const DType t : {bfloat16, float32}) {
    INFO(name(t));
    const Inputs in({{n, channels, side, side}, {64, channels, 3, 3}, {1, 1}, {1, 1}}, t, 1);
    const Tensor x = in.x.data_on(gpu0), w = in.w.data_on(gpu0), g = in.slope.data_on(gpu0);
    // Products of 16 x 8 x 16, or three of 16 x 8 x 8 for float32.
    const double least =
        (t == float32 ? 6 : 1) * static_cast<double>(n * side * side * 64 * channels * 9) / 2048;
    const auto asked = [&](const std::function<void()>& f) {
      sim_cuda::reset_matrix_counts();
      f();
      zeros({1}, {float32, gpu0}).data_on(cpu);  // behind it
      CHECK(sim_cuda::matrix_counts().conflicts == 0);
      return static_cast<double>(sim_cuda::matrix_counts().products) / least;
    };
    CHECK(asked([&] { ops::conv2d(x, w, {}, 1, 1); }) == Approx(1));
    const ops::Attrs image{{"padding", 1}, {"input", std::vector<int64_t>{side, side}}};
    CHECK(asked([&] { ops::apply1(ops::kConv2dInputGrad, {g, w}, image); }) == Approx(1));
    const ops::Attrs kernel{{"padding", 1}, {"kernel", std::vector<int64_t>{3, 3}}};
    CHECK(asked([&] { ops::apply(ops::kConv2dWeightGrad, std::array{x, g}, kernel); }) <= 1.12);
    // With a stride, the gradient of the input multiplies only with what meets a place.
    const ops::Attrs apart{
        {"padding", 1}, {"stride", 2}, {"input", std::vector<int64_t>{2 * side, 2 * side}}};
    CHECK(asked([&] { ops::apply1(ops::kConv2dInputGrad, {g, w}, apart); }) == Approx(1));
  }
}
#endif

}  // namespace
