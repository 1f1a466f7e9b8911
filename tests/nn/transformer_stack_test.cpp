// Encoders and decoders with masks beside PyTorch's (tests/oracle/make_transformers.py).
#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/oracle.h"

using namespace troupe;
using Catch::Contains;
using testing::text_of;

namespace {

using Json = nlohmann::json;

nn::TransformerEncoderLayerOptions options_of(const Json& j) {
  return {.dim_feedforward = j.at("dim_feedforward"),
          .dropout = j.at("dropout"),
          .activation = j.at("activation"),
          .norm_first = j.at("norm_first"),
          .dtype = float64};
}

Tensor mask_of(const Json& c, const char* name) {
  return c.at("masks").contains(name) ? testing::to_tensor(c.at("masks").at(name)) : Tensor();
}

void take_state(nn::Module& module, const Json& state) {
  const nn::NamedTensors parameters = module.named_parameters();
  REQUIRE(parameters.size() == state.size());
  for (const auto& [name, p] : parameters) p.detach().copy_(testing::to_tensor(state.at(name)));
}

TEST_CASE("stacks of layers with masks are PyTorch's, with its names") {
  const Json file = testing::read_oracle("transformers.json");
  const int64_t width = file.at("width"), heads = file.at("heads"), layers = file.at("layers");
  for (const Json& c : file.at("cases")) {
    INFO(c.at("module") << " " << c.at("options").dump() << " " << c.at("masks").dump());
    const nn::AttentionMasks target{mask_of(c, "target"), mask_of(c, "target_padding")};
    const Tensor x = testing::to_tensor(c.at("x"));
    Tensor y;
    if (c.at("module") == "encoder") {
      nn::TransformerEncoder net(width, heads, layers, options_of(c.at("options")), c.at("norm"));
      take_state(net, c.at("state"));
      y = net(x, target);
    } else {
      nn::TransformerDecoder net(width, heads, layers, options_of(c.at("options")), c.at("norm"));
      take_state(net, c.at("state"));
      y = net(x, testing::to_tensor(c.at("memory")), {target, {Tensor(), mask_of(c, "memory_padding")}});
    }
    CHECK(testing::difference(y, testing::to_tensor(c.at("output")), 1e-11, 1e-11) == "");
  }
}

TEST_CASE("a causal layer with masks sees what neither hides, and dropout is of the same weights") {
  nn::MultiheadAttention causal(4, 2, {.causal = true, .dtype = float64}), plain(4, 2, {.dtype = float64});
  plain.load_state_dict(causal.state_dict());
  const Tensor x = ops::randn({2, 3, 4}, Generator(1), float64);
  const Tensor padding = tensor({{false, true, false}, {false, false, false}});
  const Tensor later = ops::triu(ones({3, 3}), 1).to(boolean);
  CHECK(testing::difference(causal(x, x, x, {{}, padding}), plain(x, x, x, {later, padding}), 1e-12, 1e-12) ==
        "");
  const auto refused = [&](const nn::AttentionMasks& m) { return text_of([&] { plain(x, x, x, m); }); };
  CHECK_THAT(refused({zeros({2, 3})}), Contains("attn_mask is float32 [2, 3], expected [3, 3] or [4, 3, 3]"));
  CHECK_THAT(refused({{}, zeros({3, 2})}), Contains("key_padding_mask is float32 [3, 2], expected [2, 3]"));
  CHECK_THAT(refused({zeros({3, 3}, int64)}), Contains("must be bool or floating"));
  CHECK_THAT(text_of([] { nn::TransformerEncoder(4, 2, 0); }), Contains("needs 1 to 10000 layers, got 0"));
}

TEST_CASE("a decoder trains through its memory, with dropout and masks") {
  nn::TransformerDecoder net(4, 2, 1, {.dim_feedforward = 8, .dropout = 0.3, .causal = true});
  const Tensor x = ops::randn({2, 3, 4}, Generator(1)),
               memory = ops::randn({2, 5, 4}, Generator(2)).requires_grad_();
  const Tensor hidden = tensor({{false, false, false, false, true}, {false, false, false, true, true}});
  autograd::backward(ops::sum(ops::square(net(x, memory, {{}, {{}, hidden}}))));
  for (const auto& [name, p] : net.named_parameters()) {
    INFO(name);
    CHECK(p.grad().defined());
  }
  CHECK(ops::all(ops::eq(memory.grad()[1].slice(0, 3), 0)).item<bool>());
}

}  // namespace
