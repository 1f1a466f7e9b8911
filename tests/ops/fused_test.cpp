// The operators of a transformer step: accuracy, bits on several threads, memory.
#include <catch2/catch.hpp>
#include <cmath>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tests/support/near.h"

using namespace troupe;

namespace {

using testing::difference;

// One pre-norm block and a loss: what is asked of the weights is theirs alone.
struct Block {
  Tensor x, norm, shift, qkv, up, down;
  Tensor target;

  explicit Block(uint64_t seed) {
    Generator g(seed);
    const auto leaf = [&](const Shape& s) { return (ops::randn(s, g) * 0.2).detach().requires_grad_(); };
    x = leaf({4, 150, 64}), norm = leaf({64}), shift = leaf({64}), qkv = leaf({192, 64}),
    up = leaf({256, 64}), down = leaf({64, 256});
    std::vector<int64_t> classes(600);
    for (auto& c : classes) c = static_cast<int64_t>(g.below(64));
    target = tensor(classes);
  }

  Tensors step() const {
    const Tensor a = x + ops::self_attention(ops::linear(ops::layer_norm(x, 64, norm, shift), qkv), 4, true);
    const Tensor b = a + ops::linear(ops::linear_gelu(ops::rms_norm(a, 64, norm), up), down);
    const Tensor loss = ops::cross_entropy(ops::softmax(b, 1).reshape({600, 64}), target);
    Tensors all = autograd::grad({loss}, {x, norm, shift, qkv, up, down});
    all.push_back(loss);
    return all;
  }
};

TEST_CASE("a transformer block gives the same bits again, and on two threads") {
  const int before = ops::num_threads();
  ops::set_num_threads(1);
  const Tensors once = Block(1).step(), again = Block(1).step();
  ops::set_num_threads(2);
  const Tensors two = Block(1).step();
  ops::set_num_threads(before);
  for (size_t i = 0; i < once.size(); ++i) {
    CHECK(bit_equal(once[i], again[i]));
    CHECK(bit_equal(once[i], two[i]));
  }
}

TEST_CASE("steps after the first ask the system for no memory") {
  const int before = ops::num_threads();
  ops::set_num_threads(1);
  const Block block(1);
  block.step();
  const uint64_t asked = allocator_stats().system_allocations;
  for (int i = 0; i < 3; ++i) block.step();
  CHECK(allocator_stats().system_allocations == asked);
  ops::set_num_threads(before);
}

TEST_CASE("one-pass gradients are what other operators give, on long rows") {
  Generator g(3);
  const auto leaf = [&](const Shape& s) { return ops::randn(s, g, float64).requires_grad_(); };
  const Tensor x = leaf({150, 97}), w = leaf({97}), b = leaf({97}), grad = leaf({150, 97}).detach();
  const auto agree = [&](const Tensor& y, const Tensors& wanted, const Tensor& weight) {
    const Tensors fused = autograd::grad({y}, wanted, {weight}, {.retain_graph = true});
    const Tensors made = autograd::grad({y}, wanted, {weight}, {.create_graph = true});
    for (size_t i = 0; i < wanted.size(); ++i) CHECK(difference(fused[i], made[i], 1e-11, 1e-12) == "");
  };
  agree(ops::layer_norm(x, w.shape(), w, b), {x, w, b}, grad);
  agree(ops::rms_norm(x, w.shape(), w), {x, w}, grad);
  agree(ops::gelu(x), {x}, grad);
  const Tensor w2 = leaf({33, 97}), b2 = leaf({33}), wide = leaf({150, 33}).detach();
  agree(ops::linear_gelu(x, w2, b2), {x, w2, b2}, wide);
  agree(ops::linear_gelu(x, w2), {x, w2}, wide);
  agree(ops::linear_relu(x, w2, b2), {x, w2, b2}, wide);
  agree(ops::silu(x), {x}, grad);
  agree(ops::softmax(x, 0), {x}, grad);
  std::vector<int64_t> classes(150);
  for (auto& c : classes) c = static_cast<int64_t>(g.below(97));
  agree(ops::cross_entropy(x, tensor(classes), "mean", 5, 0.2), {x}, tensor(2, float64));
}

}  // namespace
