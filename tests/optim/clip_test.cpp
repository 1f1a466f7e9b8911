// Clipping, and the scaling of losses.
#include <catch2/catch.hpp>
#include <cmath>

#include "autograd/autograd.h"
#include "core/base/error.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::optim;
using Catch::Contains;
using testing::error_of;
using testing::text_of;
using Values = std::vector<double>;

namespace {

Tensor param(const Values& values) { return tensor(values, float64).requires_grad_(); }

}  // namespace

TEST_CASE("clipping by norm takes all gradients as one vector") {
  Tensor a = param({0, 0}), b = param({0}), none = param({1});
  a.set_grad(tensor({2, -4}, float64));
  b.set_grad(tensor({4}, float64));
  const Tensor before = a.grad();
  CHECK(clip_grad_norm_({a, none, b}, 7) == 6);
  CHECK(a.grad().is_same(before));  // short enough
  CHECK(clip_grad_norm_({a, none, b}, 3) == 6);
  const double scale = 3 / (6 + 1e-6);
  CHECK(a.grad().to_vector<double>() == Values{2 * scale, -4 * scale});
  CHECK(b.grad().item() == 4 * scale);
  CHECK_FALSE(none.grad().defined());
  CHECK(before.to_vector<double>() == Values{2, -4});
  CHECK(clip_grad_norm_({a, b}, 1, {.largest = true}) == 4 * scale);
  CHECK(b.grad().item() == Approx(1).epsilon(1e-6));
  CHECK(clip_grad_norm_({}, 1) == 0);
}

TEST_CASE("a gradient that two parameters share, or that is expanded, is scaled once") {
  Tensor a = param({0, 0}), b = param({0, 0});
  const Tensor shared = tensor({3}, float64).alias({2}, {0}, 0);
  a.set_grad(shared), b.set_grad(shared);
  CHECK(clip_grad_norm_({a, b}, 3) == 6);
  CHECK(a.grad().to_vector<double>()[1] == Approx(1.5));
  CHECK(b.grad().to_vector<double>()[1] == Approx(1.5));
}

TEST_CASE("a norm that is not finite leaves gradients alone, or is an error") {
  for (const double bad : {HUGE_VAL, static_cast<double>(NAN)}) {
    Tensor a = param({0, 0});
    a.set_grad(tensor({bad, 5}, float64));
    CHECK_FALSE(std::isfinite(clip_grad_norm_({a}, 1)));
    CHECK_FALSE(std::isfinite(clip_grad_norm_({a}, 1, {.largest = true})));
    CHECK(a.grad().to_vector<double>()[1] == 5);
    CHECK(error_of([&] { clip_grad_norm_({a}, 1, {.error_if_nonfinite = true}); }).kind() ==
          ErrorKind::failed);
  }
  CHECK_THAT(text_of([] { clip_grad_norm_({}, -1); }),
             Contains("[clip_norm] max_norm must be at least 0, got -1"));
  CHECK_THAT(text_of([] { clip_grad_norm_({}, NAN); }), Contains("got nan"));
}

TEST_CASE("clipping by value limits each element, of .grad and of gradients elsewhere") {
  Tensor a = param({0, 0, 0, 0});
  a.set_grad(tensor({2, -3, 0.5, NAN}, float64));
  clip_grad_value_({a}, 1);
  const Values got = a.grad().to_vector<double>();
  CHECK(Values(got.begin(), got.begin() + 3) == Values{1, -1, 0.5});
  CHECK(std::isnan(got[3]));
  Tensors grads{Tensor(), tensor({2, -3}, float32)};
  clip_value_(grads, 2.5);
  CHECK(grads[1].to_vector<double>() == Values{2, -2.5});
  CHECK(clip_norm_(grads, 1) == Approx(std::sqrt(4 + 6.25)));
  CHECK(total_norm(grads) == Approx(1).epsilon(1e-6));
  CHECK_THAT(text_of([&] { clip_value_(grads, -2); }), Contains("[clip_value] the limit must be at least 0"));
}

TEST_CASE("a scaled loss gives the same step") {
  Tensor p = param({1, 2}), q = param({1, 2});
  SGD plain({p}, {.lr = 0.1}), other({q}, {.lr = 0.1});
  LossScaler scaler;
  const auto loss = [](const Tensor& x) { return ops::sum(ops::mul(ops::square(x), x)); };
  autograd::backward(loss(p));
  autograd::backward(scaler.scale(loss(q)));
  CHECK(q.grad().to_vector<double>()[0] == 3 * 65536);
  CHECK(scaler.unscale_(other));
  CHECK(bit_equal(q.grad(), p.grad()));  // a power of two
  CHECK_THAT(text_of([&] { scaler.unscale_(other); }), Contains("unscaled already"));
  plain.step();
  CHECK(scaler.step(other));
  CHECK(bit_equal(p, q));
  CHECK_THAT(text_of([&] { scaler.step(other); }), Contains("has stepped already"));
}

TEST_CASE("steps with infinite gradients are left out and lower the scale, and good ones raise it") {
  Tensor p = param({1}), q = param({1});
  SGD a({p}, {.lr = 1}), b({q}, {.lr = 1});
  LossScaler scaler({.init_scale = 8, .growth_factor = 4, .backoff_factor = 0.25, .growth_interval = 2});
  const auto iterate = [&](double gradient) {
    p.set_grad(tensor({gradient * scaler.scale()}, float64));
    q.set_grad(tensor({0.25 * scaler.scale()}, float64));
    const bool stepped = scaler.step(a);
    CHECK(scaler.step(b));  // each optimizer by its own gradients
    scaler.update();
    return stepped;
  };
  CHECK(iterate(0.5));
  CHECK(p.item() == 0.5);
  CHECK(scaler.scale() == 8);
  CHECK_FALSE(iterate(HUGE_VAL));
  CHECK(p.item() == 0.5);
  CHECK(q.item() == 0.5);
  CHECK(scaler.scale() == 2);
  CHECK(iterate(0.5));  // the run of good ones starts again
  const auto state = scaler.state();
  CHECK(scaler.scale() == 2);
  CHECK(iterate(0.5));
  CHECK(scaler.scale() == 8);
  CHECK_FALSE(iterate(NAN));
  CHECK(scaler.scale() == 2);
  scaler.load_state(state);
  CHECK(scaler.scale() == 2);
  CHECK(iterate(0));
  CHECK(scaler.scale() == 8);
}

TEST_CASE("loss scalers refuse options and states that make no sense") {
  CHECK_THAT(text_of([] { LossScaler({.init_scale = 0}); }), Contains("init_scale"));
  CHECK_THAT(text_of([] { LossScaler({.growth_factor = 0.5}); }), Contains("growth_factor"));
  CHECK_THAT(text_of([] { LossScaler({.backoff_factor = 0}); }), Contains("backoff_factor"));
  CHECK_THAT(text_of([] { LossScaler({.growth_interval = 0}); }), Contains("growth_interval"));
  LossScaler scaler;
  auto state = scaler.state();
  state["scale"] = tensor(-1, float64);
  CHECK_THAT(text_of([&] { scaler.load_state(state); }), Contains("state scale must be finite and above 0"));
  state.erase("scale");
  CHECK_THAT(text_of([&] { scaler.load_state(state); }), Contains("state scale is missing"));
  CHECK(scaler.scale() == 65536);
}
