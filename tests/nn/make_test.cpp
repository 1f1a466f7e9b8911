// Modules by name: every one is built and trained, specifications, and what is refused.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

#include "autograd/autograd.h"
#include "nn/make.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/places.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

std::string said(auto f) { return error_of(f).message(); }

const Entry& entry(std::string_view name) {
  for (const auto& m : nn::modules())
    if (m.name == name) return m;
  FAIL("no module " << name);
  std::abort();
}

/// What a module of that name is built with here, and its input.
struct Trial {
  std::string name;
  ValueList arguments;
  Tensor x;
};

std::vector<Trial> trials() {
  Generator g(1);
  const Tensor rows = ops::randn({3, 8}, g), images = ops::randn({2, 4, 6, 6}, g),
               sequence = ops::randn({2, 3, 8}, g), ids = tensor({{0, 2}, {1, 4}});
  const int64_t two = 2, four = 4, five = 5, eight = 8;
  return {{"linear", {eight, four}, rows},
          {"relu", {}, rows},
          {"tanh", {}, rows},
          {"sigmoid", {}, rows},
          {"gelu", {}, rows},
          {"dropout", {0.25}, rows},
          {"silu", {}, rows},
          {"mish", {}, rows},
          {"hardswish", {}, rows},
          {"hardsigmoid", {}, rows},
          {"relu6", {}, rows},
          {"selu", {}, rows},
          {"log_sigmoid", {}, rows},
          {"softsign", {}, rows},
          {"tanhshrink", {}, rows},
          {"leaky_relu", {}, rows},
          {"elu", {}, rows},
          {"celu", {}, rows},
          {"hardtanh", {}, rows},
          {"softplus", {}, rows},
          {"softshrink", {}, rows},
          {"hardshrink", {}, rows},
          {"threshold", {0.1, 2.0}, rows},
          {"glu", {}, rows},
          {"softmax", {int64_t{1}}, rows},
          {"log_softmax", {int64_t{1}}, rows},
          {"softmin", {int64_t{1}}, rows},
          {"prelu", {four}, images},
          {"conv1d", {four, eight, int64_t{3}, two}, ops::flatten(images, 2)},
          {"conv_transpose2d", {four, two, int64_t{3}, two}, images},
          {"conv_transpose1d", {four, two, int64_t{3}, two}, ops::flatten(images, 2)},
          {"conv3d",
           {four, two, int64_t{3}, int64_t{1}, ValueList{int64_t{1}, int64_t{0}, int64_t{1}}},
           ops::unsqueeze(images, 2)},
          {"instance_norm1d", {four}, ops::flatten(images, 2)},
          {"instance_norm2d", {four}, images},
          {"instance_norm3d", {four}, ops::unsqueeze(images, -1)},
          {"adaptive_avg_pool2d", {Value(ValueList{int64_t{4}, int64_t{1}})}, images},
          {"adaptive_max_pool2d", {two}, images},
          {"pixel_shuffle", {two}, images},
          {"identity", {}, rows},
          {"batch_norm1d", {eight}, rows},
          {"batch_norm3d", {four}, ops::unsqueeze(images, -1)},
          {"rnn", {eight, five, two, std::string("relu")}, sequence},
          {"conv2d", {four, eight, int64_t{3}, two, ValueList{int64_t{1}, int64_t{0}}}, images},
          {"max_pool2d", {two}, images},
          {"avg_pool2d", {ValueList{int64_t{3}, two}, int64_t{1}}, images},
          {"flatten", {}, images},
          {"embedding", {five, eight}, ids},
          {"embedding_bag", {five, eight, std::string("sum")}, ids},
          {"layer_norm", {eight}, rows},
          {"rms_norm", {ValueList{int64_t{3}, eight}, 1e-6}, rows},
          {"group_norm", {two, four}, images},
          {"batch_norm2d", {four}, images},
          {"multihead_attention", {eight, two}, sequence},
          {"transformer_encoder_layer", {eight, two, eight, 0.0}, sequence},
          {"lstm", {eight, five}, sequence},
          {"gru", {eight, five, two}, sequence},
          {"sequential", {std::string("tanh"), std::string("relu")}, rows}};
}

bool same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.to_vector<float>() == b.to_vector<float>();
}

