// Weights that stay packed from one call to the next.
#include "ops/cpu/gemm/packed_weights.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "autograd/autograd.h"
#include "ops/cpu/gemm/gemm.h"
#include "ops/ops.h"
#include "tests/support/skip.h"

using namespace troupe;
using namespace troupe::ops;

namespace {

double difference(const Tensor& a, const Tensor& b) { return amax(abs(sub(a, b)), {}, false).item(); }

Tensor parameter(const Shape& shape, Generator& g) {
  Tensor w = randn(shape, g);
  w.requires_grad_();
  return w;
}

// What a layer gives for x, and the gradients of x and of its weight.
Tensors pass(const Tensor& from, const Tensor& w, const Tensor& bias) {
  Tensor x = from.detach();
  x.requires_grad_();
  w.set_grad({});
  const Tensor y = linear(x, w, bias);
  autograd::backward(y.square().sum());
  return {y.detach(), x.grad(), w.grad()};
}

TEST_CASE("a layer with packed weights computes what it does without, forward and backward") {
  Generator g(1);
  for (const auto& [rows, in, out] : {std::array<int64_t, 3>{1, 40, 30}, {7, 300, 100}, {200, 300, 256}}) {
    INFO(rows << " rows, " << in << " to " << out);
    const Tensor w = parameter({out, in}, g), bias = parameter({out}, g);
    PackedWeights packed;
    for (int again = 0; again < 3; ++again) {
      const Tensor x = randn({rows, in}, g);
      const Tensors without = pass(x, w, bias);
      const PackedWeights::Use use(packed);
      const Tensors with = pass(x, w, bias);
      for (size_t i = 0; i < with.size(); ++i) CHECK(difference(with[i], without[i]) < 2e-2);
      CHECK(difference(with[0], without[0]) < 1e-4);
    }
    if (!on_cpu::has_gemm_tiles()) {
      CHECK(packed.bytes() == 0);
      continue;
    }
    if (rows < 48) CHECK(packed.bytes() >= static_cast<size_t>(2 * in * out * 4));  // both orders
    packed.clear();
    CHECK(packed.bytes() == 0);
  }
}

TEST_CASE("a packed weight that was written to is packed again") {
  Generator g(2);
  const Tensor w = parameter({64, 48}, g), x = randn({5, 48}, g);
  PackedWeights packed;
  const PackedWeights::Use use(packed);
  linear(x, w);
  const size_t bytes = packed.bytes();
  {
    NoGradGuard off;
    w.fill_(0.5);
  }
  CHECK(difference(linear(x, w), linear(x, w.detach())) < 1e-5);
  w.data<float>()[3] = 100;
  w.bump_version("test");
  CHECK(difference(linear(x, w), linear(x, w.detach())) < 1e-4);
  CHECK(packed.bytes() == bytes);
  w.data<float>()[3] = -100;  // says nothing: what was packed stays, until it is told
  packed.clear();
  CHECK(difference(linear(x, w), linear(x, w.detach())) < 1e-4);
}

TEST_CASE(
    "only parameters of linear layers stay packed, each view of them by itself, while something uses it") {
  if (!on_cpu::has_gemm_tiles()) {
    testing::skip_test("this processor has no tiles, so nothing is packed");
    return;
  }
  Generator g(3);
  const Tensor w = parameter({64, 48}, g), x = randn({9, 48}, g);
  PackedWeights packed, other;
  {
    const PackedWeights::Use use(packed);
    const PackedWeights::Use inner(other);  // the outer one stays in use
    linear(x, mul(w, w));
    linear(x, w.detach());
    matmul(x, w.transpose(0, 1));
    CHECK(packed.bytes() == 0);
    linear(x, w);
    CHECK(other.bytes() == 0);
    std::thread([&] { linear(x, parameter({64, 48}, g)); }).join();  // uses none
  }
  const size_t bytes = packed.bytes();
  CHECK(bytes >= 64 * 48 * 4);
  linear(x, parameter({64, 48}, g));
  CHECK(packed.bytes() == bytes);
  NoGradGuard no_grad;
  const PackedWeights::Use use(packed);
  const Tensor half = randn({9, 48}, g).to(bfloat16);
  linear(half, w.to(bfloat16));
  CHECK(packed.bytes() == bytes);
}

TEST_CASE("several threads pack one weight once, and read it") {
  Generator g(4);
  const Tensor w = parameter({300, 280}, g),
               x = randn({40, 280}, g);  // so few that every maker's processor keeps the weight
  const Tensor want = linear(x, w.detach());
  PackedWeights packed;
  std::vector<std::thread> threads;
  std::array<Tensor, 4> got;
  for (Tensor& y : got)
    threads.emplace_back([&packed, &w, &x, &y] {
      NoGradGuard no_grad;
      const PackedWeights::Use use(packed);
      y = linear(x, w);
    });
  for (auto& t : threads) t.join();
  for (const Tensor& y : got) CHECK(difference(y, want) < 1e-4);
  if (on_cpu::has_gemm_tiles()) CHECK(packed.bytes() >= static_cast<size_t>(300 * 280 * 4));
}

}  // namespace
