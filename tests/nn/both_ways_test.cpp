// Recurrent layers in several layers and both ways beside PyTorch's; rows that are padding; batches of lines.
#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "nn/make.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/oracle.h"

using namespace troupe;
using Catch::Contains;
using testing::text_of;

namespace {

Value value_of(const nlohmann::json& j) {
  if (j.is_boolean()) return j.get<bool>();
  if (j.is_number_integer()) return j.get<int64_t>();
  return j.get<std::string>();
}

TEST_CASE("recurrent layers go both ways as PyTorch's, with its names") {
  const auto file = testing::read_oracle("recurrent.json");
  for (const auto& c : file.at("cases")) {
    INFO(c.at("module") << " " << c.at("arguments").dump());
    ValueMap arguments;
    for (const auto& [name, v] : c.at("arguments").items()) arguments[name] = value_of(v);
    const auto net = nn::make(nn::spec_of(c.at("module").get<std::string>(), {}, arguments));
    const nn::NamedTensors parameters = net->named_parameters();
    REQUIRE(parameters.size() == c.at("state").size());
    for (const auto& [name, p] : parameters) p.detach().copy_(testing::to_tensor(c.at("state").at(name)));
    CHECK(testing::difference((*net)(testing::to_tensor(c.at("x"))), testing::to_tensor(c.at("output")),
                              1e-12, 1e-12) == "");
  }
}

TEST_CASE("states of both ways go on from where they were given") {
  nn::LSTM net(3, 2, {.layers = 2, .bidirectional = true, .dtype = float64});
  const Tensor x = ops::randn({4, 5, 3}, Generator(1), float64);
  const auto [output, h, c] = net.run(x);
  CHECK((output.shape() == Shape{4, 5, 4} && h.shape() == Shape{4, 5, 2} && c.shape() == Shape{4, 5, 2}));
  CHECK(testing::difference(h[2], output.select(0, 3).slice(1, 0, 2), 1e-12, 0) == "");
  CHECK(testing::difference(h[3], output.select(0, 0).slice(1, 2), 1e-12, 0) == "");
  CHECK_THAT(text_of([&] {
               net.run(x, zeros({2, 5, 2}, float64), zeros({2, 5, 2}, float64));
             }),
             Contains("expected [4, 5, 2]"));
  CHECK_THAT(net.str(), Contains("2 layers, both ways"));
}

TEST_CASE("dropout between layers is there while training, and never behind the last") {
  manual_seed(1);
  nn::GRU net(3, 4, {.layers = 2, .dropout = 0.5}), one(3, 4, {.dropout = 0.5});
  const Tensor x = ops::randn({3, 2, 3}, Generator(1));
  CHECK_FALSE(bit_equal(net(x), net(x)));
  CHECK(bit_equal(one(x), one(x)));
  net.eval();
  CHECK(bit_equal(net(x), net(x)));
  CHECK_THAT(text_of([] { nn::RNN(2, 2, {.dropout = 1}); }), Contains("dropout must be in [0, 1), got 1"));
  CHECK_THAT(text_of([] { nn::RNN(2, 2, {}, "gelu"); }), Contains("got \"gelu\""));
}

TEST_CASE("a row of padding starts at 0 and has no gradient") {
  nn::Embedding table(4, 3, float64, -2);
  CHECK(ops::all(ops::eq(table.weight.select(0, 2), 0)).item<bool>());
  autograd::backward(ops::sum(table(tensor({2, 1, 2}))));
  CHECK(table.weight.grad().sum(1).to_vector<double>() == std::vector<double>{0, 3, 0, 0});
  CHECK_THAT(text_of([] { nn::Embedding(4, 3, float32, 4); }),
             Contains("padding_idx must be in [-4, 4), got 4"));
}

TEST_CASE("batches of lines and volumes are normalized as images, and others are refused") {
  nn::BatchNorm1d lines(3);
  nn::BatchNorm2d images(3);
  const Tensor x = ops::randn({4, 3, 5}, Generator(1));
  CHECK(bit_equal(lines(x), ops::squeeze(images(ops::unsqueeze(x, 3)), 3)));
  CHECK(bit_equal(lines.running_var, images.running_var));
  CHECK(lines(ops::randn({4, 3}, Generator(1))).shape() == Shape{4, 3});
  CHECK_THAT(text_of([&] {
               lines(zeros({4, 3, 2, 2}));
             }),
             Contains("expected [batch, 3] or [batch, 3, length]"));
  CHECK_THAT(text_of([&] { nn::BatchNorm3d(2)(x); }), Contains("expected [batch, 2, depth, height, width]"));
}

}  // namespace