/// Losses of three steps by plain gradient descent.
std::vector<double> losses(nn::Layer& net, const Tensor& x) {
  std::vector<double> out;
  for (int step = 0; step < 3; ++step) {
    const Tensor loss = ops::mean(ops::square(net(x)));
    autograd::backward(loss);
    for (const Tensor& p : net.parameters()) p.detach().sub_(ops::mul(p.grad(), 0.1));
    net.zero_grad();
    out.push_back(loss.item());
  }
  return out;
}

}  // namespace

TEST_CASE("every module of the table is built by name, and computes forward and backward") {
  std::set<std::string> tried;
  for (const Trial& t : trials()) {
    INFO(t.name);
    tried.insert(t.name);
    const Value spec = nn::spec_of(t.name, t.arguments);
    const auto module = nn::make(spec);
    ValueMap named = *spec.get_if<ValueMap>();
    named.erase("module");
    CHECK(text_of(nn::spec_of(t.name, {}, named)) == text_of(spec));
    Tensor x = t.x;
    if (is_floating(x.dtype())) x.requires_grad_(true);
    autograd::backward(ops::sum(ops::square((*module)(x))));
    if (is_floating(x.dtype())) CHECK(x.grad().defined());
    for (const auto& [name, p] : module->named_parameters()) {
      INFO(name);
      CHECK(p.grad().defined());
    }
  }
  for (const auto& m : nn::modules()) {
    INFO(m.signature());
    CHECK(tried.count(m.name) == 1);
    CHECK(!m.text.empty());
    CHECK(m.text.find('\n') == std::string::npos);
  }
  CHECK(entry("linear").signature() ==
        "linear(in: int64, out: int64, bias: bool = true, dtype: dtype = \"float32\")");
  CHECK(
      entry("max_pool2d").signature() ==
      "max_pool2d(kernel: int64 or list of 2, stride: optional int64 or list of 2 = none, padding: int64 or "
      "list of 2 = 0, dilation: int64 or list of 2 = 1, ceil_mode: bool = false)");
}

TEST_CASE("no layer of nn's headers is missing from the table") {
  std::set<std::string> known, found;
  const auto plain = [](std::string name) {
    std::erase(name, '_');
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    return name;
  };
  for (const auto& m : nn::modules()) known.insert(plain(m.name));
  const std::regex layer(
      "(?:class|struct) (\\w+) (final )?: (?:public )?(Layer|Recurrent|Pool2d|BatchNorm2d|InstanceNorm2d)\\b");
  for (const auto& file : std::filesystem::directory_iterator(std::string(testing::kSourceFolder) + "/nn")) {
    if (file.path().extension() != ".h") continue;
    std::stringstream text;
    text << std::ifstream(file.path()).rdbuf();
    const std::string all = text.str();
    for (std::sregex_iterator at(all.begin(), all.end(), layer), end; at != end; ++at)
      if (!std::set<std::string>{"Recurrent", "Pool2d", "AnyLayer"}.contains((*at)[1]))  // what several share, or hold
        found.insert(plain((*at)[1]));
  }
  CHECK(known == found);
}

TEST_CASE("a network from a specification is the one written in C++, bit for bit") {
  Generator g(3);
  const Tensor x = ops::randn({5, 6}, g);
  manual_seed(11);
  nn::Sequential written;
  written.add(nn::Linear(6, 16))
      .add(nn::ReLU())
      .add(nn::Linear(16, 16))
      .add(nn::GELU())
      .add(nn::Linear(16, 2));
  manual_seed(11);
  const auto named = nn::make(nn::spec_of(
      "sequential", {nn::spec_of("linear", {int64_t{6}, int64_t{16}}), std::string("relu"),
                     ValueMap{{"module", std::string("linear")}, {"in", int64_t{16}}, {"out", 16.0}},
                     std::string("gelu"), nn::spec_of("linear", {int64_t{16}, int64_t{2}})}));
  CHECK(same((*named)(x), written(x)));
  // Linear and ReLU are one operator in both.
  const auto first = [&](nn::Layer& net) {
    return static_cast<nn::Sequential&>(net).slice(0, 2)(x).grad_fn().node->name();
  };
  CHECK(first(*named) == first(written));
  CHECK_THAT(first(written), Contains("linear_relu"));
  CHECK(losses(*named, x) == losses(written, x));
  const auto a = named->state_dict(), b = written.state_dict();
  REQUIRE(a.size() == b.size());
  for (const auto& [name, t] : a) CHECK(same(t, b.at(name)));
}

