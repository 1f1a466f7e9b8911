// States are lazy copies: they stay what they were while training goes on.
#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "core/base/generator.h"
#include "core/graph/copy_on_write.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "optim/optimizer_catalog.h"

using namespace troupe;

namespace {

using Named = std::map<std::string, Tensor>;

Named deep(const Named& state) {
  Named out;
  for (const auto& [name, t] : state) out[name] = t.clone_data();
  return out;
}

void same_bits(const Named& a, const Named& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, t] : a) {
    INFO(name);
    CHECK(bit_equal(t, b.at(name)));
  }
}

struct TrainedNet final : nn::Module {
  nn::Embedding words{50, 24};
  nn::BatchNorm2d norm{24};
  nn::Linear out{24, 3};
  void members(nn::Members& m) override { m("words", words), m("norm", norm), m("out", out); }
};

}  // namespace

TEST_CASE("a state of an optimizer is as it was, whatever steps come after it") {
  Generator random(3);
  for (const DType dtype : {float32, float64, bfloat16})
    for (const Entry& entry : optim::optimizers()) {
      INFO(entry.name << " of " << name(dtype));
      // Small ones, which a state copies at once, and large ones, which it shares until somebody writes.
      Tensors params;
      for (const int64_t n : {3, 5000})
        params.push_back(ops::to(ops::randn({n, 1}, random), dtype).requires_grad_());
      const auto optimizer = optim::make(entry.name, {}, params);
      const auto step = [&] {
        Tensors grads;
        for (const Tensor& p : params) grads.push_back(ops::to(ops::randn(p.shape(), random), dtype));
        optimizer->step(grads);
      };
      step();
      for (int round = 0; round < 2; ++round) {
        const Named state = optimizer->state(), then = deep(state);
        Named values;
        for (size_t i = 0; i < params.size(); ++i)
          values[std::to_string(i)] = internal::lazy_copy(params[i].detach());
        const Named values_then = deep(values);
        step();
        same_bits(state, then);
        same_bits(values, values_then);
        CHECK_FALSE(bit_equal(params[1].detach(), values_then.at("1")));
      }
    }
}

TEST_CASE("lazy copies of parameters and buffers are as they were while a model trains") {
  Generator random(4);
  TrainedNet net;
  optim::Adam optimizer(net.parameters(), {.lr = 0.1});
  const auto step = [&] {
    Tensor ids = zeros({8}, int64);
    for (int64_t i = 0; i < 8; ++i) ids.data<int64_t>()[i] = static_cast<int64_t>(random.below(50));
    autograd::backward(net.out(ops::reshape(net.norm(ops::reshape(net.words(ids), {8, 24, 1, 1})), {8, 24}))
                           .square()
                           .mean());
    optimizer.step(), optimizer.zero_grad();
  };
  step();
  Named lazy;
  for (const auto& [name, t] : net.state_dict()) lazy[name] = internal::lazy_copy(t);
  const Named then = deep(lazy);
  step();
  same_bits(lazy, then);
  CHECK_FALSE(bit_equal(net.state_dict().at("norm.running_mean"), then.at("norm.running_mean")));
  CHECK_FALSE(bit_equal(net.state_dict().at("words.weight"), then.at("words.weight")));
}
