// Layers as ONNX files: onnxruntime computes what they compute.
#include <catch2/catch.hpp>

#include <filesystem>

#include "data/formats/safetensors.h"
#include "llm/decoder.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/places.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"
#include "troupe/onnx.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;

namespace {

// A layer of a function of one tensor.
struct Computed : nn::Layer {
  explicit Computed(std::function<Tensor(const Tensor&)> f) : f(std::move(f)) {}
  Tensor forward(const Tensor& x) override { return f(x); }
  std::function<Tensor(const Tensor&)> f;
};

struct Language : nn::Layer {
  explicit Language(const llm::DecoderOptions& o) : model(o) {}
  Tensor forward(const Tensor& ids) override { return model(ids); }
  void members(nn::Members& m) override { m("", model); }
  llm::Decoder model;
};

struct Case {
  std::string name;
  std::shared_ptr<nn::Layer> layer;
  Tensor sample;
};

std::shared_ptr<nn::Layer> computed(std::function<Tensor(const Tensor&)> f) {
  return std::make_shared<Computed>(std::move(f));
}

std::vector<Case> cases() {
  manual_seed(4);
  Generator g(5);
  std::vector<Case> all;
  const auto add = [&](const std::string& name, const std::shared_ptr<nn::Layer>& layer, const Tensor& x) {
    all.push_back({name, layer, x});
  };
  add("mlp",
      std::make_shared<nn::Sequential>(nn::Linear(5, 7), nn::ReLU(), nn::Dropout(0.5), nn::Linear(7, 6),
                                       nn::GELU(), nn::Linear(6, 3), nn::Softmax(1)),
      randn({4, 5}, g));
  const auto cnn = std::make_shared<nn::Sequential>(
      nn::Conv2d(2, 6, 3, {.stride = {2, 1}, .padding = {1, 2}}), nn::BatchNorm2d(6), nn::SiLU(),
      nn::MaxPool2d(2, 2, 1), nn::GroupNorm(3, 6),
      nn::Conv2d(6, 6, 3, {.padding = {2, 2}, .dilation = {2, 2}, .groups = 3}), nn::AvgPool2d(2),
      nn::Flatten());
  (*cnn)(randn({8, 2, 12, 11}, g));  // running statistics move
  add("cnn", cnn, randn({2, 2, 12, 11}, g));
  add("encoder",
      std::make_shared<nn::TransformerEncoderLayer>(
          12, 3,
          nn::TransformerEncoderLayerOptions{
              .dim_feedforward = 20, .activation = "gelu", .norm_first = true, .causal = true}),
      randn({2, 7, 12}, g));
  llm::DecoderOptions llama{.vocab_size = 19,
                            .hidden_size = 12,
                            .intermediate_size = 16,
                            .num_hidden_layers = 2,
                            .num_attention_heads = 4,
                            .num_key_value_heads = 2,
                            .head_dim = 4};
  add("llama", std::make_shared<Language>(llama), remainder(arange(10) * 7, 19).reshape({2, 5}));
  llama.sliding_window = 3, llama.attention_softcap = 5, llama.logit_softcap = 3,
  llama.norm_adds_one = llama.qk_norm = llama.post_norms = true;
  add("gemma", std::make_shared<Language>(llama), remainder(arange(10) * 7, 19).reshape({2, 5}));
  add("unary", computed([](const Tensor& x) {
        const Tensor p = abs(x) + 0.5, u = tanh(x) * 0.9;
        return ops::stack({exp(x),
                           log(p),
                           sqrt(p),
                           rsqrt(p),
                           log1p(p),
                           expm1(x),
                           log2(p),
                           log10(p),
                           exp2(x),
                           erf(x),
                           erfc(x),
                           sin(x),
                           cos(x),
                           tan(u),
                           asin(u),
                           acos(u),
                           atan(x),
                           sinh(x),
                           cosh(x),
                           asinh(x),
                           acosh(p + 1),
                           atanh(u),
                           sign(x),
                           floor(x),
                           ceil(x),
                           round(x),
                           trunc(x * 3),
                           neg(x),
                           square(x),
                           reciprocal(p),
                           softplus(x),
                           leaky_relu(x, 0.1),
                           elu(x, 0.7),
                           selu(x),
                           mish(x),
                           hardswish(x),
                           hardsigmoid(x),
                           logsigmoid(x),
                           softsign(x),
                           hardtanh(x, -0.5, 0.7),
                           clamp(x, {}, 0.3),
                           gelu(x, "tanh"),
                           pow(p, 1.7),
                           x / 3.0,
                           softshrink(x, 0.2),
                           celu(x, 0.6)},
                          0);
      }),
      randn({3, 4}, g) * 2.0);
  add("shapes", computed([](const Tensor& x) {
        const Tensor y = x.permute({2, 0, 1}).slice(1, 1, 4, 2),
                     parts = ops::cat({ops::split(x, 2, 2)[1], x}, 2);
        const auto [largest, place] = ops::max(x, 1);
        return ops::cat({y.flatten(), parts.flatten(), ops::pad(x, {1, 2, 0, 1}, "constant", 3.0).flatten(),
                         ops::triu(x).flatten(), ops::cumsum(x, 1).flatten(),
                         ops::expand(x.slice(0, 0, 1), {5, 3, 4}).flatten(), largest.flatten(),
                         place.to(float32).flatten(), where(x > 0.0, x, -1.0).flatten(),
                         ops::gather(x, 2, (x > 0.0).to(int64)).flatten()},
                        0);
      }),
      randn({5, 3, 4}, g));
  add("reductions", computed([](const Tensor& x) {
        return ops::stack(
            {ops::sum(x), ops::mean(x), ops::max(x), ops::min(x), ops::norm(x), ops::logsumexp(x, {0, 1, 2}),
             ops::var(x), ops::std(x), ops::prod(x), ops::sum(ops::amax(x, {1})),
             ops::sum(ops::mean(x, {0, 2}, true)), ops::sum(ops::var(x, {1}, false))},
            0);
      }),
      randn({2, 3, 4}, g));
  return all;
}

}  // namespace

