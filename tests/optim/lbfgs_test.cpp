// L-BFGS beside PyTorch's (tests/oracle/make_lbfgs.py), its state, and what it refuses.
#include "optim/lbfgs.h"

#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/oracle.h"

using namespace troupe;
using Catch::Contains;
using testing::text_of;

namespace {

using Json = nlohmann::json;

Tensor table(const Json& rows) {
  std::vector<double> all;
  for (const auto& row : rows)
    for (const double v : row) all.push_back(v);
  return tensor(all, float64)
      .reshape({static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())});
}

struct Fit {
  Tensor x, y, w, v;
  int64_t closures = 0;
  double sign = 1;
  Fit(const Json& file, const Json& start) : x(table(file.at("x"))), y(table(file.at("y"))) {
    w = table(start[0]).requires_grad_(), v = table(start[1]).requires_grad_();
  }
  Tensor step(optim::LBFGS& lbfgs) {
    return lbfgs.step([&] {
      ++closures;
      lbfgs.zero_grad();
      const Tensor lack = ops::sub(ops::matmul(ops::tanh(ops::matmul(x, w)), v), y);
      const Tensor loss = ops::mul(ops::mean(ops::square(lack)), sign);
      autograd::backward(loss);
      return loss;
    });
  }
};

optim::LBFGSOptions options_of(const Json& j) {
  optim::LBFGSOptions o;
  o.lr = j.value("lr", o.lr);
  o.max_iter = j.value("max_iter", o.max_iter);
  o.max_eval = j.value("max_eval", o.max_eval);
  o.history_size = j.value("history_size", o.history_size);
  o.strong_wolfe = j.contains("line_search_fn");
  o.maximize = j.value("maximize", false);
  return o;
}

TEST_CASE("L-BFGS makes PyTorch's steps, with as many losses", "[oracle]") {
  const Json file = testing::read_oracle("lbfgs.json");
  for (const Json& c : file.at("cases")) {
    INFO(c.at("options").dump());
    Fit fit(file, c.at("start"));
    fit.sign = c.at("options").value("maximize", false) ? -1 : 1;
    optim::LBFGS lbfgs({fit.w, fit.v}, options_of(c.at("options")));
    for (size_t i = 0; i < c.at("steps").size(); ++i) {
      INFO("step " << i);
      CHECK(fit.step(lbfgs).item() == Approx(c.at("losses")[i].get<double>()).epsilon(1e-9));
      CHECK(testing::difference(fit.w, table(c.at("steps")[i][0]), 1e-7, 1e-9) == "");
      CHECK(testing::difference(fit.v, table(c.at("steps")[i][1]), 1e-7, 1e-9) == "");
    }
    CHECK(fit.closures == c.at("closures"));
  }
}

TEST_CASE("L-BFGS goes on from its state") {
  const Json file = testing::read_oracle("lbfgs.json"), c = file.at("cases")[2];
  Fit one(file, c.at("start")), other(file, c.at("start"));
  optim::LBFGS first({one.w, one.v}, options_of(c.at("options"))),
      second({other.w, other.v}, options_of(c.at("options")));
  one.step(first);
  other.w.detach().copy_(one.w.detach()), other.v.detach().copy_(one.v.detach());
  second.load_state(first.state());
  one.step(first), other.step(second);
  CHECK(bit_equal(one.w.detach(), other.w.detach()));
  auto broken = first.state();
  broken["direction"] = zeros({3});
  CHECK_THAT(text_of([&] { second.load_state(broken); }), Contains("[lbfgs] state direction must be [16]"));
}

TEST_CASE("L-BFGS refuses parameters that are not one vector, and a closure without a loss") {
  const Tensor a = zeros({2}, float64).requires_grad_(), b = zeros({2}).requires_grad_();
  CHECK_THAT(text_of([&] { optim::LBFGS({a, b}); }), Contains("all parameters are one vector"));
  CHECK_THAT(text_of([&] { optim::LBFGS({zeros({2}, bfloat16)}); }), Contains("float32 or float64"));
  CHECK_THAT(text_of([&] { optim::LBFGS({}); }), Contains("no parameters"));
  CHECK_THAT(text_of([&] { optim::LBFGS({a}, {.history_size = 0}); }), Contains("history_size"));
  CHECK_THAT(text_of([&] { optim::LBFGS({a}).step([] { return Tensor(); }); }),
             Contains("a tensor of one element"));
}

}  // namespace
