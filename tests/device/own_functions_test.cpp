// Functions and operators of a program on the null device.
#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "autograd/function.h"
#include "core/tensor/elements.h"
#include "ops/dispatch/check.h"
#include "ops/dispatch/kernel_table.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/null_device.h"

using namespace troupe;

namespace {

using testing::null0, testing::text_of;

void double_it(const ops::Call& c, Tensors& out) { add_elements(out[0], c.in[0], c.in[0]); }

const ops::Op kDoubled{
    .name = "doubled", .shape = ops::floating_unary, .gradient = [](const ops::Backward& b) -> Tensors {
      return {ops::mul(b.grads[0], 2.0)};
    }};

struct Cube : autograd::Function<Cube> {
  static Tensor forward(Ctx& ctx, Tensor x) {
    ctx.save_for_backward({x});
    return ops::mul(ops::square(x), x);
  }
  static Tensors backward(Ctx& ctx, Tensors grads) {
    return {ops::mul(grads[0], ops::mul(ops::square(ctx.saved_tensors()[0]), 3.0))};
  }
};

TEST_CASE("an operator of a program has kernels where they were registered, with gradients") {
  testing::install_null_device();
  Tensor x = tensor({1, -2, 3}, {float64, null0}).requires_grad_();
  CHECK(text_of([&] { ops::apply1(kDoubled, {x}); }) == "[doubled] no kernel for device null:0");
  ops::register_kernel(kDoubled, testing::kNull, double_it);
  const Tensor y = ops::apply1(kDoubled, {x});
  CHECK(y.device() == null0);
  CHECK(y.to_vector<double>() == std::vector<double>{2, -4, 6});
  autograd::backward(ops::sum(ops::square(y)));
  CHECK(x.grad().to_vector<double>() == std::vector<double>{8, -16, 24});
  CHECK(text_of([] { ops::apply1(kDoubled, {zeros({2})}); }) == "[doubled] no kernel for device cpu");
}

TEST_CASE("a function of a program computes where its arguments are, with both derivatives") {
  testing::install_null_device();
  Tensor x = tensor({1, -2, 3}, {float64, null0}).requires_grad_();
  const Tensor g = autograd::grad({ops::sum(Cube::apply(x))}, {x}, {}, {.create_graph = true})[0];
  CHECK(g.device() == null0);
  CHECK(g.to_vector<double>() == std::vector<double>{3, 12, 27});
  autograd::backward(ops::sum(g));
  CHECK(x.grad().to_vector<double>() == std::vector<double>{6, -12, 18});
}

}  // namespace
