// The operator of docs/contributing/add-an-operator.md is there, and does what the page says of it.
#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "ops/ops.h"

using namespace troupe;

namespace {

TEST_CASE("the operator that the guide adds works", "[ops]") {
  REQUIRE(ops::find_op("cube") == &ops::kCube);
  Tensor x = tensor({-1, 0, 2}, float64);
  x.requires_grad_();
  const Tensor y = ops::cube(x);
  CHECK(y.to_vector<double>() == std::vector<double>{-1, 0, 8});
  autograd::backward(y.sum());
  CHECK(x.grad().to_vector<double>() == std::vector<double>{3, 0, 12});
}

}  // namespace
