// The layers and the initial values.
#include <catch2/catch.hpp>
#include <cmath>

#include "autograd/autograd.h"
#include "core/base/error.h"
#include "nn/mixed_heads.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/support/near.h"

using namespace troupe;
using Catch::Contains;
using Values = std::vector<double>;

namespace {

struct Range {
  double low, high, mean, deviation;
};

Range range(const Tensor& t) {
  const auto v = t.to_vector<double>();
  Range r{v[0], v[0], 0, 0};
  for (double x : v) r.low = std::min(r.low, x), r.high = std::max(r.high, x), r.mean += x / double(v.size());
  for (double x : v) r.deviation += (x - r.mean) * (x - r.mean) / double(v.size());
  r.deviation = std::sqrt(r.deviation);
  return r;
}

}  // namespace

TEST_CASE("linear is x times weight transposed plus bias, over any leading dimensions") {
  nn::Linear fc(2, 3, true, float64);
  fc.weight.detach().copy_(tensor({{1, 2}, {3, 4}, {5, 6}}, float64));
  fc.bias.detach().copy_(tensor({10, 20, 30}, float64));
  CHECK(fc(tensor({{1, -1}}, float64)).to_vector<double>() == Values{9, 19, 29});
  CHECK(fc(zeros({2, 5, 2}, float64)).shape() == Shape{2, 5, 3});
  const auto report = autograd::gradcheck(
      [](const Tensors& in) {
        nn::Linear layer(2, 3, true, float64);
        layer.weight = in[1], layer.bias = in[2];
        return layer(in[0]);
      },
      {tensor({{1, 2}, {3, 4}}, float64), fc.weight.detach(), fc.bias.detach()});
  INFO(report.text);
  CHECK(report.ok);
}

TEST_CASE("Linear and ReLU or GELU in a Sequential give the results and gradients of the layers one by one") {
  nn::Linear linear(5, 7);
  nn::ReLU relu;
  nn::GELU gelu;
  nn::Sequential net(linear, relu), smooth(linear, gelu);
  Generator random(3);
  const Tensor x = ops::randn({4, 5}, random);
  const auto gradients = [&](const Tensor& y) {
    for (const Tensor& p : linear.parameters()) p.set_grad({});
    autograd::backward(ops::sum(ops::square(y)));
    return Tensors{y, linear.weight.grad(), linear.bias.grad()};
  };
  const Tensors apart = gradients(relu(linear(x))), fused = gradients(net(x));
  for (size_t i = 0; i < apart.size(); ++i) CHECK(bit_equal(apart[i], fused[i]));
  CHECK(net(x).grad_fn().node->name() == "linear_relu");
  const Tensors two = gradients(gelu(linear(x))), one = gradients(smooth(x));
  CHECK(bit_equal(two[0], one[0]));
  for (size_t i = 1; i < two.size(); ++i) CHECK(testing::difference(two[i], one[i], 1e-5, 1e-6) == "");
  CHECK(smooth(x).grad_fn().node->name() == "linear_gelu");
}

TEST_CASE("a linear layer starts uniform in +-1/sqrt(in), from a generator that moves on") {
  Generator random(3), again(3);
  nn::Linear a(400, 100, random), b(400, 100, random), c(400, 100, again);
  const Range r = range(a.weight);
  CHECK(r.low >= -0.05);
  CHECK(r.high <= 0.05);
  CHECK(r.low < -0.0499);
  CHECK(r.high > 0.0499);
  CHECK(std::abs(r.mean) < 1e-3);
  CHECK(std::abs(range(a.bias).high) <= 0.05);
  CHECK(bit_equal(a.weight, c.weight));
  CHECK_FALSE(bit_equal(a.weight, b.weight));
  CHECK(a.weight.requires_grad());
  CHECK(a.bias.requires_grad());
}

TEST_CASE("a linear layer without bias has one parameter, and sizes must be positive") {
  nn::Linear fc(2, 3, false);
  CHECK(fc.parameters().size() == 1);
  CHECK_FALSE(fc.bias.defined());
  CHECK(fc(zeros({1, 2})).shape() == Shape{1, 3});
  CHECK_THROWS_WITH(nn::Linear(0, 3), Contains("[linear] sizes must be at least 1, got in 0, out 3"));
}

