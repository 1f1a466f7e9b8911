// Shapes at which kernels take several tiles, pieces or passes, which the samples of operators do not have.
#include <catch2/catch.hpp>
#include <limits>

#include "autograd/engine.h"
#include "core/cuda/install.h"
#include "core/tensor/elements.h"
#include "ops/ops.h"
#include "optim/adam.h"
#include "tests/cuda/gpus.h"
#include "tests/support/near.h"
#include "tests/support/sim_cuda/sim.h"

using namespace troupe;

namespace {

using testing::difference, testing::needs_gpus;

using testing::gpu0;

Tensor drawn(const Shape& shape, uint64_t seed, DType dtype = float64) {
  Generator g(seed);
  return ops::randn(shape, g, dtype);
}

// f's result and the gradients of all inputs, on the device.
template <class F>
Tensors passes(const Tensors& inputs, Device device, F&& f) {
  Tensors leaves;
  for (const Tensor& t : inputs) leaves.push_back(t.data_on(device).requires_grad_());
  const Tensor y = f(leaves);
  Tensors all = autograd::grad({ops::sum(ops::mul(y, y))}, leaves);
  all.push_back(y.detach());
  return all;
}
template <class F>
void compare(const Tensors& inputs, F&& f) {
  const Tensors got = passes(inputs, gpu0, f), wanted = passes(inputs, cpu, f);
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("tensor " << i);
    CHECK(difference(got[i].data_on(cpu), wanted[i], 1e-10, 1e-11) == "");
  }
}

TEST_CASE("lerp in place reaches its end exactly on a GPU, too") {
  if (!needs_gpus(1)) return;
  for (const double weight : {0.2, 0.9, 1.0}) {
    const Tensor x = tensor({1e8, -2.5}).data_on(gpu0), end = tensor({1., 7.}).data_on(gpu0);
    const Tensor wanted = ops::lerp(x, end, weight);
    ops::lerp_(x, end, weight);
    CHECK(bit_equal(x.data_on(cpu), wanted.data_on(cpu)));
    if (weight == 1) CHECK(bit_equal(x.data_on(cpu), tensor({1., 7.})));
  }
}

TEST_CASE("gradients of slices that come up many times, twice with the same bits") {
  if (!needs_gpus(1)) return;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 700; ++i) ids.push_back(i % 3 == 0 ? 4 : i % 7 == 0 ? 5 : i % 11);
  const Tensor index = tensor(ids);
  const auto embed = [&](const Tensors& x) { return ops::embedding(index.data_on(x[0].device()), x[0]); };
  compare({drawn({12, 5}, 1)}, embed);
  const Tensors first = passes({drawn({12, 5}, 1, float32)}, gpu0, embed);
  CHECK(bit_equal(first[0], passes({drawn({12, 5}, 1, float32)}, gpu0, embed)[0]));
  compare({drawn({3, 12, 2}, 2)},
          [&](const Tensors& x) { return ops::index_select(x[0], 1, index.data_on(x[0].device())); });
}

// Of 16 bytes at once, of those at the end one by one, and of those that do not begin at a multiple of 16.
TEST_CASE("elements at every place of a storage, beside numbers, of several dtypes") {
  if (!needs_gpus(1)) return;
  for (const int64_t n : {1, 3, 4, 7, 1000, 1025})
    for (const int64_t from : {0, 1, 2, 4}) {
      INFO(n << " elements from " << from);
      for (const DType t : {float64, float32, int64}) {
        const Tensor all = ops::to(ops::mul(drawn({n + 4}, 1), 10), t),
                     x = ops::slice(all, 0, from, from + n);
        const Tensor gx = ops::slice(all.data_on(gpu0), 0, from, from + n);
        const Tensor y = ops::to(drawn({n}, 2), t), gy = y.data_on(gpu0);
        CHECK(bit_equal(ops::mul(gx, gy).data_on(cpu), ops::mul(x, y)));
        CHECK(bit_equal(ops::add(gx, 3).data_on(cpu), ops::add(x, 3)));
        CHECK(bit_equal(ops::maximum(gx, gy).data_on(cpu), ops::maximum(x, y)));
        CHECK(bit_equal(ops::lt(gx, gy).data_on(cpu), ops::lt(x, y)));
        CHECK(bit_equal(ops::where(ops::lt(gx, gy), gx, gy).data_on(cpu), ops::where(ops::lt(x, y), x, y)));
        for (const DType to : {float64, float32, bfloat16, float16, int32, uint8, boolean})
          CHECK(bit_equal(ops::to(gx, to).data_on(cpu), ops::to(x, to)));
        const Tensor sum = gx.clone_data(), wanted = x.clone_data();
        add_elements(sum, sum, gy);
        add_elements(wanted, wanted, y);
        CHECK(bit_equal(sum.data_on(cpu), wanted));
      }
    }
}

