// What lstm_cell, gru_cell and embedding_bag say about wrong calls, and that steps can be chained.
#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;

namespace {

using Catch::Contains;
using testing::text_of;

TEST_CASE("recurrent cells say which input does not fit") {
  const Tensor x = zeros({2, 3}), h = zeros({2, 4});
  const auto w = [](int64_t rows, int64_t columns) { return zeros({rows, columns}); };
  const Tensor b16 = zeros({16}), b12 = zeros({12});
  const auto lstm = [&](const Tensor& c, const Tensor& w_ih, const Tensor& b_hh) {
    return text_of([&] { ops::lstm_cell(x, h, c, w_ih, w(16, 4), b16, b_hh); });
  };
  CHECK(lstm(h, w(16, 3), b16) == "no error");
  CHECK_THAT(lstm(zeros({3, 4}), w(16, 3), b16), Contains("[lstm_cell] c must be [2, 4]"));
  CHECK_THAT(lstm(h, w(12, 3), b16), Contains("w_ih must be [16, 3]") && Contains("got [12, 3]"));
  CHECK_THAT(lstm(h, w(16, 3), b12), Contains("b_hh must be [16]"));
  CHECK_THAT(text_of([&] { ops::gru_cell(x, h, w(12, 3), w(12, 3), b12, b12); }),
             Contains("[gru_cell] w_hh must be [12, 4]"));
  CHECK_THAT(text_of([&] { ops::gru_cell(zeros({3}), h, w(12, 3), w(12, 4), b12, b12); }),
             Contains("needs input [N, in] and h [N, hidden], got [3] and [2, 4]"));
}

TEST_CASE("a gradient goes through many steps of a cell") {
  Generator g(1);
  Tensor w_ih = ops::randn({8, 2}, g, float64), w_hh = ops::randn({8, 2}, g, float64);
  w_hh.requires_grad_();
  const Tensor b = zeros({8}, float64), x = ops::randn({3, 2}, g, float64);
  const auto loss = [&](const Tensor& weight) {
    ops::LstmState s{zeros({3, 2}, float64), zeros({3, 2}, float64)};
    for (int i = 0; i < 10; ++i) s = ops::lstm_cell(x, s.h, s.c, w_ih, weight, b, b);
    return ops::sum(ops::square(s.h));
  };
  const Tensor got = autograd::grad({loss(w_hh)}, {w_hh})[0];
  const Tensor moved = w_hh.detach().clone();
  constexpr double kStep = 1e-6;
  moved.data<double>()[5] += kStep;
  const double up = loss(moved).item();
  moved.data<double>()[5] -= 2 * kStep;
  CHECK(got.data<double>()[5] == Approx((up - loss(moved).item()) / (2 * kStep)).epsilon(1e-6));
}

TEST_CASE("embedding_bag checks ids and offsets") {
  const Tensor table = tensor({{1}, {2}, {3}}, float64);
  const auto bag = [&](const std::vector<int64_t>& ids, const std::vector<int64_t>& offsets,
                       const char* mode = "sum") {
    return text_of([&] { ops::embedding_bag(tensor(ids), table, tensor(offsets), mode); });
  };
  CHECK_THAT(bag({0, 1}, {1}), Contains("[embedding_bag] offsets must begin with 0, got 1"));
  CHECK_THAT(bag({0, 1}, {0, 3}), Contains("bag 0 goes from 0 to 3"));
  CHECK_THAT(bag({0, 1}, {0, 2, 1}), Contains("bag 1 goes from 2 to 1"));
  CHECK_THAT(bag({0, 1}, {0, -1}), Contains("bag 0 goes from 0 to -1"));
  CHECK_THAT(bag({0, 1}, {}), Contains("no offsets"));
  CHECK_THAT(bag({0, 3}, {0}), Contains("index 3 is out of range for size 3"));
  CHECK_THAT(bag({0}, {0}, "min"), Contains("mode is \"min\", expected sum, mean or max"));
  const Tensor y = ops::embedding_bag(tensor({2, 0, 1}), table, tensor({0, 0, 2}), "mean");
  CHECK(y.to_vector<double>() == std::vector<double>{0, 2, 2});
}

TEST_CASE("options of embedding_bag are refused where they fit nowhere, and int32 numbers are taken") {
  const Tensor table = tensor({{1, 9}, {2, 8}, {3, 7}}, float64), ids = tensor({2, 0, 1}),
               two = tensor({0, 2});
  const auto bag = [&](const char* mode, const Tensor& weights, bool last, std::optional<int64_t> padding) {
    return text_of([&] { ops::embedding_bag(ids, table, two, mode, weights, last, padding); });
  };
  CHECK_THAT(bag("mean", ones({3}, float64), false, {}), Contains("are for mode \"sum\", got \"mean\""));
  CHECK_THAT(bag("sum", ones({2}, float64), false, {}),
             Contains("per_sample_weights must be [3] as the ids"));
  CHECK_THAT(bag("sum", ones({3}), false, {}), Contains("per_sample_weights must be float64 [3]"));
  CHECK_THAT(bag("sum", {}, false, 3), Contains("padding_idx must be in [-3, 3), got 3"));
  CHECK_THAT(text_of([&] {
               ops::embedding_bag(ids, table, tensor({0, 4}), "sum", {}, true);
             }),
             Contains("the last offset is 4"));
  CHECK_THAT(text_of([&] { ops::embedding_bag(ids, table, empty({0}, int64), "sum", {}, true); }),
             Contains("needs at least one offset"));
  const Tensor y = ops::embedding_bag(ids.to(int32), table, two.to(int32), "max", {}, true);
  CHECK(y.to_vector<double>() == std::vector<double>{3, 9});  // the id behind the last offset is in no bag
}

}  // namespace
