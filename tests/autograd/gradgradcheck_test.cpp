// Second derivatives, of functions by hand and of every operator on its samples.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "autograd/gradcheck.h"
#include "core/graph/node.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;

namespace {

// Operators whose second derivative is not what finite differences show, each with the reason.
const std::map<std::string, std::string> kNotTwice = {};

// All floating results as one sum, so that each is reached.
Tensor total(const ops::Op& op, const Tensors& in, const ops::Attrs& attrs) {
  Tensor sum;
  for (const Tensor& t : ops::apply(op, in, attrs)) {
    if (!t.requires_grad()) continue;
    // Squared: a linear operator is then curved, and its gradient rule is differentiated with a gradient that
    // varies.
    const Tensor one = ops::sum(ops::square(t));
    sum = sum.defined() ? ops::add(sum, one) : one;
  }
  return sum;
}

}  // namespace

TEST_CASE("gradgradcheck accepts right second derivatives and names wrong ones") {
  const Tensor x = tensor({0.5, -1, 2}, float64), w = tensor({{1}, {2}, {3}}, float64);
  CHECK(autograd::gradgradcheck([](const Tensors& in) { return ops::pow(in[0], 3.0); }, {x}).ok);
  const auto both = autograd::gradgradcheck(
      [](const Tensors& in) {
        return ops::tanh(ops::matmul(ops::reshape(in[0], {1, 3}), in[1]));
      },
      {x, w});
  CHECK(both.ok);
  CHECK(both.entries == 6);
  CHECK(autograd::gradgradcheck([](const Tensors& in) { return ops::mul(in[0], 3.0); }, {x}).ok);  // linear
  // The second factor's part is cut off: the first derivative is that of x^2, the second one that of a
  // constant.
  const auto wrong = autograd::gradgradcheck(
      [](const Tensors& in) { return ops::mul(ops::mul(in[0], in[0].detach()), 2.0); }, {x});
  CHECK_FALSE(wrong.ok);
  CHECK_THAT(wrong.text, Contains("input 0 (float64 [3])") && Contains("analytic 0"));
  CHECK_THAT(testing::text_of(
                 [&] { autograd::gradgradcheck([](const Tensors& in) { return in[0].detach(); }, {x}); }),
             Contains("has no history"));
}

TEST_CASE("every operator can be differentiated twice, but for those on the list") {
  std::set<std::string> failing;
  for (const ops::Op* op : ops::all_ops()) {
    if (!op->gradient && !op->compose) continue;
    size_t number = 0;
    for (const ops::Sample& s : op->samples()) {
      ++number;
      Tensors in;
      bool floating = false;
      for (const Tensor& t : s.inputs) {
        in.push_back(t.detach());
        if (!is_floating(t.dtype()) || !t.numel()) continue;
        in.back().requires_grad_();
        floating = true;
      }
      if (!floating || !total(*op, in, s.attrs).defined()) continue;
      std::string why;
      try {
        const auto report = autograd::gradgradcheck(
            [&](const Tensors& at) { return total(*op, at, s.attrs); }, in, 1e-5, 1e-5);
        if (!report.ok) why = report.text;
      } catch (const Error& e) {
        why = e.what();
      }
      INFO(op->name << ", sample " << number << ": " << why);
      if (!why.empty()) failing.insert(op->name);
      CHECK((why.empty() || kNotTwice.contains(op->name)));
    }
  }
  for (const auto& [name, reason] : kNotTwice) {
    INFO(name << " (" << reason << ") is on the list of those that cannot, but can");
    CHECK(failing.contains(name));
  }
}
