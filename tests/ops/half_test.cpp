// bfloat16 and float16 in operators: conversion kernels, sums in float32, gradients in the input's dtype.
#include <catch2/catch.hpp>
#include <cmath>

#include "autograd/engine.h"
#include "ops/inplace.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;

namespace {

using Catch::Contains;
using Values = std::vector<double>;

constexpr DType kHalves[] = {bfloat16, float16};

TEST_CASE("to() converts every half, and floats as the single conversion does, whatever the strides",
          "[half]") {
  const Tensor every = empty({256, 256}, bfloat16);
  for (int i = 0; i < 65536; ++i) every.data<BFloat16>()[i].bits = static_cast<uint16_t>(i);
  const Tensor also = empty({256, 256}, float16);
  std::memcpy(also.bytes(), every.bytes(), every.nbytes());
  Generator g(1);
  const Tensor floats = ops::randn({255, 259}, g) * 1e-3;  // around the smallest normal float16
  for (const bool strided : {false, true})
    for (const Tensor& x : {every, also}) {
      const auto seen = [&](const Tensor& t) { return strided ? t.transpose(0, 1) : t; };
      const Tensor wide = seen(x).to(float32), back = wide.to(x.dtype()), down = seen(floats).to(x.dtype());
      const auto halves = seen(x).to_vector<float>(), got = wide.to_vector<float>();
      const auto sources = seen(floats).to_vector<float>(), rounded = down.to_vector<float>();
      int wrong = 0;
      for (size_t i = 0; i < got.size(); ++i)
        wrong += std::isnan(halves[i])
                     ? !std::isnan(got[i])
                     : std::bit_cast<uint32_t>(halves[i]) != std::bit_cast<uint32_t>(got[i]);
      for (size_t i = 0; i < sources.size(); ++i)
        wrong += rounded[i] != (x.dtype() == bfloat16 ? static_cast<float>(BFloat16(sources[i]))
                                                      : static_cast<float>(Float16(sources[i])));
      CHECK(wrong == 0);
      CHECK(testing::difference(back, seen(x), 0, 0) == "");
    }
}

TEST_CASE("products and sums of halves are summed in float32 and rounded once", "[half]") {
  // 4096 times 1: in bfloat16 the sum would stop at 256, in float16 at 2048.
  for (const DType t : kHalves) {
    const Tensor row = ones({4096}, t);
    CHECK(ops::sum(row).item() == 4096);
    CHECK(ops::matmul(row, row).item() == 4096);
    CHECK(ops::linear(ones({2, 4096}, t), ones({3, 4096}, t), full({3}, 64, t)).to_vector<double>() ==
          Values(6, 4160));
    Generator g(3);
    const Tensor a = ops::randn({33, 200}, g, t), b = ops::randn({200, 17}, g, t);
    CHECK(bit_equal(ops::matmul(a, b), ops::matmul(a.to(float32), b.to(float32)).to(t)));
    CHECK(bit_equal(ops::mse_loss(a, a * 0.5), ops::mse_loss(a.to(float32), (a * 0.5).to(float32)).to(t)));
  }
}

TEST_CASE("gradients of halves come in their dtype, through casts too", "[half]") {
  for (const DType t : kHalves) {
    Generator g(4);
    Tensor w = ops::randn({5, 8}, g, t).requires_grad_(), x = ops::randn({3, 8}, g).requires_grad_();
    const Tensor y = ops::linear(x.to(t), w);
    CHECK(y.dtype() == t);
    autograd::backward(y.to(float32).square().sum());
    CHECK(w.grad().dtype() == t);
    CHECK(x.grad().dtype() == float32);
    // Twice: the second gradient adds up in the dtype of the leaf.
    const auto once = w.grad().to_vector<double>();
    autograd::backward(ops::linear(x.to(t), w).to(float32).square().sum());
    const auto twice = w.grad().to_vector<double>();
    for (size_t i = 0; i < once.size(); ++i) CHECK(twice[i] == 2 * once[i]);
    // The gradient of a gradient.
    Tensor v = ops::rand({4}, g, t).requires_grad_();
    const Tensor first = autograd::grad({(v * v * v).sum()}, {v}, {}, {.create_graph = true})[0];
    CHECK(first.dtype() == t);
    const Tensor second = autograd::grad({first.sum()}, {v})[0];
    CHECK(second.dtype() == t);
    CHECK(testing::difference(second, v * 6, 0.02, 0.01) == "");
  }
}

TEST_CASE("mixed dtypes are refused by name where PyTorch does not promote", "[half]") {
  const Tensor a = zeros({2}), b = zeros({2}, bfloat16), c = zeros({2}, float16);
  const auto text = [](auto f) { return testing::text_of(f); };
  CHECK_THAT(text([&] { ops::matmul(c, b); }), Contains("float16 [2] and bfloat16 [2]; use .to()"));
  CHECK_THAT(text([&] { ops::huber_loss(b, a); }),
             Contains("[huber_loss]") && Contains("bfloat16 [2] and float32 [2]; use .to()"));
}

TEST_CASE("in-place updates of halves are computed in float32 and rounded once", "[half]") {
  const Tensor a = tensor({1, 2, 256}, float32).to(bfloat16), b = tensor({0.5, 0.25, 1}).to(bfloat16);
  ops::add_(a, b, 2);
  CHECK(a.to_vector<double>() == Values{2, 2.5, 258});
  ops::mul_(a, 0.5);
  CHECK(a.to_vector<double>() == Values{1, 1.25, 129});
  ops::sqrt_(b);
  CHECK(b.to_vector<double>() == Values{0.70703125, 0.5, 1});
}

TEST_CASE("random halves are in range and repeatable", "[half]") {
  for (const DType t : kHalves) {
    Generator g(5), same(5);
    const Tensor x = ops::rand({20000}, g, t);
    double most = 0, least = 1, total = 0;
    for (const double v : x.to_vector<double>())
      most = std::max(most, v), least = std::min(least, v), total += v;
    CHECK(most < 1);
    CHECK(most > 0.99);
    CHECK(least == 0);
    CHECK(total / 20000 == Approx(0.5).margin(0.02));
    CHECK(bit_equal(x, ops::rand({20000}, same, t)));
  }
}

}  // namespace
