// Operators by name under autocast take and give PyTorch's dtypes, values and gradients
// (tests/oracle/make_autocast.py).
#include <catch2/catch.hpp>
#include <set>

#include "autograd/engine.h"
#include "core/codec/codec.h"
#include "core/graph/autocast.h"
#include "nn/nn.h"
#include "ops/dispatch/cast_call.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "script/operators.h"
#include "tests/script/by_name.h"
#include "tests/support/near.h"
#include "tests/support/oracle.h"

using namespace troupe;

namespace {

using Json = nlohmann::json;

DType dtype_named(const std::string& short_name) {
  return short_name == "bf16"  ? bfloat16
         : short_name == "f16" ? float16
         : short_name == "f64" ? float64
         : short_name == "i64" ? int64
                               : float32;
}

// In its own dtype.
Tensor as_given(const Json& j) {
  if (j.is_null()) return {};
  Json plain = j;
  const DType t = dtype_named(j.at("dtype"));
  plain["dtype"] = "f64";
  return ops::to(testing::to_tensor(plain), t);
}

double tolerance_of(DType t, bool from_halves) {
  return t == bfloat16 ? 2e-2 : t == float16 ? 3e-3 : from_halves ? 1.2e-2 : 1e-5;
}

void compare(const std::string& what, const Tensor& got, const Tensor& expected, bool from_halves) {
  INFO(what);
  REQUIRE(got.defined() == expected.defined());
  if (!got.defined()) return;
  CHECK(name(got.dtype()) == name(expected.dtype()));
  const double t = tolerance_of(expected.dtype(), from_halves);
  CHECK(testing::difference(ops::to(got, float64), ops::to(expected, float64), t, t) == "");
}

void check(const Json& c, const Json& run) {
  Tensors in;
  for (size_t i = 0; i < c.at("tensors").size(); ++i) {
    const DType t = dtype_named(run.at("dtypes").at(i));
    in.push_back(ops::to(as_given(c.at("tensors")[i]), t));
    if (is_floating(t)) in.back() = in.back().detach().requires_grad_();
  }
  Tensors out;
  {
    const AutocastGuard amp(dtype_named(run.at("half")));
    out = testing::called_by_name(c, in);
  }
  if (run.at("outputs").is_null()) return;  // PyTorch refuses these dtypes
  const bool halves = true;
  Tensor sum;
  for (size_t i = 0; i < out.size(); ++i) {
    compare("output", out[i], as_given(run.at("outputs").at(i)), halves);
    if (!out[i].requires_grad()) continue;
    const Tensor one = ops::sum(ops::to(out[i], float32));
    sum = sum.defined() ? ops::add(sum, one) : one;
  }
  if (!sum.defined()) return;
  Tensors wanted, expected;
  for (size_t i = 0; i < in.size(); ++i)
    if (const Tensor g = as_given(run.at("grads").at(i)); g.defined())
      wanted.push_back(in[i]), expected.push_back(g);
  if (wanted.empty()) return;
  const Tensors got = autograd::grad({sum}, wanted);
  for (size_t i = 0; i < got.size(); ++i) compare("gradient", got[i], expected[i], halves);
}

TEST_CASE("under autocast operators give PyTorch's dtypes, values and gradients", "[oracle]") {
  const Json file = testing::read_oracle("autocast.json");
  std::set<std::string> seen;
  for (const Json& c : file.at("cases"))
    for (const Json& run : c.at("runs")) {
      INFO(c.at("op") << " of " << c.at("args").dump() << " in " << run.at("dtypes").dump());
      seen.insert(c.at("op"));
      if (run.at("outputs").is_null()) try {
          check(c, run);
        } catch (const Error&) {
        }
      else
        CHECK_NOTHROW(check(c, run));
    }
  CHECK(seen.size() >= 60);
}

TEST_CASE("the lists for GPUs are PyTorch's", "[oracle]") {
  const Json file = testing::read_oracle("autocast.json");
  const std::map<std::string, ops::Cast> kinds{
      {"half", ops::Cast::half}, {"wide", ops::Cast::wide}, {"widest", ops::Cast::widest}};
  const auto known = script::operators();
  size_t compared = 0;
  for (const auto& [kind, names] : file.at("cuda").items())
    for (const std::string name : names) {
      const bool ours =
          std::any_of(known.begin(), known.end(), [&](const auto& entry) { return entry.name == name; });
      if (!ours || name == "mm" || name == "bmm" || name == "rms_norm")
        continue;  // by matmul; by its own name
      INFO(name);
      const ops::Cast cast = ops::cast_of(name, Device::Kind(1));
      const bool promotes = kind == "widest" && cast == ops::Cast::none;  // by itself
      CHECK((promotes || cast == kinds.at(kind)));
      ++compared;
    }
  CHECK(compared >= 35);
}

TEST_CASE("a model trains under autocast as PyTorch's", "[oracle]") {
  const Json file = testing::read_oracle("autocast.json"), c = file.at("training");
  nn::Sequential net(nn::Linear(6, 8), nn::LayerNorm(8), nn::GELU(), nn::Linear(8, 4));
  std::map<std::string, Tensor> state;
  for (const auto& [name, t] : c.at("state").items()) state[name] = as_given(t);
  net.load_state_dict(state);
  const Tensor x = as_given(c.at("x")), y = as_given(c.at("y"));
  optim::SGD sgd(net.parameters(), {.lr = 0.2, .momentum = 0.9});
  for (const double expected : c.at("losses")) {
    sgd.zero_grad();
    Tensor loss;
    {
      const AutocastGuard amp(bfloat16);
      loss = ops::cross_entropy(net(x), y);
    }
    autograd::backward(loss);
    sgd.step();
    CHECK(loss.dtype() == float32);
    CHECK(loss.item() == Approx(expected).epsilon(5e-3));
  }
}

}  // namespace