TEST_CASE("onnxruntime computes what a layer computes, of the file that was written") {
  if (std::system("python3 -c 'import onnx, onnxruntime, safetensors, torch' 2>/dev/null") != 0)
    return testing::skip_test("PyPI's onnx and onnxruntime are not installed");
  const testing::Folder folder;
  const NoGradGuard no_grad;
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    const std::string file = (folder.path / c.name).string();
    const bool training = c.layer->training();
    export_onnx(*c.layer, c.sample, file + ".onnx");
    CHECK(c.layer->training() == training);
    c.layer->eval();
    datasets::write_safetensors(file + ".safetensors",
                                {{"input", c.sample}, {"output", (*c.layer)(c.sample)}});
  }
  testing::Process python({"/usr/bin/env", "python3",
                           std::string(testing::kSourceFolder) + "/tests/pytorch/onnx_reads.py",
                           folder.path.string()});
  const int code = python.exit_code();
  INFO(python.output << python.errors);
  CHECK(code == 0);
}

TEST_CASE("layers are written without Python, in use and as they were before") {
  const testing::Folder folder;
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    const std::string file = (folder.path / (c.name + ".onnx")).string();
    export_onnx(*c.layer, c.sample, file, {.input = "x", .output = "y"});
    CHECK(c.layer->training());
    CHECK(std::filesystem::file_size(file) > 200);
  }
}

TEST_CASE("what ONNX has no form for is refused, and nothing is written") {
  const testing::Folder folder;
  const std::string file = (folder.path / "none.onnx").string();
  const auto refused = [&](std::function<Tensor(const Tensor&)> f, const std::string& text) {
    Computed layer(std::move(f));
    CHECK_THAT(error_of([&] { export_onnx(layer, ones({3}), file); }).what(), Catch::Contains(text));
    CHECK(!std::filesystem::exists(file));
  };
  refused([](const Tensor& x) { return ops::sort(x).values; }, "[onnx] the operator sort has no form");
  refused(
      [](const Tensor& x) {
        const Tensor y = x * 2.0;
        ops::add_(y, 1.0);
        return y;
      },
      "writes in place");
  refused([](const Tensor&) -> Tensor { throw_error(ErrorKind::failed, "no luck"); }, "no luck");
  Computed layer([](const Tensor& x) { return x * 2.0; });
  export_onnx(layer, ones({3}), file);  // nothing of what was refused is left
  CHECK(std::filesystem::exists(file));
}
