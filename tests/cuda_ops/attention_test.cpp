// Attention on a GPU beside float64 on the CPU: on the matrix unit, whose tiles these sizes cut, and without
// it.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "autograd/engine.h"
#include "core/tensor/elements.h"
#include "ops/ops.h"
#include "tests/cuda/gpus.h"
#ifdef TROUPE_CUDA_SIM
#include "tests/support/sim_cuda/matrix_unit.h"
#include "tests/support/sim_cuda/sim.h"
#endif

using namespace troupe;

namespace {

using testing::gpu0, testing::needs_gpus;

Tensor drawn(const Shape& shape, uint64_t seed, DType dtype = float64) {
  Generator g(seed);
  return ops::to(ops::randn(shape, g, float32), dtype);
}

using Function = std::function<Tensor(const Tensors&)>;

// f's result and the gradients of all inputs for the gradient g of the result.
Tensors passes(const Tensors& inputs, const Tensor& g, DType dtype, Device device, const Function& f) {
  Tensors leaves;
  for (const Tensor& t : inputs) leaves.push_back(ops::to(t, dtype).data_on(device).requires_grad_());
  const Tensor y = f(leaves);
  Tensors all = autograd::grad({y}, leaves, {ops::to(g, dtype).data_on(device)});
  all.push_back(y.detach());
  return all;
}

double norm(const Tensor& t) { return std::sqrt(ops::sum(ops::mul(t, t)).item()); }

// Weights are rounded to the dtype before they are factors: half a unit in the last place, and the result
// once more.
double tolerance(DType t) {
  return t == bfloat16 ? 0.75 * 0x1p-8 : t == float16 ? 0.75 * 0x1p-11 : t == float32 ? 5e-6 : 1e-12;
}

// All tensors are within the rounding of the dtype, and have the same bits once more.
void compare(const Tensors& inputs, const Tensor& g, DType dtype, const Function& f) {
  Tensors given;
  for (const Tensor& t : inputs) given.push_back(ops::to(t, dtype));
  const Tensor slope = ops::to(g, dtype);
  const Tensors got = passes(given, slope, dtype, gpu0, f), again = passes(given, slope, dtype, gpu0, f);
  const Tensors wanted = passes(given, slope, float64, cpu, f);
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("tensor " << i << " of " << got.size() << ", " << wanted[i].summary());
    CHECK(got[i].dtype() == dtype);
    CHECK(bit_equal(got[i].data_on(cpu), again[i].data_on(cpu)));
    const double off = norm(ops::sub(ops::to(got[i].data_on(cpu), float64), wanted[i]));
    // In few columns, or few elements, one large rounding is all there is.
    const double more = wanted[i].dim() && (wanted[i].size(-1) < 16 || wanted[i].numel() <= 512) ? 2 : 1;
    CHECK(off <= more * tolerance(dtype) *
                     (norm(wanted[i]) + 0.2 * std::sqrt(static_cast<double>(wanted[i].numel()))));
  }
}

Function attention(bool causal) {
  return [causal](const Tensors& x) {
    return ops::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, causal);
  };
}

TEST_CASE("attention over several tiles of queries, keys and columns") {
  if (!needs_gpus(1)) return;
  const std::array<DType, 4> types{float64, float32, bfloat16, float16};
  size_t turn = 0;
  for (const auto& [queries, keys, width, value_width] : {std::tuple(70, 150, 40, 20),
                                                          {33, 65, 8, 130},
                                                          {130, 70, 130, 70},
                                                          {1, 200, 3, 5},
                                                          {129, 129, 128, 64}})
    for (const bool causal : {false, true})
      for (int i = 0; i < 2; ++i) {
        const DType t = types[turn++ % 4];
        INFO(name(t) << ", " << queries << " queries, " << keys << " keys, causal " << causal);
        compare({drawn({2, queries, width}, 1), drawn({2, keys, width}, 2), drawn({2, keys, value_width}, 3)},
                drawn({2, queries, value_width}, 4), t, attention(causal));
      }
}

TEST_CASE("attention without queries, keys, columns or heads") {
  if (!needs_gpus(1)) return;
  for (const auto& [heads, queries, keys, width] :
       {std::tuple(0, 5, 5, 8), {2, 0, 5, 8}, {2, 5, 0, 8}, {2, 5, 5, 0}, {2, 0, 0, 0}})
    for (const DType t : {float32, bfloat16}) {
      INFO(heads << " heads, " << queries << " queries, " << keys << " keys, " << width << " columns");
      compare(
          {drawn({heads, queries, width}, 1), drawn({heads, keys, width}, 2), drawn({heads, keys, width}, 3)},
          drawn({heads, queries, width}, 4), t, attention(true));
    }
}