TEST_CASE("sequential runs its layers in order and names them by number") {
  nn::Sequential net(nn::Linear(2, 4), nn::ReLU(), nn::Sequential(nn::Linear(4, 1), nn::Tanh()));
  CHECK(net(zeros({3, 2})).shape() == Shape{3, 1});
  CHECK(net.named_parameters()[2].first == "2.0.weight");
  CHECK(net.size() == 3);
  const Tensor x = full({2, 2}, 0.25);
  auto& first = dynamic_cast<nn::Linear&>(net[0]);
  auto& last = dynamic_cast<nn::Sequential&>(net[2]);
  CHECK(bit_equal(net(x), last(ops::relu(first(x)))));
  CHECK(nn::Sequential()(x).is_same(x));
}

TEST_CASE("activations are the operators") {
  const Tensor x = tensor({-1, 0, 2}, float64);
  CHECK(bit_equal(nn::ReLU()(x), ops::relu(x)));
  CHECK(bit_equal(nn::Tanh()(x), ops::tanh(x)));
  CHECK(bit_equal(nn::Sigmoid()(x), ops::sigmoid(x)));
  CHECK(bit_equal(nn::GELU()(x), ops::gelu(x)));
}

TEST_CASE("dropout zeroes a share while training, keeps the mean, and does nothing in use") {
  nn::Dropout drop(0.25, 5), same(0.25, 5);
  Tensor x = full({10000}, 3.0).requires_grad_();
  const Tensor y = drop(x);
  CHECK(bit_equal(y, same(x)));
  CHECK_FALSE(bit_equal(y, drop(x)));
  int zeros = 0;
  for (double v : y.to_vector<double>()) {
    zeros += v == 0;
    CHECK((v == 0 || v == Approx(4)));
  }
  CHECK(std::abs(zeros - 2500) < 250);
  autograd::backward(y.sum());
  CHECK(bit_equal(ops::mul(x.grad(), 3), y.detach()));
  drop.eval();
  CHECK(drop(x).is_same(x));
  CHECK_THROWS_WITH(nn::Dropout(1), Contains("[dropout] the probability must be in [0, 1)"));
  CHECK_THROWS_WITH(nn::Dropout(NAN), Contains("[dropout]"));
}

TEST_CASE("initial values have the bounds and moments that they promise") {
  Generator random(11);
  const Tensor t = empty({100, 50, 2});
  nn::init::uniform_(t, 2, 3, random);
  CHECK(range(t).low >= 2);
  CHECK(range(t).high <= 3);
  nn::init::normal_(t, 1, 2, random);
  CHECK(range(t).mean == Approx(1).margin(0.1));
  CHECK(range(t).deviation == Approx(2).margin(0.1));
  nn::init::constant_(t, 4);
  CHECK(range(t).low == 4);
  CHECK(range(t).high == 4);
  nn::init::xavier_uniform_(t, 1, random);
  CHECK(range(t).high <= std::sqrt(6.0 / 300) * (1 + 1e-6));
  CHECK(range(t).high > std::sqrt(6.0 / 300) * 0.99);
  nn::init::kaiming_uniform_(t, 0, random);
  CHECK(range(t).high <= std::sqrt(6.0 / 100) * (1 + 1e-6));
  CHECK(range(t).high > std::sqrt(6.0 / 100) * 0.99);
  CHECK_THROWS_WITH(nn::init::xavier_uniform_(zeros({3}), 1, random), Contains("at least 2 dimensions"));
  CHECK_THROWS_WITH(nn::init::normal_(t, 0, -1, random), Contains("[normal_]"));
  CHECK_THROWS_WITH(nn::init::uniform_(t, 1, 0, random), Contains("[uniform_]"));
  CHECK_THROWS_WITH(nn::init::constant_(zeros({3}, int64), 1), Contains("needs a floating tensor"));
}

