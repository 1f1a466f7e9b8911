// Factorizations of matrices of a device that the host cannot touch.
#include "ops/linalg.h"

#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tests/support/null_device.h"

using namespace troupe;

namespace {

TEST_CASE("on another device they go by way of the host") {
  testing::install_null_device();
  const Tensor a = ops::randn({3, 3}, Generator(1), float64), there = a.to(testing::null0).requires_grad_(),
               here = a.clone().requires_grad_();
  for (const Tensor* x : {&there, &here})
    autograd::backward(ops::sum(ops::add(ops::linalg_inv(*x), ops::linalg_qr(*x).q)));
  CHECK(ops::linalg_inv(there).device() == testing::null0);
  CHECK(bit_equal(there.grad(), here.grad()));
}

}  // namespace