TEST_CASE("a specification has every parameter, and a sequential those of its layers") {
  CHECK(text_of(nn::spec_of("linear", {int64_t{784}}, {{"out", 128.0}})) ==
        "{bias = true, dtype = \"float32\", in = 784, module = \"linear\", out = 128}");
  CHECK(
      text_of(nn::spec_of("sequential", {std::string("relu"), ValueList{std::string("tanh")}})) ==
      "{layers = [{module = \"relu\"}, {layers = [{module = \"tanh\"}], module = \"sequential\"}], module = "
      "\"sequential\"}");
  CHECK(text_of(nn::spec_of("sequential")) == "{layers = [], module = \"sequential\"}");
  CHECK(text_of(nn::spec_of("sequential", {}, {{"layers", ValueMap()}})) ==
        "{layers = [], module = \"sequential\"}");
  CHECK(nn::make(std::string("relu"))->str() == nn::ReLU().str());
  CHECK(nn::make(ValueList{std::string("relu"), std::string("tanh")})->children().size() == 2);
}

TEST_CASE("specifications that fit no module are refused, with what to write") {
  const std::string linear = entry("linear").signature();
  const ValueMap map{{"module", std::string("linear")}, {"in", int64_t{2}}};
  CHECK(said([] { nn::make(std::string("linaer")); }) ==
        "[nn] unknown module \"linaer\"; did you mean \"linear\"?");
  CHECK(said([] { nn::make(std::string("linear")); }) == "linear needs \"in\": " + linear);
  CHECK(said([&] { nn::make(map); }) == "linear needs \"out\": " + linear);
  CHECK(said([] {
          nn::spec_of("linear", {int64_t{1}, int64_t{2}}, {{"biass", true}});
        }) == "linear has no parameter \"biass\"; did you mean \"bias\"?: " + linear);
  CHECK(said([] {
          nn::make(nn::spec_of("linear", {int64_t{1}, std::string("x")}));
        }) == "linear: out: expected int64, got string: " + linear);
  CHECK_THAT(said([] {
               nn::make(nn::spec_of("linear", {int64_t{1}, int64_t{2}, true, std::string("half")}));
             }),
             Contains("linear: dtype: expected the name of a dtype (float32, ") && Contains("got \"half\""));
  CHECK_THAT(said([] {
               nn::make(nn::spec_of("conv2d", {int64_t{1}, int64_t{2}, ValueList{int64_t{1}}}));
             }),
             Contains("conv2d: kernel: expected int64 or list of 2, got list of 1"));
  CHECK_THAT(said([] {
               nn::make(ValueMap{{"in", int64_t{1}}});
             }),
             Contains("a module is described by its name") && Contains("got {in = 1}"));
  CHECK_THAT(said([] { nn::make({}); }), Contains("a module is described by its name"));
  CHECK_THAT(said([] { nn::make(ValueList{int64_t{1}}); }), Contains("got int64"));
  CHECK_THAT(said([] {
               nn::make(ValueMap{{"module", std::string("sequential")}, {"layers", std::string("relu")}});
             }),
             Contains("sequential: layers: expected a list, got string"));
  CHECK_THAT(said([] { nn::spec_of("sequential", {std::string("rleu")}); }),
             Contains("did you mean \"relu\"?"));
  for (const int64_t size : {int64_t{0}, int64_t{-1}, int64_t{1} << 62})
    CHECK_THROWS_AS(nn::make(nn::spec_of("linear", {size, size})), Error);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const char* cells : {"lstm", "gru"})
    for (const auto& [hidden, layers] : {std::pair{kMost, int64_t{1}}, {int64_t{2}, kMost}})
      CHECK_THAT(said([&] {
                   nn::make(nn::spec_of(cells, {int64_t{2}, hidden, layers}));
                 }),
                 Contains("more than can be made"));
  Value deep = std::string("relu");
  for (int i = 0; i < 5000; ++i) {  // moved in: a braced list copies all that is below
    ValueList around(1);
    around[0] = std::move(deep);
    deep = std::move(around);
  }
  CHECK_THAT(said([&] { nn::make(deep); }), Contains("nested more than 100 deep"));
  CHECK_THAT(said([&] { nn::spec_of("sequential", {deep}); }), Contains("nested more than 100 deep"));
  nn::Sequential net;
  CHECK_THAT(said([&] { net.add(std::shared_ptr<nn::Layer>()); }), Contains("needs a layer"));
}
