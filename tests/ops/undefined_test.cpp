// Every use of an undefined tensor, made without a value or moved from, is an error with a sentence.
#include <catch2/catch.hpp>
#include <functional>

#include "core/graph/node.h"
#include "core/tensor/indexing.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;

namespace {

struct Use {
  const char* text;
  std::function<void(const Tensor& t)> call;
};

#define USE(...)                                                          \
  {                                                                       \
#__VA_ARGS__, [](const Tensor& t) { static_cast<void>(__VA_ARGS__); } \
  }

const Tensor kTwo = zeros({2}), kMask = zeros({2}, boolean), kIndex = zeros({2}, int64);

const std::vector<Use>& uses() {
  static const std::vector<Use> all{
      USE(t.dtype()),
      USE(t.device()),
      USE(t.shape()),
      USE(t.strides()),
      USE(t.dim()),
      USE(t.size(0)),
      USE(t.numel()),
      USE(t.nbytes()),
      USE(t.is_contiguous()),
      USE(t.storage()),
      USE(t.storage_offset()),
      USE(t.is_sole_handle()),
      USE(t.is_exclusive()),
      USE(t.data<float>()),
      USE(t.bytes()),
      USE(t.item()),
      USE(t.to_vector<float>()),
      USE(t.alias({1}, {1}, 0)),
      USE(t.detach()),
      USE(t.clone_data()),
      USE(t.contiguous_data()),
      USE(t.requires_grad()),
      USE(Tensor(t).requires_grad_()),
      USE(Tensor(t).requires_grad_(false)),
      USE(t.is_leaf()),
      USE(t.grad_fn()),
      USE(t.set_grad_fn({})),
      USE(t.set_view_of(kTwo, ViewOrigin::plain)),
      USE(kTwo.set_view_of(t, ViewOrigin::plain)),
      USE(t.gradient_edge()),
      USE(t.grad()),
      USE(t.set_grad({})),
      USE(t.version()),
      USE(t.bump_version("test")),
      // views and copies
      USE(t.transpose(0, 1)),
      USE(t.permute({0})),
      USE(t.reshape({1})),
      USE(t.view({1})),
      USE(t.flatten()),
      USE(t.squeeze(0)),
      USE(t.unsqueeze(0)),
      USE(t.expand({1})),
      USE(t.slice(0, 0, 1)),
      USE(t.select(0, 0)),
      USE(t.split(1)),
      USE(t.split(std::vector<int64_t>{1})),
      USE(t.chunk(1)),
      USE(t.contiguous()),
      USE(t.clone()),
      USE(t.to(float64)),
      USE(t.index_select(0, kIndex)),
      USE(kTwo.index_select(0, t)),
      USE(t.gather(0, kIndex)),
      USE(kTwo.gather(0, t)),
      USE(t.masked_fill(kMask, 1)),
      USE(kTwo.masked_fill(t, 1)),
      USE(t.flip({0})),
      USE(t.tril()),
      USE(t.triu()),
      USE(t.index({0})),
      USE(kTwo.index({t})),
      // arithmetic
      USE(t.matmul(kTwo)),
      USE(kTwo.matmul(t)),
      USE(t.pow(2)),
      USE(t.pow(kTwo)),
      USE(kTwo.pow(t)),
      USE(t.clamp(0, 1)),
      USE(t.abs()),
      USE(t.exp()),
      USE(t.log()),
      USE(t.square()),
      USE(t.sqrt()),
      USE(t.relu()),
      USE(t.tanh()),
      USE(t.sigmoid()),
      USE(t.softmax(0)),
      USE(t.log_softmax(0)),
      USE(t.sum()),
      USE(t.sum({0})),
      USE(t.mean()),
      USE(t.mean({0})),
      USE(t.var({0})),
      USE(t.amax()),
      USE(t.amin()),
      USE(t.argmax(0)),
      USE(t.argmin(0)),
      USE(t.cumsum(0)),
      USE(t.norm()),
      USE(t.any()),
      USE(t.all()),
      USE(t.sort()),
      USE(t.topk(1)),
      USE(t.eq(kTwo)),
      USE(kTwo.eq(t)),
      USE(t.ne(kTwo)),
      USE(t.lt(kTwo)),
      USE(t.le(kTwo)),
      USE(t.gt(kTwo)),
      USE(t.ge(kTwo)),
      USE(t.eq(1)),
      USE(t.ne(1)),
      USE(t.lt(1)),
      USE(t.le(1)),
      USE(t.gt(1)),
      USE(t.ge(1)),
      USE(t.isnan()),
      USE(t.isfinite()),
      USE(t.logical_not()),
      USE(t + kTwo),
      USE(kTwo + t),
      USE(t - kTwo),
      USE(t * kTwo),
      USE(t / kTwo),
      USE(t + 1),
      USE(t - 1),
      USE(t * 2),
      USE(t / 2),
      USE(1 + t),
      USE(1 - t),
      USE(2 * t),
      USE(1 / t),
      USE(-t),
      // in place
      USE(t.copy_(kTwo)),
      USE(kTwo.copy_(t)),
      USE(t.fill_(1)),
      USE(t.fill_(kTwo.sum())),
      USE(kTwo.fill_(t)),
      USE(t.zero_()),
      USE(t.add_(kTwo)),
      USE(kTwo.add_(t)),
      USE(t.add_(1)),
      USE(t.sub_(kTwo)),
      USE(kTwo.sub_(t)),
      USE(t.sub_(1)),
      USE(t.mul_(kTwo)),
      USE(kTwo.mul_(t)),
      USE(t.mul_(2)),
      USE(t.div_(kTwo)),
      USE(kTwo.div_(t)),
      USE(t.div_(2)),
      USE(t.pow_(kTwo)),
      USE(kTwo.pow_(t)),
      USE(t.pow_(2)),
      USE(t.clamp_(0, 1)),
      USE(t.addcmul_(kTwo, kTwo)),
      USE(kTwo.addcmul_(t, kTwo)),
      USE(kTwo.addcmul_(kTwo, t)),
      USE(t.addcdiv_(kTwo, kTwo)),
      USE(kTwo.addcdiv_(kTwo, t)),
      USE(t.lerp_(kTwo, 0.5)),
      USE(kTwo.lerp_(t, 0.5)),
      USE(kTwo.lerp_(kTwo, t)),
      USE(t.masked_fill_(kMask, 1)),
      USE(kTwo.masked_fill_(t, 1)),
      USE(kTwo.masked_fill_(kMask, t)),
      USE(t.neg_()),
      USE(t.abs_()),
      USE(t.square_()),
      USE(t.exp_()),
      USE(t.log_()),
      USE(t.sqrt_()),
      USE(t.rsqrt_()),
      USE(t.reciprocal_()),
      USE(t.sin_()),
      USE(t.cos_()),
      USE(t.relu_()),
      USE(t.tanh_()),
      USE(t.sigmoid_()),
      USE(t.index_put_({0}, 1)),
      USE(kTwo.index_put_({0}, t)),
      USE(kTwo.index_put_({t}, 1)),
      USE(Tensor(t) = kTwo),
      USE(Tensor(t) = 1),
      USE(kTwo.slice(0, 0, 1) = t),
      USE(t += kTwo),
      USE(t -= 1),
      USE(ops::maximum_(t, kTwo)),
      USE(ops::minimum_(kTwo, t)),
  };
  return all;
}

}  // namespace