TEST_CASE("normal initial values have their deviations, truncated ones their limits") {
  Generator random(12);
  const Tensor t = empty({200, 50, 2}, float64);
  nn::init::xavier_normal_(t, 2, random);
  CHECK(range(t).deviation == Approx(2 * std::sqrt(2.0 / 500)).epsilon(0.05));
  nn::init::kaiming_normal_(t, std::sqrt(5.0), random);
  CHECK(range(t).deviation == Approx(std::sqrt(2.0 / 6 / 100)).epsilon(0.05));
  nn::init::trunc_normal_(t, 1, 2, -1, 1.5, random);
  CHECK(range(t).low >= -1);
  CHECK(range(t).low < -0.99);
  CHECK(range(t).high <= 1.5);
  CHECK(range(t).high > 1.49);
  // Mean of a normal between -1 and 1/4 deviations.
  const auto density = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); };
  const auto below = [](double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; };
  const double mean = 1 + 2 * (density(-1) - density(0.25)) / (below(0.25) - below(-1));
  CHECK(range(t).mean == Approx(mean).margin(0.02));
  nn::init::ones_(t);
  CHECK(range(t).low == 1);
  nn::init::zeros_(t);
  CHECK(range(t).high == 0);
  CHECK_THROWS_WITH(nn::init::trunc_normal_(t, 0, 1, 2, 1, random), Contains("[trunc_normal_]"));
  CHECK_THROWS_WITH(nn::init::trunc_normal_(t, 0, 1, 20, 21, random), Contains("near the mean"));
}

TEST_CASE("orthogonal initial values have orthonormal rows or columns") {
  Generator random(4);
  for (const Shape& shape : {Shape{5, 12}, Shape{12, 5}, Shape{6, 3, 2}, Shape{1, 4}}) {
    const Tensor t = empty(shape, float64);
    nn::init::orthogonal_(t, 3, random);
    const Tensor m = ops::reshape(t, {shape[0], -1});
    const bool wide = m.size(0) <= m.size(1);
    const Tensor product = wide ? ops::matmul(m, m.transpose(0, 1)) : ops::matmul(m.transpose(0, 1), m);
    for (int64_t r = 0; r < product.size(0); ++r)
      for (int64_t c = 0; c < product.size(1); ++c)
        CHECK(product.alias({}, {}, r * product.size(1) + c).item() == Approx(r == c ? 9 : 0).margin(1e-12));
  }
  CHECK_THROWS_WITH(nn::init::orthogonal_(zeros({3}), 1, random), Contains("at least 2 dimensions"));
}

TEST_CASE("splitmix values do not depend on strides, and are those of the formula") {
  const Tensor t = zeros({2, 3}, float64), turned = zeros({3, 2}, float64).alias({2, 3}, {1, 2}, 0);
  nn::init::splitmix_(t, 5, 0.5);
  nn::init::splitmix_(turned, 5, 0.5);
  CHECK(bit_equal(t, turned));
  // 0.5 (2 u - 1) with u from the generator's published first output for seed 0.
  const Tensor first = zeros({1}, float64);
  nn::init::splitmix_(first, 0, 0.5);
  CHECK(first.item() == 0.5 * (2 * double(0xe220a8397b1dcdafULL >> 11) * 0x1p-53 - 1));
}

TEST_CASE("a generator may be a temporary") {
  Generator kept(5);
  CHECK(bit_equal(ops::rand({3}, Generator(5)), ops::rand({3}, kept)));
  CHECK(bit_equal(nn::Linear(2, 3, Generator(6)).weight, nn::Linear(2, 3, Generator(6)).weight));
}

TEST_CASE("attention with dropout of halves is rounded once") {
  for (const DType t : {bfloat16, float16}) {
    Generator g(5);
    const Tensor x = ops::randn({2, 70, 3 * 2 * 8}, g, t);
    nn::Dropout dropout(0.25, 7), same(0.25, 7);
    const Tensor got = nn::mixed_heads(x, 2, true, dropout);
    CHECK(bit_equal(got, nn::mixed_heads(x.to(float32), 2, true, same).to(t)));
  }
}
