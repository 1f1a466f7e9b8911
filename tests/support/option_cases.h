// Options that are made of several operators, some by way of the host: what they give on a device is what
// they give on the CPU.
#pragma once
#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "tests/support/near.h"

namespace troupe::testing {

inline Tensor draw(const Shape& shape, uint64_t seed = 1) {
  return ops::randn(shape, Generator(seed), float64);
}

// Results, and gradients of the sum of their squares, of f(inputs) where they are.
template <class F>
Tensors run_options(F f, Tensors in, Device device) {
  for (Tensor& t : in) {
    t = t.to(device);
    if (is_floating(t.dtype())) t = t.detach().requires_grad_();
  }
  Tensors out = f(in);
  for (const Tensor& y : out) CHECK(y.device() == device);
  if (out[0].requires_grad()) {
    autograd::backward(ops::sum(ops::square(out[0])));
    for (const Tensor& t : in)
      if (t.grad().defined()) out.push_back(t.grad());
  }
  return out;
}

inline void options_give_the_same_on(Device device) {
  const auto same_on_device = [&](auto f, const Tensors& in) {
    const Tensors there = run_options(f, in, device), here = run_options(f, in, cpu);
    REQUIRE(there.size() == here.size());
    for (size_t i = 0; i < here.size(); ++i)
      CHECK(difference(there[i].detach().to(cpu), here[i].detach(), 1e-12, 1e-12) == "");
  };
  const Tensor rows = tensor({{3, 1}, {2, 1}, {3, 1}}), ids = tensor({1, 3, 3, 0, 2, 1}),
               bags = tensor({0, 2, 6});
  same_on_device(
      [](const Tensors& in) {
        const auto [values, inverse, counts] = ops::unique(in[0], 0);
        return Tensors{values, inverse, counts};
      },
      {rows});
  same_on_device(
      [](const Tensors& in) {
        return Tensors{ops::searchsorted(in[0].detach(), in[1].detach(), true, in[2])};
      },
      {draw({4}), draw({3}, 2), ops::argsort(draw({4}))});
  for (const char* mode : {"sum", "mean", "max"})
    same_on_device(
        [&](const Tensors& in) {
          return Tensors{ops::embedding_bag(in[0], in[1], in[2], mode, {}, true, 3)};
        },
        {ids, draw({4, 2}), bags});
  same_on_device(
      [](const Tensors& in) { return Tensors{ops::embedding_bag(in[0], in[1], in[2], "sum", in[3], true)}; },
      {ids, draw({4, 2}), bags, draw({6}, 2)});
  same_on_device(
      [](const Tensors& in) {
        const auto [values, indices] = ops::adaptive_max_pool2d_with_indices(in[0], {2, 3});
        return Tensors{values, indices};
      },
      {draw({1, 2, 5, 4})});
  same_on_device(
      [](const Tensors& in) {
        return Tensors{ops::interpolate(in[0], IntList{3, 2}, {}, "bicubic", {}, false, true)};
      },
      {draw({1, 2, 5, 7})});
  same_on_device(
      [](const Tensors& in) {
        return Tensors{ops::conv3d(in[0], in[1], in[2], {1, 2, 1}, {1, 0, 1})};
      },
      {draw({1, 2, 3, 4, 3}), draw({2, 2, 2, 2, 2}, 2), draw({2}, 3)});
  same_on_device(
      [](const Tensors& in) {
        const Tensor mean = in[1].detach().clone(), var = ops::square(in[1].detach());
        const Tensor y = ops::instance_norm(in[0], mean, var, {}, {}, true, 0.25, 1e-5);
        return Tensors{y, mean, var, ops::instance_norm(in[0].detach(), mean, var, {}, {}, false, 0, 1e-5)};
      },
      {draw({2, 3, 4}), draw({3}, 2)});
  same_on_device(
      [](const Tensors& in) { return Tensors{ops::scatter_reduce(in[0], 1, in[2], in[1], "prod")}; },
      {tensor({{2.0, 0.0, 3.0}}, float64), tensor({{0.0, 1.5, 0.0, 2.0}}, float64), tensor({{0, 1, 0, 0}})});
}

}  // namespace troupe::testing
