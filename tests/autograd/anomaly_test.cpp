// The operator that first made a NaN is named, forward and backward.
#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "core/base/call_frame.h"
#include "core/graph/anomaly.h"
#include "core/graph/node.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/stands_for.h"

using namespace troupe;
using Catch::Contains;

namespace {

Tensor leaf(const std::vector<double>& values) { return tensor(values, float64).requires_grad_(); }

}  // namespace

TEST_CASE("nothing is checked while the mode is off, and the guard ends with its scope") {
  CHECK(anomaly_mode() == Anomaly::off);
  {
    AnomalyGuard on;
    CHECK(anomaly_mode() == Anomaly::nan);
    AnomalyGuard more(Anomaly::inf);
    CHECK(anomaly_mode() == Anomaly::inf);
  }
  CHECK(anomaly_mode() == Anomaly::off);
  CHECK(std::isnan(ops::log(leaf({-1})).item()));
}

TEST_CASE("a NaN in a result names the operator, its inputs and where it is") {
  AnomalyGuard on;
  const Tensor x = leaf({1, -1, -2, 4}).alias({2, 2}, {2, 1}, 0);
  CHECK(testing::text_of([&] { ops::exp(ops::log(x) * 2.0); }) ==
        "[log] result 0 (float64 [2, 2]) has a NaN at [0, 1], and 1 more; inputs: float64 [2, 2]");
  // One that came in from outside is told from one that was made.
  const Tensor bad = tensor({NAN, 1}, float64);
  CHECK_THAT(testing::text_of([&] { ops::add(bad, bad); }),
             Contains("[add]") && Contains("inputs: float64 [2] with a NaN at [0], float64 [2] with"));
}

TEST_CASE("infinities are no error unless asked for") {
  const Tensor zero = leaf({0});
  {
    AnomalyGuard on;
    CHECK(std::isinf(ops::log(zero).item()));
  }
  AnomalyGuard on(Anomaly::inf);
  CHECK_THAT(testing::text_of([&] { ops::log(zero); }), Contains("[log]") && Contains("an infinity at [0]"));
}

TEST_CASE("a NaN that the backward pass makes names the forward step and where it was recorded") {
  Tensor x = leaf({0, 4});
  const std::string what = "Layer::forward on w1 (Layer#0:3)";
  AnomalyGuard on;
  Tensor loss;
  uint64_t step = 0;
  {
    CallFrame f;
    f.actor = testing::stands_for<internal::actors::ActorCell>();
    f.what = &what;
    f.context = 5;
    CallFrameScope scope(f);
    const Tensor root = ops::sqrt(x);  // gradient at 0: infinite; times 0: NaN
    step = root.grad_fn().node->sequence();
    loss = ops::sum(ops::mul(root, ops::mul(root, 0.0)));
  }
  const std::string text = testing::text_of([&] { autograd::backward(loss); });
  CHECK_THAT(text, Contains("[sqrt] backward: the gradient of input 0 (float64 [2]) has a NaN at [0]"));
  CHECK_THAT(text, Contains("inputs of the step: float64 [2]; recorded as step " + std::to_string(step) +
                            " of its thread, in Layer::forward on w1 (Layer#0:3), in context 5"));
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("a step that was recorded before the guard, and a gradient that came with a NaN, say so") {
  Tensor x = leaf({1, 2});
  const Tensor y = ops::exp(x);
  AnomalyGuard on;
  CHECK_THAT(testing::text_of([&] {
               autograd::backward(y, tensor({NAN, 1}, float64));
             }),
             Contains("[exp] backward: the gradient that came for result 0 (float64 [2]) has a NaN at [0]") &&
                 Contains("recorded before the checks were on"));
}

TEST_CASE("the graph is usable after the error, and the checks change no bit") {
  Tensor x = leaf({0.3, 4});
  const auto run = [&] { return autograd::grad({ops::sum(ops::tanh(x) * ops::log(x))}, {x})[0]; };
  const Tensor plain = run();
  AnomalyGuard on;
  CHECK_THAT(testing::text_of([&] { ops::log(ops::neg(x)); }), Contains("[log]"));
  CHECK(bit_equal(run(), plain));
}
