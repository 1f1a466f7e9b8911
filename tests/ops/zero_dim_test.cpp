// 0-d tensors, indices and sources where one dimension is expected; roll without dimensions.
#include <catch2/catch.hpp>

#include "autograd/gradcheck.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;

namespace {

using Values = std::vector<double>;

Values values(const Tensor& t) { return t.to_vector<double>(); }

TEST_CASE("a 0-d tensor counts as one of one element where it is indexed") {
  const Tensor s = tensor(3., float64), five = tensor(5., float64), fives = tensor({5.}, float64);
  for (const Tensor& index : {tensor(0), tensor({0})}) {
    INFO("index " << index.summary());
    for (const Tensor& source : {five, fives}) {
      INFO("source " << source.summary());
      CHECK(values(ops::index_copy(s, 0, index, source)) == Values{5});
      CHECK(ops::index_copy(s, 0, index, source).shape() == Shape{});
      CHECK(values(ops::index_copy(zeros({3}, float64), 0, index, source)) == Values{5, 0, 0});
      CHECK(values(ops::scatter_add(s, 0, index, source)) == Values{8});
      CHECK(ops::scatter_add(s, -1, index, source).shape() == Shape{});
      CHECK(values(ops::scatter_add(zeros({3}, float64), 0, index, source)) == Values{5, 0, 0});
    }
    CHECK(ops::gather(s, 0, index).shape() == index.shape());
    CHECK(ops::gather(zeros({3}), 0, index).shape() == index.shape());
    CHECK(ops::index_select(s, 0, index).shape() == Shape{});
    CHECK(values(ops::index_add(s, 0, index, five)) == Values{8});
  }
  const auto checked = autograd::gradcheck(
      [](const Tensors& x) {
        return ops::index_copy(x[0], 0, tensor(0), x[1]) * ops::scatter_add(x[0], 0, tensor({0}), x[1]);
      },
      {tensor(3., dtype(float64).requires_grad()), tensor(5., dtype(float64).requires_grad())});
  INFO(checked.text);
  CHECK(checked.ok);
  CHECK_THAT(testing::invalid_text([&] {
               ops::index_copy(s, 0, tensor({0, 0}), five);
             }),
             Catch::Contains("[index_copy] input 2 has shape [1], expected [2]"));
}

TEST_CASE("roll without dims moves all elements in their order, and needs shifts") {
  CHECK(values(ops::roll(tensor({{1, 2}, {3, 4}}), 1)) == Values{4, 1, 2, 3});
  CHECK(values(ops::roll(tensor(7), 10)) == Values{7});
  CHECK(ops::roll(tensor(7), 10).shape() == Shape{});
  CHECK(testing::invalid_text([] { ops::roll(tensor({1, 2}), {}); }) == "[roll] needs shifts, got []");
  CHECK(testing::invalid_text([] {
          ops::roll(tensor({1, 2}), {1, 2});
        }) == "[roll] [1, 2] shifts for [] dims");
}

}  // namespace
