// Half precision beside float64 of the same elements: what several steps make is rounded once, at the end,
// and gradients read no logarithm or statistic that was rounded to it.
#include <catch2/catch.hpp>
#include <functional>

#include "autograd/engine.h"
#include "ops/gradient_rules.h"
#include "ops/ops.h"
#include "tests/support/near.h"

using namespace troupe;

namespace {

using testing::difference;

// What one rounding changes at most.
double rounding(DType t) { return t == bfloat16 ? 0x1p-8 : 0x1p-11; }

Tensor random(const Shape& shape, uint64_t seed, DType t, double scale = 1) {
  Generator g(seed);
  return (ops::randn(shape, g, float64) * scale).to(t);
}

// |got - wanted| / |wanted| of all elements together.
double error(const Tensor& got, const Tensor& wanted) {
  return ops::norm(got.to(float64) - wanted).item() / ops::norm(wanted).item();
}

struct Trial {
  const char* name;
  std::vector<Shape> inputs;
  std::function<Tensor(const Tensors&)> f;
  double slack = 1;  // of the gradients: those that read a rounded result have more
};

const std::vector<Trial>& trials() {
  using T = const Tensors&;
  const Shape s{6, 40}, row{40}, heads{2, 3, 9, 8};
  static const Tensor target = ops::to(ops::sample({6}, 0, 40), int64),
                      kept = ops::tril(ones({9, 9}, boolean));
  static const std::vector<Trial> all{
      {"add with alpha", {s, row}, [](T x) { return ops::add(x[0], x[1], 0.3); }},
      {"sub with alpha", {s, row}, [](T x) { return ops::sub(x[0], x[1], -2.7); }},
      {"a number", {s}, [](T x) { return 0.1 - x[0] * 1.7 / 3; }, 3},
      {"addcmul", {s, row, s}, [](T x) { return ops::addcmul(x[0], x[1], x[2], 3.14); }},
      {"addcdiv", {s, row, s}, [](T x) { return ops::addcdiv(x[0], x[1], ops::clamp(x[2], 0.5, {}), 3.14); }},
      {"lerp", {s, row}, [](T x) { return ops::lerp(x[0], x[1], 0.3); }},
      {"lerp, near the end", {s, row}, [](T x) { return ops::lerp(x[0], x[1], 0.8); }},
      {"lerp by tensors", {s, row, s}, [](T x) { return ops::lerp(x[0], x[1], x[2]); }},
      {"norm", {s}, [](T x) { return ops::norm(x[0]); }},
      {"norm along", {s}, [](T x) { return ops::norm(x[0], 2, 1); }},
      {"norm 1", {s}, [](T x) { return ops::norm(x[0], 1, 0, true); }},
      {"norm 3", {s}, [](T x) { return ops::norm(x[0], 3); }},
      {"norm 0.5", {s}, [](T x) { return ops::norm(x[0], 0.5, 1); }},
      {"attention_weights", {heads, heads}, [](T x) { return ops::attention_weights(x[0], x[1], true); }},
      {"attention with a mask",
       {heads, heads, heads},
       [](T x) { return ops::scaled_dot_product_attention(x[0], x[1], x[2], kept); }},
      {"attention with a bias",
       {heads, heads, heads, {9, 9}},
       [](T x) { return ops::scaled_dot_product_attention(x[0], x[1], x[2], x[3]); }},
      {"attention that broadcasts",
       {heads, {3, 7, 8}, {7, 4}},
       [](T x) { return ops::scaled_dot_product_attention(x[0], x[1], x[2]); }},
      {"cross_entropy with weights",
       {s},
       [](T x) {
         const Tensor w = ops::sample({40}, 0.5, 2).to(bfloat16).to(x[0].dtype());
         return ops::cross_entropy(x[0], target, w, "mean", -100, 0.1);
       }},
      {"binary_cross_entropy_with_logits with weights",
       {s},
       [](T x) {
         const Tensor w = ops::sample({40}, 0.5, 2).to(bfloat16).to(x[0].dtype());
         return ops::binary_cross_entropy_with_logits(x[0], zeros_like(x[0]) + 0.25, w, w, "none");
       }},
      {"layer_norm", {s, row}, [](T x) { return ops::layer_norm(x[0] + 8, {40}, x[1]); }, 8},
      {"group_norm", {{3, 6, 10}}, [](T x) { return ops::group_norm(x[0], 2); }},
      {"embedding_bag",
       {{40, 6}},
       [](T x) {
         return ops::embedding_bag(ops::reshape(target, {2, 3}), x[0], {}, "mean");
       }},
      {"softmax", {s}, [](T x) { return ops::softmax(x[0], 1); }, 4},
      {"std", {s}, [](T x) { return ops::std(x[0], 1); }, 4},
  };
  return all;
}

TEST_CASE("what several operators make of halves is rounded once, and so are its gradients") {
  for (const DType t : {bfloat16, float16})
    for (const Trial& trial : trials()) {
      INFO(name(t) << ", " << trial.name);
      Tensors half, wide;
      for (const Shape& shape : trial.inputs) {
        half.push_back(random(shape, half.size(), t).requires_grad_());
        wide.push_back(half.back().detach().to(float64).requires_grad_());
      }
      const Tensor got = trial.f(half), wanted = trial.f(wide);
      CHECK(got.dtype() == t);
      const double once = 1.01 * rounding(t);
      if (trial.slack == 1) CHECK(difference(got.to(float64), wanted, once, 2e-6) == "");
      const Tensor weights = random(got.shape(), 77, t);
      const Tensors g = autograd::grad({got}, half, {weights}),
                    exact = autograd::grad({wanted}, wide, {weights.to(float64)});
      for (size_t i = 0; i < g.size(); ++i) CHECK(error(g[i], exact[i]) < trial.slack * rounding(t));
    }
}

TEST_CASE("halves beside float32 are converted before they are multiplied") {
  const Tensor a = random({5, 5}, 1, float64), b = random({5, 5}, 2, bfloat16), c = random({5}, 3, float32);
  const Tensor wide = b.to(float64), row = c.to(float64);
  CHECK(difference(ops::addcmul(a, b, c, 3.14), a + wide * row * 3.14, 1e-14, 1e-14) == "");
  CHECK(difference(ops::addcdiv(a, b, c, 3.14), a + wide / row * 3.14, 1e-14, 1e-14) == "");
  CHECK(difference(ops::add(a, b, 3.14), a + wide * 3.14, 1e-14, 1e-14) == "");
  const Tensor in_place = a.clone(), added = a.clone();
  in_place.addcmul_(b, c, 3.14), added.add_(b, 3.14);
  CHECK(difference(in_place, a + wide * row * 3.14, 1e-14, 1e-14) == "");
  CHECK(difference(added, a + wide * 3.14, 1e-14, 1e-14) == "");
}

TEST_CASE("the gradient of attention in half precision is rounded once, however long the sequence is") {
  for (const DType t : {bfloat16, float16}) {
    const Tensor x = random({1, 1024, 3 * 2 * 16}, 1, t).requires_grad_();
    const Tensor wide = x.detach().to(float64).requires_grad_(), g = random({1, 1024, 32}, 2, t);
    const Tensor got = autograd::grad({ops::self_attention(x, 2)}, {x}, {g})[0];
    const Tensor wanted = autograd::grad({ops::self_attention(wide, 2)}, {wide}, {g.to(float64)})[0];
    CHECK(error(got, wanted) < 0.6 * rounding(t));
    const Tensors parts{x.detach(), x.detach(), x.detach()};
    CHECK(ops::apply(ops::kAttention, parts)[1].dtype() == float32);
  }
}

TEST_CASE("the gradient of batch normalization in half precision does not read a rounded mean") {
  for (const DType t : {bfloat16, float16}) {
    const Tensor x = (random({64, 3, 4}, 1, float64) + 30).to(t).requires_grad_();
    const Tensor wide = x.detach().to(float64).requires_grad_(), w = ones({3}), g = random({64, 3, 4}, 2, t);
    const auto got = ops::batch_norm_train(x, w.to(t), w.to(t));
    const auto wanted = ops::batch_norm_train(wide, w.to(float64), w.to(float64));
    CHECK(error(autograd::grad({got.y}, {x}, {g})[0],
                autograd::grad({wanted.y}, {wide}, {g.to(float64)})[0]) < 0.6 * rounding(t));
    CHECK(difference(got.mean.to(float64), wanted.mean, 1e-6, 0) == "");
    CHECK(difference(got.var.to(float64), wanted.var, 1e-6, 0) == "");
  }
}

TEST_CASE("a norm is finite where its square is not") {
  const Tensor x = full({2, 2}, 300, float16);
  CHECK(ops::norm(x, 2, 1).to_vector<double>() == std::vector<double>{424.25, 424.25});
  CHECK(ops::norm(x, 6).item() == Approx(300 * std::pow(4, 1.0 / 6)).epsilon(1e-3));
  CHECK(ops::norm(x).item() == 600);
}

}  // namespace
