// Products on a GPU: dtypes, strides, batches, what is fused, and what the simulated cuBLASLt finds.
#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "core/cuda/install.h"
#include "core/tensor/elements.h"
#include "ops/cuda/gemm.h"
#include "ops/ops.h"
#include "tests/cuda/gpus.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/sim_cuda/sim.h"

using namespace troupe;

namespace {

using testing::difference, testing::needs_gpus;

using testing::gpu0;

Tensor some(const Shape& shape, uint64_t seed, DType dtype = float32) {
  Generator g(seed);
  return ops::to(ops::randn(shape, g), dtype);
}

// Of float64 sums of the same factors.
double tolerance(DType t) { return t == float64 ? 1e-13 : t == float32 ? 1e-5 : t == bfloat16 ? 1e-2 : 2e-3; }

std::string compared(const Tensor& got, const Tensor& a, const Tensor& b) {
  const Tensor wanted = ops::to(ops::matmul(ops::to(a, float64), ops::to(b, float64)), got.dtype());
  const double by = tolerance(got.dtype());
  return difference(ops::to(got.data_on(cpu), float64), ops::to(wanted, float64), by, by * 10);
}

#ifdef TROUPE_CUDA_SIM
uint64_t launches() { return sim_cuda::counters().launches; }
constexpr bool kCounted = true;
#else
uint64_t launches() { return 0; }
constexpr bool kCounted = false;
#endif

TEST_CASE("products of every floating dtype sum in float32 or more") {
  if (!needs_gpus(1)) return;
  for (const DType t : {float64, float32, bfloat16, float16})
    for (const auto& [m, n, k] :
         {std::tuple(1, 1, 1), {3, 5, 7}, {65, 33, 130}, {1, 40, 300}, {40, 1, 300}}) {
      INFO(name(t) << " " << m << " " << n << " " << k);
      const Tensor a = some({m, k}, 1, t), b = some({k, n}, 2, t);
      const Tensor got = ops::matmul(a.data_on(gpu0), b.data_on(gpu0));
      CHECK(got.dtype() == t);
      CHECK(compared(got, a, b) == "");
    }
  const Tensor row = ones({1, 1000}, {bfloat16, gpu0});  // 256 + 1 is no bfloat16
  CHECK(ops::matmul(row, ops::transpose(row, 0, 1)).item() == 1000);
}

TEST_CASE("transposed, sliced and broadcast factors are read where they lie, in one call") {
  if (!needs_gpus(1)) return;
  const Tensor a = some({6, 9, 8}, 1), b = some({6, 8, 7}, 2), wide = some({9, 20}, 3);
  const Tensor ga = a.data_on(gpu0), gb = b.data_on(gpu0), gwide = wide.data_on(gpu0);
  const auto cut = [](const Tensor& t) { return ops::slice(t, 1, 3, 11); };
  const auto flip = [](const Tensor& t) { return ops::transpose(t, -2, -1); };
  struct Case {
    const char* what;
    Tensor a, b, on_cpu_a, on_cpu_b;
  };
  for (const Case& c :
       {Case{"plain", ga, gb, a, b},
        {"both transposed", flip(gb), flip(ga), flip(b), flip(a)},
        {"a slice of columns", cut(gwide), ops::select(gb, 0, 2), cut(wide), ops::select(b, 0, 2)},
        {"one for all", ops::select(ga, 0, 0), gb, ops::select(a, 0, 0), b},
        {"rows of a batch", ga, ops::select(gb, 0, 1), a, ops::select(b, 0, 1)}}) {
    INFO(c.what);
    const uint64_t before = launches();
    const Tensor got = ops::matmul(c.a, c.b);
    CHECK(launches() - before == kCounted);
    CHECK(compared(got, c.on_cpu_a, c.on_cpu_b) == "");
  }
  // Two dimensions of a batch that do not merge: a call for each element of the first one.
  const Tensor x = some({2, 3, 4, 5}, 4), y = some({3, 5, 6}, 5);
  const uint64_t before = launches();
  const Tensor got = ops::matmul(x.data_on(gpu0), y.data_on(gpu0));
  CHECK(launches() - before == 2 * kCounted);
  CHECK(compared(got, x, y) == "");
}

TEST_CASE("linear adds its bias and sums the bias's gradient within the product") {
  if (!needs_gpus(1)) return;
  for (const DType t : {float32, bfloat16, float16}) {
    INFO(name(t));
    const Tensor x = some({12, 40}, 1, t), w = some({24, 40}, 2, t), bias = some({24}, 3, t);
    const Tensor gx = x.data_on(gpu0);
    Tensor gw = w.data_on(gpu0), gb = bias.data_on(gpu0);
    const Tensor g = some({12, 24}, 4, t), on_gpu = g.data_on(gpu0);
    uint64_t before = launches();
    CHECK(difference(ops::to(ops::linear(gx, gw, gb).data_on(cpu), float32),
                     ops::to(ops::linear(x, w, bias), float32), tolerance(t), 10 * tolerance(t)) == "");
    CHECK(launches() - before == kCounted);
    before = launches();
    const Tensors both = ops::apply(ops::kLinearWeightGrad, std::array{on_gpu, gx});
    CHECK(launches() - before == kCounted);
    const Tensors wanted = ops::apply(ops::kLinearWeightGrad, std::array{g, x});
    for (size_t i = 0; i < 2; ++i)
      CHECK(difference(ops::to(both[i].data_on(cpu), float32), ops::to(wanted[i], float32), tolerance(t),
                       10 * tolerance(t)) == "");
    // A second backward pass adds to the gradients.
    gw.requires_grad_(), gb.requires_grad_();
    for (int i = 0; i < 2; ++i) autograd::backward(ops::linear(gx, gw, gb), on_gpu);
    CHECK(difference(ops::to(gw.grad().data_on(cpu), float32), ops::to(ops::mul(wanted[0], 2), float32),
                     tolerance(t), 20 * tolerance(t)) == "");
  }
}

TEST_CASE("a bias that is not aligned, and one of float64, are added by a kernel") {
  if (!needs_gpus(1)) return;
  for (const DType t : {float64, float32, bfloat16}) {
    const Tensor x = some({5, 8}, 1, t), w = some({6, 8}, 2, t), bias = some({7}, 3, t);
    const Tensor got = ops::linear(x.data_on(gpu0), w.data_on(gpu0), ops::slice(bias.data_on(gpu0), 0, 1, 7));
    CHECK(difference(ops::to(got.data_on(cpu), float64),
                     ops::to(ops::linear(x, w, ops::slice(bias, 0, 1, 7)), float64), tolerance(t),
                     10 * tolerance(t)) == "");
  }
}

TEST_CASE("relu of a product keeps NaN, and gelu is the exact one") {
  if (!needs_gpus(1)) return;
  const Tensor x = tensor({NAN, 2, -1}).reshape({3, 1}).data_on(gpu0);
  const Tensor w = ones({1, 1}, {float32, gpu0});
  const auto relu = ops::linear_relu(x, w).to_vector<float>();
  CHECK(std::isnan(relu[0]));
  CHECK(relu[1] == 2);
  CHECK(relu[2] == 0);
  CHECK(ops::linear_gelu(x, w).to_vector<float>()[1] == Approx(1.9544997361).epsilon(1e-6));
}

TEST_CASE("the precision of float32 products is PyTorch's setting") {
  if (!needs_gpus(1)) return;
  CHECK(ops::float32_matmul_precision() == "highest");
  ops::set_float32_matmul_precision("high");
  const Tensor a = some({30, 40}, 1), b = some({40, 20}, 2);
  const Tensor got = ops::matmul(a.data_on(gpu0), b.data_on(gpu0));
  ops::set_float32_matmul_precision("highest");
  CHECK(difference(got.data_on(cpu), ops::matmul(a, b), 1e-2, 1e-2) == "");
  CHECK(testing::text_of([] { ops::set_float32_matmul_precision("low"); }) ==
        "[set_float32_matmul_precision] \"low\" is none of highest, high and medium");
}

#ifdef TROUPE_CUDA_SIM
// A product of 8 x 8 matrices, wrong in one way.
template <class F>
std::string fault_of(F&& spoil) {
  const Tensor a = some({8, 8}, 1).data_on(gpu0), b = some({8, 8}, 2).data_on(gpu0);
  const Tensor d = empty({8, 8}, {float32, gpu0});
  ops::on_cuda::Gemm g{
      .m = 8, .n = 8, .k = 8, .a = {a.address(), 8}, .b = {b.address(), 8}, .d = d.address()};
  spoil(g);
  const std::string thrown = testing::text_of([&] {
    ops::on_cuda::gemm("planted", gpu0, g);
    backend_of(gpu0).synchronize(gpu0);
  });
  const std::string fault = sim_cuda::take_fault();
  return fault.empty() ? thrown : fault;
}

TEST_CASE("a product with wrong memory or a wrong layout is found") {
  if (!needs_gpus(2)) return;
  using ops::on_cuda::Gemm;
  const Tensor here = zeros({8, 8}), other = zeros({8, 8}, {float32, {kCuda, 1}});
  CHECK(fault_of([](Gemm&) {}) == "no error");
  CHECK_THAT(fault_of([&](Gemm& g) { g.a.p = here.address(); }),
             Catch::Contains("cublasLtMatmul on device 0: B is not in the device's memory"));
  CHECK_THAT(fault_of([&](Gemm& g) { g.d = other.address(); }),
             Catch::Contains("D is not in the device's memory"));
  CHECK_THAT(fault_of([](Gemm& g) { g.a.ld = 9; }),
             Catch::Contains("B: 284 bytes at 0 of an allocation of 256"));
  CHECK_THAT(fault_of([](Gemm& g) { g.batch = 2; }), Catch::Contains("D: 512 bytes at 0"));
  CHECK_THAT(
      fault_of([](Gemm& g) { g.b.ld = 7; }),
      Catch::Contains("[cuda] planted on cuda:0: cuBLASLt gives status 7 for 1 products [8, 8] x [8, 8] "
                      "of float32"));
  CHECK_THAT(fault_of([](Gemm& g) { g.in = bfloat16, g.out = float16; }),
             Catch::Contains("has no algorithm"));
}
#endif

}  // namespace
