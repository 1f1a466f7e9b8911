// Modules and their inputs, and what some steps of training make of them: for tests of devices.
#pragma once
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "nn/make.h"
#include "optim/optimizer_catalog.h"
#include "troupe/troupe.h"

namespace troupe::testing {

inline Tensor some(const Shape& shape, uint64_t seed) {
  Generator g(seed);
  return randn(shape, g);
}

// Its state, then what three steps with an optimizer give.
struct Trained {
  std::vector<double> losses;
  std::map<std::string, Tensor> state;
};

inline Trained train(const Value& spec, const Tensor& input, Device device,
                     const std::string& optimizer = "adamw", DType dtype = float32) {
  Generator g(7);
  const auto module = nn::make(spec);
  module->reset(g);
  if (dtype != float32) module->to(dtype);
  module->to(device);
  module->train();
  manual_seed(11);  // dropout
  const auto steps = optim::make(optimizer, {{"lr", 0.01}}, module->parameters());
  Trained out;
  for (int i = 0; i < 3; ++i) {
    Tensor x = input.to(device);
    if (is_floating(x.dtype())) x = x.to(dtype);
    module->zero_grad();
    const Tensor y = (*module)(x);
    CHECK(y.device() == device);
    const Tensor loss = mean(mul(y, y));
    autograd::backward(loss);
    out.losses.push_back(loss.item());
    steps->step();
  }
  out.state = module->state_dict();
  for (const auto& [name, t] : steps->state()) out.state["optimizer." + name] = t;
  return out;
}

struct ModuleCase {
  std::string module;
  ValueList sizes;
  Tensor input;
  ValueMap named = {};
};

/// Every module that has sizes of its own.
inline std::vector<ModuleCase> module_cases() {
  const auto n = [](int64_t x) { return Value(x); };
  const Tensor rows = some({4, 6}, 1), images = some({2, 4, 6, 6}, 2), texts = some({2, 5, 8}, 3);
  const Tensor ids = tensor({{1, 3, 0}, {2, 2, 1}});
  std::vector<ModuleCase> all = {
      {"linear", {n(6), n(3)}, rows},
      {"conv2d", {n(4), n(3), n(3)}, images, {{"padding", n(1)}}},
      {"conv_transpose1d", {n(4), n(3), n(3)}, some({2, 4, 6}, 2)},
      {"conv3d", {n(4), n(3), n(2)}, some({2, 4, 3, 3, 3}, 2)},
      {"instance_norm2d", {n(4)}, images, {{"affine", true}, {"track_running_stats", true}}},
      {"layer_norm", {n(6)}, rows},
      {"rms_norm", {n(6)}, rows},
      {"batch_norm2d", {n(4)}, images},
      {"group_norm", {n(2), n(4)}, images},
      {"embedding", {n(4), n(3)}, ids},
      {"embedding_bag", {n(4), n(3)}, ids},
      {"dropout", {}, rows},
      {"relu", {}, rows},
      {"gelu", {}, rows},
      {"multihead_attention", {n(8), n(2)}, texts},
      {"transformer_encoder_layer", {n(8), n(2), n(16), Value(0.0)}, texts},
      {"lstm", {n(8), n(4)}, texts},
      {"gru", {n(8), n(4)}, texts},
  };
  return all;
}

}  // namespace troupe::testing
