// Mixed precision beside PyTorch's (tests/oracle/make_autocast.py).
#include "core/graph/autocast.h"

#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "nn/nn.h"
#include "ops/dispatch/cast_call.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;
using Catch::Contains;
using testing::text_of;

namespace {

TEST_CASE("products take halves, parameters and their gradients stay as they are") {
  const Tensor w = ops::randn({3, 4}, Generator(1)).requires_grad_(), x = ops::randn({2, 3}, Generator(2));
  Tensor loss;
  {
    const AutocastGuard amp(bfloat16);
    const Tensor y = ops::matmul(x, w);
    CHECK(y.dtype() == bfloat16);
    CHECK(ops::softmax(y, -1).dtype() == bfloat16);
    {
      const NoAutocastGuard off;
      CHECK(ops::matmul(x, w).dtype() == float32);
    }
    CHECK(ops::matmul(x.to(float64), w.to(float64)).dtype() == float64);
    loss = ops::mse_loss(y, ops::matmul(x, w));
    CHECK(loss.dtype() == float32);
    loss = ops::sum(ops::square(y).to(float32));
  }
  CHECK(ops::matmul(x, w).dtype() == float32);
  autograd::backward(loss);
  CHECK(w.grad().dtype() == float32);
  const Tensor half = w.detach().to(bfloat16).requires_grad_();
  autograd::backward(ops::sum(ops::square(ops::matmul(x.to(bfloat16), half)).to(float32)));
  CHECK(ops::equal(w.grad(), half.grad().to(float32)));
}

TEST_CASE("a backward pass computes in the types of its forward pass, wherever it is started") {
  const auto gradients = [](bool forward, bool backward) {
    const Tensor w = ops::randn({5, 4}, Generator(1)).requires_grad_(), x = ops::randn({3, 5}, Generator(2));
    std::optional<AutocastGuard> amp;
    if (forward) amp.emplace(float16);
    const Tensor loss = ops::mean(ops::square(ops::matmul(x, w)).to(float32));
    amp.reset();
    if (backward) amp.emplace(float16);
    autograd::backward(loss);
    return w.grad();
  };
  CHECK(ops::equal(gradients(true, true), gradients(true, false)));
  CHECK(ops::equal(gradients(false, true), gradients(false, false)));
  CHECK_FALSE(ops::equal(gradients(true, false), gradients(false, false)));
}

TEST_CASE("a weight that is used twice is cast once, until it changes or the mode ends") {
  const Tensor w = ops::randn({3, 3}, Generator(1)).requires_grad_(), x = ops::randn({2, 3}, Generator(2));
  const auto cast_of_w = [&] { return kept_cast(w, ops::to); };
  const AutocastGuard amp(bfloat16);
  const Tensor first = cast_of_w();
  CHECK(first.is_same(cast_of_w()));
  { const NoAutocastGuard off; }
  CHECK(first.is_same(cast_of_w()));
  {
    const NoGradGuard off;  // without a history
    CHECK_FALSE(first.is_same(cast_of_w()));
  }
  {
    const AutocastGuard other(float16);
    CHECK(cast_of_w().dtype() == float16);
  }
  w.detach().fill_(2);  // as an optimizer does
  CHECK(cast_of_w().to_vector<float>()[0] == 2);
  CHECK(ops::matmul(x, w).to_vector<float>()[0] == ops::matmul(x, w.detach()).to_vector<float>()[0]);
}

TEST_CASE("checkpoints, functions of one's own and modules compute the second time as the first") {
  nn::Sequential net(nn::Linear(4, 8), nn::LayerNorm(8), nn::GELU(), nn::Linear(8, 3));
  const Tensor x = ops::randn({5, 4}, Generator(3));
  const auto gradients = [&](bool again) {
    net.zero_grad();
    Tensor loss;
    {
      const AutocastGuard amp(bfloat16);
      const Tensor y = again ? autograd::checkpoint([&](const Tensor& in) { return net(in); }, x) : net(x);
      loss = ops::sum(ops::square(y.to(float32)));
    }
    autograd::backward(loss);
    Tensors all;
    for (const Tensor& p : net.parameters()) all.push_back(p.grad().clone());
    return all;
  };
  const Tensors once = gradients(false), twice = gradients(true);
  for (size_t i = 0; i < once.size(); ++i) CHECK(ops::equal(once[i], twice[i]));
}

TEST_CASE("rms_norm of halves adds the smallest number of float32, as PyTorch") {
  const Tensor x = full({4}, 1e-3, bfloat16);
  CHECK(ops::rms_norm(x, {4}).to(float32).to_vector<float>()[0] == Approx(0.9453125));
}

TEST_CASE("what autocast refuses is named") {
  CHECK_THAT(text_of([] { AutocastGuard amp(float32); }),
             Contains("computes in bfloat16 or float16, got float32"));
  CHECK(autocast_mode() == Autocast::off);
}

}  // namespace