TEST_CASE("every method refuses an undefined tensor in a sentence") {
  Tensor moved = zeros({2});
  const Tensor taken = std::move(moved);
  for (const Tensor& t : {Tensor(), moved}) {
    CHECK_FALSE(t.defined());
    CHECK(t.summary() == "undefined tensor");
    CHECK(t.impl() == nullptr);
    CHECK(t.is_same(Tensor()));
    for (const Use& use : uses()) {
      INFO(use.text);
      const std::string text = testing::invalid_text([&] { use.call(t); });
      CHECK_THAT(text, Contains("undefined") && Contains("["));
    }
  }
  CHECK(testing::invalid_text([] { Tensor().dim(); }) ==
        "[dim] the tensor is undefined: it was made without a value, or moved from");
  CHECK(kTwo.version() == 0);
  CHECK(kTwo.to_vector<float>() == std::vector<float>{0, 0});
}

TEST_CASE("every operator refuses an undefined tensor in a sentence") {
  for (const ops::Op* op : ops::all_ops()) {
    INFO(op->name);
    const std::vector<ops::Sample> samples = op->samples();
    for (size_t i = 0; i < samples[0].inputs.size(); ++i) {
      Tensors inputs = samples[0].inputs;
      inputs[i] = Tensor();
      CHECK(testing::invalid_text([&] { ops::apply(*op, inputs, samples[0].attrs); }) ==
            "[" + std::string(op->name) + "] input " + std::to_string(i) + " is an undefined tensor");
    }
  }
}
