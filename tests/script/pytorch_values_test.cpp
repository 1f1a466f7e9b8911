// Operators by name give what PyTorch gives, with its gradients (tests/oracle/make_by_name.py).
#include <catch2/catch.hpp>
#include <set>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tests/script/by_name.h"
#include "tests/support/near.h"
#include "tests/support/oracle.h"

using namespace troupe;

namespace {

using Json = nlohmann::json;

struct Tolerance {
  double relative, absolute;
};

void check_gradients(const Json& c, const Tensors& in, const Tensors& out, DType dtype, Tolerance t) {
  Tensors roots, wanted, expected;
  const Tensors weights = testing::to_tensors(c.at("weights"), dtype),
                grads = testing::to_tensors(c.at("grads"), dtype);
  Tensors used;
  for (size_t i = 0; i < out.size(); ++i)
    if (weights.at(i).defined()) {
      REQUIRE(out[i].requires_grad());
      roots.push_back(out[i]);
      used.push_back(ops::to(weights[i], out[i].dtype()));
    }
  for (size_t i = 0; i < in.size(); ++i)
    if (grads.at(i).defined()) {
      wanted.push_back(in[i]);
      expected.push_back(grads[i]);
    }
  if (roots.empty() || wanted.empty()) return;
  const Tensors got = autograd::grad(roots, wanted, used);
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("gradient " << i);
    REQUIRE(got[i].defined());
    CHECK(testing::difference(got[i], expected[i], t.relative, t.absolute) == "");
  }
}

void check(const Json& c, DType dtype) {
  const Tolerance t = dtype == float64 ? Tolerance{1e-12, 1e-12} : Tolerance{1e-5, 2e-6};
  Tensors in = testing::to_tensors(c.at("tensors"), dtype);
  const Tensors grads = testing::to_tensors(c.at("grads"));
  for (size_t i = 0; i < in.size(); ++i)
    if (i < grads.size() && grads[i].defined()) in[i].requires_grad_();
  const Tensors out = testing::called_by_name(c, in), expected = testing::to_tensors(c.at("outputs"), dtype);
  REQUIRE(out.size() == expected.size());
  for (size_t i = 0; i < out.size(); ++i) {
    INFO("output " << i);
    if (is_floating(out[i].dtype()) == is_floating(expected[i].dtype()))
      CHECK(testing::difference(ops::to(out[i], expected[i].dtype()), expected[i], t.relative, t.absolute) ==
            "");
    else
      FAIL_CHECK("it is " << out[i].summary() << ", in PyTorch " << expected[i].summary());
  }
  check_gradients(c, in, out, dtype, t);
}

TEST_CASE("operators by name give PyTorch's results and gradients", "[oracle]") {
  const Json file = testing::read_oracle("by_name.json");
  std::set<std::string> seen;
  for (const Json& c : file.at("cases"))
    for (const DType t : {float64, float32}) {
      INFO(c.at("op") << " of " << c.at("args").dump() << " " << c.at("named").dump() << " in " << name(t));
      seen.insert(c.at("op"));
      CHECK_NOTHROW(check(c, t));
    }
  CHECK(seen.size() >= 70);
}

}  // namespace
