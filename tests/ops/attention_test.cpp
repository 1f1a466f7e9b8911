// Attention beyond what the samples show: several tiles, views, memory, bits.
#include "ops/attention.h"

#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;

namespace {

using testing::difference;

Tensor leaf(const Shape& shape, uint64_t seed, DType dtype = float64) {
  Generator g(seed);
  return ops::randn(shape, g, dtype).requires_grad_();
}

// With all scores in memory.
Tensor plain(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  Tensor scores = ops::matmul(q, k.transpose(-2, -1)) * (1 / std::sqrt(static_cast<double>(q.size(-1))));
  if (causal) {
    const Tensor seen = ops::tril(ones({q.size(-2), k.size(-2)}, q.dtype()));
    scores = ops::where(ops::gt(seen, tensor(0, q.dtype())), scores, tensor(-1e30, q.dtype()));
  }
  return ops::matmul(ops::softmax(scores, -1), v);
}

TEST_CASE("attention over several tiles is what it is with all scores in memory") {
  const bool causal = GENERATE(false, true);
  const auto [queries, keys] =
      GENERATE(std::pair{130, 130}, std::pair{65, 600}, std::pair{600, 70}, std::pair{300, 300});
  INFO(queries << " queries, " << keys << " keys, causal " << causal);
  const Tensor q = leaf({2, queries, 9}, 1), k = leaf({2, keys, 9}, 2), v = leaf({2, keys, 5}, 3);
  const Tensor g = leaf({2, queries, 5}, 4).detach();
  const Tensor out = ops::scaled_dot_product_attention(q, k, v, {}, 0, causal),
               expected = plain(q, k, v, causal);
  CHECK(difference(out, expected, 1e-11, 1e-12) == "");
  const Tensors got = autograd::grad({out}, {q, k, v}, {g}),
                wanted = autograd::grad({expected}, {q, k, v}, {g});
  for (size_t i = 0; i < 3; ++i) {
    INFO("gradient " << i);
    CHECK(difference(got[i], wanted[i], 1e-10, 1e-11) == "");
  }
}

TEST_CASE("attention in float32 keeps its digits when scores are large") {
  const Tensor q = leaf({300, 8}, 1), k = leaf({300, 8}, 2), v = leaf({300, 8}, 3);
  const Tensor wide = ops::scaled_dot_product_attention(q * 20.0, k, v, {}, 0, true);
  const Tensor narrow =
      ops::scaled_dot_product_attention((q * 20.0).to(float32), k.to(float32), v.to(float32), {}, 0, true);
  CHECK(difference(narrow, wide, 1e-3, 1e-4) == "");
}

TEST_CASE("of scores of any size the largest has the weight") {
  const float size = GENERATE(1e10f, 1e30f, 3e38f);
  const int64_t best = GENERATE(0, 17, 39);
  CAPTURE(size, best);
  const Tensor k = zeros({40, 1}), v = empty({40, 1});
  for (int64_t i = 0; i < 40; ++i) v.data<float>()[i] = static_cast<float>(i);
  k.data<float>()[best] = 1;
  const Tensor q = full({40, 1}, size, float32);
  const Tensor out = ops::scaled_dot_product_attention(q, k, v);
  for (int64_t i = 0; i < 40; ++i) CHECK(out.data<float>()[i] == static_cast<float>(best));
}

TEST_CASE("self_attention is attention of its parts") {
  const Tensor qkv = leaf({2, 130, 3 * 2 * 4}, 1);
  const Tensor parts = qkv.reshape({2, 130, 3, 2, 4}).permute({2, 0, 3, 1, 4});
  const auto part = [&](int64_t i) { return ops::squeeze(parts.slice(0, i, i + 1), 0); };
  const Tensor expected = ops::scaled_dot_product_attention(part(0), part(1), part(2), {}, 0, true)
                              .permute({0, 2, 1, 3})
                              .reshape({2, 130, 8});
  const Tensor got = ops::self_attention(qkv, 2, true), g = leaf({2, 130, 8}, 2).detach();
  CHECK(difference(got, expected, 1e-13, 1e-13) == "");
  CHECK(difference(autograd::grad({got}, {qkv}, {g})[0], autograd::grad({expected}, {qkv}, {g})[0], 1e-12,
                   1e-12) == "");
}

TEST_CASE("attention over a long sequence holds no matrix of scores") {
  constexpr int64_t kTime = 8192, kWidth = 16;
  const Tensor qkv = leaf({1, kTime, 3 * kWidth}, 1, float32);
  release_cached_memory();  // from here on, cached and used bytes together are the peak
  const size_t before = allocator_stats().in_use;
  autograd::grad({ops::self_attention(qkv, 1, true).sum()}, {qkv});
  const AllocatorStats after = allocator_stats();
  const size_t peak = after.in_use + after.cached - before, matrix = kTime * kTime * sizeof(float);
  CHECK(peak < matrix / 16);
  CHECK(peak > qkv.nbytes());
}

TEST_CASE("attention with a mask weighs what the mask lets each query see") {
  const Tensor q = leaf({2, 3, 5, 4}, 1), k = leaf({2, 3, 6, 4}, 2), v = leaf({2, 3, 6, 3}, 3);
  const Tensor seen = ops::tril(ones({5, 6}, boolean)), g = leaf({2, 3, 5, 3}, 4).detach();
  const Tensor added = ops::where(seen, 0.0, -HUGE_VAL).to(float64);
  const Tensor wanted = ops::scaled_dot_product_attention(q, k, v, {}, 0, true);
  const Tensors gradients = autograd::grad({wanted}, {q, k, v}, {g});
  for (const Tensor& mask : {seen, added, seen.reshape({1, 1, 5, 6})}) {
    const Tensor got = ops::scaled_dot_product_attention(q, k, v, mask);
    CHECK(difference(got, wanted, 1e-13, 1e-13) == "");
    const Tensors of_mask = autograd::grad({got}, {q, k, v}, {g});
    for (size_t i = 0; i < 3; ++i) CHECK(difference(of_mask[i], gradients[i], 1e-12, 1e-12) == "");
  }
  // A bias that is learned.
  const Tensor bias = leaf({3, 5, 6}, 5);
  const auto with_bias = [&](const Tensors& x) {
    return ops::scaled_dot_product_attention(x[0], x[1], x[2], x[3]);
  };
  const auto checked = autograd::gradcheck(with_bias, {q, k, v, bias});
  INFO(checked.text);
  CHECK(checked.ok);
}

TEST_CASE("a query that sees nothing gets zeros, and no gradient is NaN") {
  const Tensor q = leaf({3, 4}, 1), k = leaf({5, 4}, 2), v = leaf({5, 2}, 3);
  Tensor seen = ones({3, 5}, boolean);
  seen.select(0, 1) = false;
  const Tensor out = ops::scaled_dot_product_attention(q, k, v, seen);
  CHECK(out.select(0, 1).to_vector<double>() == std::vector<double>{0, 0});
  for (const Tensor& x : autograd::grad({out.sum()}, {q, k, v})) CHECK(ops::isfinite(x).all().item<bool>());
}

TEST_CASE("attention with a mask takes no random number, and without keys gives zeros") {
  const Tensor x = leaf({2, 3, 4}, 1), none = zeros({2, 0, 4}, float64);
  manual_seed(3);
  const Tensor before = ops::rand({4});
  manual_seed(3);
  ops::scaled_dot_product_attention(x, x, x, ones({3, 3}, boolean));
  CHECK(bit_equal(ops::rand({4}), before));
  CHECK(bit_equal(ops::scaled_dot_product_attention(x.detach(), none, none, ones({3, 0}, boolean)),
                  zeros({2, 3, 4}, float64)));
  for (const DType t : {bfloat16, float16}) {
    const Tensor h = x.detach().to(t), seen = ops::tril(ones({3, 3}, boolean));
    const Tensor got = ops::scaled_dot_product_attention(h, h, h, seen);
    CHECK(got.dtype() == t);
    CHECK(difference(got, ops::scaled_dot_product_attention(h, h, h, {}, 0, true), 0.02, 0.02) == "");
  }
}

TEST_CASE("dropout in attention drops weights, by the stream of random numbers") {
  const Tensor q = zeros({1, 1000, 2}), k = zeros({1, 4, 2}), v = ones({1, 4, 1});
  manual_seed(3);
  const Tensor out = ops::scaled_dot_product_attention(q, k, v, {}, 0.5);
  manual_seed(3);
  CHECK(bit_equal(out, ops::scaled_dot_product_attention(q, k, v, {}, 0.5)));
  const auto values = out.to_vector<double>();
  for (const double x : values) CHECK(2 * x == std::round(2 * x));  // so many of four halves
  CHECK(out.mean().item() == Approx(1).margin(0.1));
  CHECK(*std::min_element(values.begin(), values.end()) == 0);
}

TEST_CASE("masks of attention that do not fit are refused") {
  const Tensor x = zeros({2, 3, 4});
  CHECK(
      testing::invalid_text([&] {
        ops::scaled_dot_product_attention(x, x, x, ones({3, 3}, boolean), 0, true);
      }) ==
      "[scaled_dot_product_attention] got attn_mask and is_causal: leave one out, or give attn_mask.tril()");
  CHECK(testing::invalid_text([&] {
          ops::scaled_dot_product_attention(x, x, x, ones({3, 3}, int64));
        }).find("attn_mask must be bool or floating, got int64 [3, 3]") != std::string::npos);
  CHECK(testing::invalid_text([&] {
          ops::scaled_dot_product_attention(x, x, x, ones({3, 2}));
        }).find("[3, 2]") != std::string::npos);
  CHECK(testing::invalid_text([&] {
          ops::scaled_dot_product_attention(x, x, zeros({2, 5, 4}), ones({3, 3}));
        }).find("[scaled_dot_product_attention] got q") == 0);
}

TEST_CASE("wrong shapes for attention are refused by name") {
  const Tensor x = zeros({2, 3, 4}), other = zeros({2, 3, 5});
  CHECK(testing::invalid_text([&] {
          ops::scaled_dot_product_attention(x, other, x);
        }).find("[scaled_dot_product_attention] [attention] got q") == 0);
  CHECK(testing::invalid_text([&] { ops::self_attention(x, 3); }).find("[self_attention]") == 0);
  CHECK(testing::invalid_text([&] { ops::self_attention(x, 0); }).find("[self_attention]") == 0);
}

}  // namespace