// Packed, apart, of transposed views, of keys and values for groups of heads, masked; many seeds:
// TROUPE_SEEDS=200.
TEST_CASE("attention of random shapes and strides") {
  if (!needs_gpus(1)) return;
  const char* const more = std::getenv("TROUPE_SEEDS");
  std::mt19937_64 random(7);
  const auto up_to = [&](int64_t n) { return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int n = more ? std::atoi(more) : 4; n > 0; --n) {
#ifdef TROUPE_CUDA_SIM
    if (more) sim_cuda::schedule_by_seed(random());
#endif
    const DType t = std::array{bfloat16, float16, float32}[random() % 3];
    const bool causal = random() % 2, very_long = random() % 8 == 0;
    const int64_t width = std::array<int64_t, 9>{64, 64, 128, 32, 20, 8, 7, 1, 136}[random() % 9];
    const int64_t batch = up_to(2), heads = up_to(3);
    const int64_t time = very_long ? 999 + up_to(31) : up_to(200), keys = random() % 2 ? time : up_to(200);
    INFO(name(t) << ", batch " << batch << ", " << heads << " heads, " << time << " queries, " << keys
                 << " keys of " << width << ", causal " << causal);
    compare({drawn({batch, time, 3 * heads * width}, random())},
            drawn({batch, time, heads * width}, random()), t,
            [&](const Tensors& x) { return ops::self_attention(x[0], heads, causal); });
    const auto turned = [](const Tensor& x) { return ops::transpose(x, 1, 2); };
    compare({drawn({batch, time, heads, width}, random()), drawn({batch, keys, heads, width}, random()),
             drawn({batch, keys, heads, width}, random())},
            drawn({batch, heads, time, width}, random()), t, [&](const Tensors& x) {
              return attention(causal)({turned(x[0]), turned(x[1]), turned(x[2])});
            });
    compare({drawn({batch, 2, heads, time, width}, random()), drawn({batch, 2, 1, keys, width}, random()),
             drawn({batch, 2, 1, keys, width}, random())},
            drawn({batch, 2, heads, time, width}, random()), t, attention(causal));
  }
}

TEST_CASE("what attention on a GPU makes of numbers beyond all scales") {
  if (!needs_gpus(1)) return;
  Tensor q = drawn({2, 40, 16}, 1, float32), k = drawn({2, 40, 16}, 2, float32),
         v = drawn({2, 40, 16}, 3, float32);
  const auto both = [&](const Tensor& one, const Tensor& two, const Tensor& three, DType t, double size = 1) {
    const Tensors in{ops::to(one, t), ops::to(two, t), ops::to(three, t)};
    Tensors there;
    for (const Tensor& x : in) there.push_back(x.data_on(gpu0));
    const Tensor got = ops::to(attention(true)(there).data_on(cpu), float64),
                 wanted = ops::to(attention(true)(in), float64);
    const auto a = got.to_vector<double>(), b = wanted.to_vector<double>();
    for (size_t i = 0; i < a.size(); ++i) {
      INFO(name(t) << ", element " << i);
      CHECK((std::isnan(b[i]) ? std::isnan(a[i]) : std::fabs(a[i] - b[i]) <= 0.02 * size));
    }
  };
  for (const DType t : {float32, bfloat16}) {
    both(ops::mul(q, 1e4), k, v, t);
    both(q, k, ops::mul(v, 1e30), t, 1e30);
    Tensor bad = q.clone_data();
    bad.data<float>()[17] = NAN;  // one query of one head
    both(bad, k, v, t);
  }
}

#ifdef TROUPE_CUDA_SIM
// Of one head; causal, tiles on the diagonal are half in vain.
TEST_CASE(
    "attention asks of the matrix unit hardly more than it must, and reads shared memory without conflicts") {
  if (!needs_gpus(1)) return;
  if (std::getenv("TROUPE_SIM_SEED")) return;  // it would count the same
  const int64_t n = 256;
  for (const auto& [t, width] : {std::pair(bfloat16, 64), {bfloat16, 128}, {float32, 64}})
    for (const bool causal : {false, true}) {
      INFO(name(t) << ", " << width << " columns, causal " << causal);
      const auto leaf = [&](uint64_t seed) {
        return drawn({n, width}, seed, t).data_on(gpu0).requires_grad_();
      };
      const Tensor q = leaf(1), k = leaf(2), v = leaf(3);
      // Products of 16 x 8 x 16, or three of 16 x 8 x 8 for float32.
      const double least =
          (t == float32 ? 6 : 1) * static_cast<double>(n * n * width) / 2048 / (causal ? 2 : 1);
      sim_cuda::reset_matrix_counts();
      const Tensor y = attention(causal)({q, k, v});
      y.data_on(cpu);
      CHECK(sim_cuda::matrix_counts().products <= 2 * least * (causal ? 1.5 : 1));
      CHECK(sim_cuda::matrix_counts().conflicts == 0);
      sim_cuda::reset_matrix_counts();
      autograd::grad({y}, {q, k, v}, {drawn({n, width}, 4, t).data_on(gpu0)})[0].data_on(cpu);
      CHECK(sim_cuda::matrix_counts().products <= 7 * least * (causal ? 1.25 : 1));
      CHECK(sim_cuda::matrix_counts().products >= 5 * least);
      CHECK(sim_cuda::matrix_counts().conflicts == 0);
    }
}
#endif

}  // namespace