TEST_CASE("scans of lines of several pieces, and what is found and added along one") {
  if (!needs_gpus(1)) return;
  for (const auto& [shape, dim] :
       {std::pair(Shape{5000}, 0), {Shape{2, 2049}, 1}, {Shape{2500, 3}, 0}, {Shape{65}, 0}})
    for (const DType t : {float64, float32, int64}) {
      INFO(shape.str() << " " << name(t));
      const Tensor x = ops::to(ops::mul(drawn(shape, 1), 10), t), gx = x.data_on(gpu0);
      CHECK(difference(ops::to(ops::cumsum(gx, dim).data_on(cpu), float64),
                       ops::to(ops::cumsum(x, dim), float64), 1e-6, 1e-9) == "");
      CHECK(bit_equal(ops::cumsum(gx, dim), ops::cumsum(gx, dim)));
      const Tensor near_1 = ops::to(ops::add(ops::mul(drawn(shape, 2), 1e-3), 1), t);
      CHECK(difference(ops::to(ops::cumprod(near_1.data_on(gpu0), dim).data_on(cpu), float64),
                       ops::to(ops::cumprod(near_1, dim), float64), 1e-6, 1e-9) == "");
      CHECK(bit_equal(ops::nonzero(gx).data_on(cpu), ops::nonzero(x)));
    }
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 3000; ++i) ids.push_back(i % 5 ? i * i % 97 : 3);
  const Tensor index = tensor(ids);
  for (const DType t : {float64, int64}) {
    const Tensor to = ops::to(ops::mul(drawn({97}, 3), 10), t),
                 from = ops::to(ops::mul(drawn({3000}, 4), 10), t);
    const Tensor got = ops::scatter_add(to.data_on(gpu0), 0, index.data_on(gpu0), from.data_on(gpu0));
    CHECK(difference(ops::to(got.data_on(cpu), float64),
                     ops::to(ops::scatter_add(to, 0, index, from), float64), 1e-12, 1e-9) == "");
  }
}

TEST_CASE("an optimizer steps all parameters in one launch, or in few if they are many") {
  if (!needs_gpus(1)) return;
  const auto trained = [](int count, Device device, [[maybe_unused]] uint64_t* launches) {
    std::vector<Tensor> parameters;
    for (int i = 0; i < count; ++i)
      parameters.push_back(
          drawn({1 + i * i * 7}, 1 + static_cast<uint64_t>(i)).data_on(device).requires_grad_());
    optim::AdamW adam(parameters, {.lr = 1e-2});
    for (int step = 0; step < 3; ++step) {
      for (const Tensor& p : parameters) autograd::backward(ops::sum(ops::mul(p, p)));
#ifdef TROUPE_CUDA_SIM
      sim_cuda::reset_counters();
      adam.step();
      *launches = sim_cuda::counters().launches;
#else
      adam.step();
#endif
      adam.zero_grad();
    }
    return parameters;
  };
  for (const int count : {6, 40}) {
    uint64_t launches = 0;
    const auto got = trained(count, gpu0, &launches);
#ifdef TROUPE_CUDA_SIM
    CHECK((count == 6 ? launches == 1 : launches > 1 && launches < 10));
#endif
    const auto wanted = trained(count, cpu, &launches);
    for (int i = 0; i < count; ++i)
      CHECK(difference(got[static_cast<size_t>(i)].data_on(cpu), wanted[static_cast<size_t>(i)], 1e-12,
                       1e-13) == "");
  }
}

// Values with ties, both zeros, infinities and NaN.
Tensor awkward(const Shape& shape, DType dtype) {
  Tensor x = ops::round(ops::mul(drawn(shape, 1, float32), 20));
  if (is_floating(dtype)) {
    float* at = x.data<float>();
    const float values[] = {-0.f, 0.f, NAN, -NAN, INFINITY, -INFINITY};
    for (int64_t i = 0; i < x.numel(); i += 37) at[i] = values[i % 6];
  }
  return ops::to(x, dtype);
}

TEST_CASE("long lines are sorted as short ones: stably, with NaN as the largest") {
  if (!needs_gpus(1)) return;
  for (const DType t : {float64, float32, bfloat16, float16, int64, int32, uint8})
    for (const int64_t dim : {0, 1})
      for (const bool descending : {false, true}) {
        INFO(name(t) << ", dim " << dim << ", descending " << descending);
        const Tensor x = awkward(dim ? Shape{3, 1500} : Shape{1500, 3}, t);
        const auto [values, places] = ops::sort(x.data_on(gpu0), dim, descending);
        const auto [wanted, where] = ops::sort(x, dim, descending);
        CHECK(bit_equal(places.data_on(cpu), where));
        CHECK(difference(ops::to(values.data_on(cpu), float64), ops::to(wanted, float64), 0, 0) == "");
      }
  const Tensor x = awkward({2, 2000}, float32);
  CHECK(bit_equal(ops::topk(x.data_on(gpu0), 7).indices.data_on(cpu), ops::topk(x, 7).indices));
}

}  // namespace
