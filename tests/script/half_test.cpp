// Every operator by name in bfloat16 and float16, beside the same in float64 of the same elements: results
// are rounded once, over long rows and of large elements, and gradients are as near as what they are read
// from.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "script/operators.h"

using namespace troupe;

namespace {

using script::run_operator;

struct Arguments {
  ValueList positional;
  ValueMap named = {};
  size_t leaves = 99;  // the first tensors, which may have gradients
};

Value list(std::initializer_list<int64_t> values) { return ValueList(values.begin(), values.end()); }

// Elements of about that size.
Tensor elements(const Shape& shape, double size, uint64_t seed) {
  Generator g(seed);
  const Tensor x = ops::randn(shape, g, float64);
  return size == 1 ? x : ops::sign(x) * (ops::abs(x) * 0.1 + 0.5) * size;
}

// What needs more than tensors of one shape.
std::map<std::string, std::vector<Arguments>> explicit_arguments(double size) {
  uint64_t seed = 10;
  const auto x = [&](const Shape& shape) -> Value { return elements(shape, size, ++seed); };
  const Value rows = x({4, 300}), numbers = tensor({3, 0, 3, 1}), places = full({4, 2}, 7, int64);
  const Value yes = ops::gt(elements({4, 300}, 1, 1), 0), image = x({2, 4, 9, 9}), channels = x({4});
  const int64_t zero = 0, one = 1, two = 2, three = 3;
  std::map<std::string, std::vector<Arguments>> all = {
      {"matmul", {{{x({5, 300}), x({300, 7})}}}},
      {"mm", {{{x({5, 300}), x({300, 7})}}}},
      {"bmm", {{{x({2, 5, 300}), x({2, 300, 7})}}}},
      {"mv", {{{x({5, 300}), x({300})}}}},
      {"dot", {{{x({300}), x({300})}}}},
      {"outer", {{{x({5}), x({7})}}}},
      {"einsum",
       {{{"ij,kj->ik", ValueList{x({5, 300}), x({7, 300})}}}, {{"ij,k->ik", ValueList{rows, channels}}}}},
      {"linear", {{{x({5, 300}), x({7, 300}), x({7})}}}},
      {"linear_relu", {{{x({5, 300}), x({7, 300}), x({7})}}}},
      {"linear_gelu", {{{x({5, 300}), x({7, 300}), x({7})}}}},
      {"linear_add", {{{x({5, 300}), x({7, 300}), x({5, 7}), x({7})}}}},
      {"sum", {{{rows}}, {{rows, list({1})}}, {{rows, list({0})}}}},
      {"mean", {{{rows}}, {{rows, list({1})}}}},
      {"var", {{{rows}}, {{rows, list({1})}}}},
      {"std", {{{rows}}, {{rows, list({1})}}}},
      {"logsumexp", {{{rows}}, {{rows, list({1})}}}},
      {"softmax", {{{rows, one}}, {{rows, zero}}}},
      {"log_softmax", {{{rows, one}}}},
      {"norm",
       {{{rows}},
        {{rows, two, list({1})}},
        {{rows, three}},
        {{rows, 6.0, list({1})}},
        {{rows, 0.5}},
        {{rows, zero}}}},
      {"cumsum", {{{rows, one}}}},
      {"cumprod", {{{x({4, 6}), one}}}},
      {"prod", {{{x({4, 6}), list({1})}}}},
      {"layer_norm", {{{rows, list({300}), x({300}), x({300})}}}},
      {"rms_norm", {{{rows, list({300}), x({300}), 1e-5}}}},
      {"group_norm", {{{image, two, channels, channels}}}},
      {"batch_norm_train", {{{image, channels, channels}}}},
      {"batch_norm_eval", {{{image, channels, channels, channels, ops::abs(elements({4}, 1, 5))}}}},
      {"conv2d", {{{image, x({3, 4, 3, 3}), x({3})}}}},
      {"avg_pool2d", {{{image}, {{"kernel_size", list({3})}}}}},
      {"max_pool2d", {{{image}, {{"kernel_size", list({3})}}}}},
      {"scaled_dot_product_attention",
       {{{x({2, 300, 8}), x({2, 300, 8}), x({2, 300, 8})}},
        {{x({2, 300, 8}), x({2, 300, 8}), x({2, 300, 8})}, {{"is_causal", true}}},
        {{x({2, 300, 8}), x({2, 300, 8}), x({2, 300, 8})}, {{"scale", 0.2}}},
        {{x({4, 30, 8}), x({2, 300, 8}), x({2, 300, 8})}, {{"enable_gqa", true}}},
        {{x({2, 30, 8}), x({2, 300, 8}), x({2, 300, 8}), x({30, 300})}}}},
      {"self_attention", {{{x({2, 300, 24})}, {{"heads", two}}}}},
      {"cross_entropy",
       {{{rows, numbers}},
        {{rows, numbers, x({300})}, {}, 1},
        {{rows, numbers}, {{"label_smoothing", 0.1}}}}},
      {"nll_loss", {{{rows, numbers}}, {{rows, numbers, x({300})}, {}, 1}}},
      {"binary_cross_entropy_with_logits", {{{rows, rows}}, {{rows, rows, x({300}), x({300})}, {}, 2}}},
      {"mse_loss", {{{rows, x({4, 300})}}, {{rows, x({4, 300})}, {{"reduction", "sum"}}}}},
      {"embedding", {{{numbers, rows}}}},
      {"embedding_bag",
       {{{tensor({{3, 0}, {1, 1}}), rows}},
        {{tensor({{3, 0}, {1, 1}}), rows}, {{"mode", "max"}}},
        {{tensor({{3, 0}, {1, 1}}), rows, Value(), "sum", x({2, 2})}}}},
      {"gru_cell", {{{x({4, 8}), x({4, 6}), x({18, 8}), x({18, 6}), x({18}), x({18})}}}},
      {"lstm_cell", {{{x({4, 8}), x({4, 6}), x({4, 6}), x({24, 8}), x({24, 6}), x({24}), x({24})}}}},
      {"add", {{{rows, x({4, 300})}}, {{rows, 1.7}}, {{0.3, rows}}}},
      {"sub", {{{rows, x({4, 300})}}, {{rows, 1.7}}, {{0.3, rows}}}},
      {"mul", {{{rows, x({4, 300})}}, {{rows, 1.7}}}},
      {"div", {{{rows, x({4, 300})}}, {{rows, 1.7}}, {{0.3, rows}}}},
      {"pow", {{{rows, x({4, 300})}}, {{rows, 3.0}}}},
      {"lerp", {{{rows, x({4, 300}), 0.3}}, {{rows, x({4, 300}), 0.7}}, {{rows, x({4, 300}), x({4, 300})}}}},
      {"addcmul", {{{rows, x({4, 300}), x({4, 300}), 1.7}}}},
      {"addcdiv", {{{rows, x({4, 300}), x({4, 300}), 1.7}}}},
      {"where", {{{yes, rows, x({4, 300})}}}},
      {"masked_fill", {{{rows, yes, 0.5}}}},
      {"masked_select", {{{rows, yes}}}},
      {"take", {{{rows, numbers}}}},
      {"clamp", {{{rows}, {{"min", -0.5}, {"max", 0.75}}}, {{rows, x({300}), x({4, 1})}}}},
      {"cat", {{{ValueList{rows, rows}}}}},
      {"stack", {{{ValueList{rows, rows}}}}},
      {"gather", {{{rows, one, places}}}},
      {"scatter_add", {{{rows, one, places, x({4, 2})}}}},
      {"index_select", {{{rows, zero, numbers}}}},
      {"index_copy", {{{rows, zero, tensor({2}), x({1, 300})}}}},
      {"index_add", {{{rows, zero, numbers, x({4, 300}), 1.7}}}},
      {"pad", {{{rows, list({1, 2})}, {{"value", 0.5}}}}},
      {"repeat", {{{rows}, {{"repeats", list({2, 1})}}}}},
      {"roll", {{{rows, list({3})}}}},
      {"topk", {{{rows}, {{"k", three}}}}},
      {"dropout", {{{rows, 0.5, false}}}},
      {"addmm", {{{rows, x({4, 8}), x({8, 300}), 0.7, 1.3}}}},
      {"addmv", {{{x({4}), rows, x({300}), 0.7, 1.3}}}},
      {"addbmm", {{{x({4, 5}), x({2, 4, 8}), x({2, 8, 5}), 0.7, 1.3}}}},
      {"baddbmm", {{{x({2, 4, 5}), x({2, 4, 8}), x({2, 8, 5}), 0.7, 1.3}}}},
      {"addr", {{{rows, x({4}), x({300}), 0.7, 1.3}}}},
      {"tensordot", {{{x({4, 8, 3}), x({8, 3, 5})}}}},
      {"binary_cross_entropy",
       {{{ops::sigmoid(elements({4, 300}, 1, 5)), ops::sigmoid(elements({4, 300}, 1, 6))}}}},
      {"prelu", {{{rows, x({300})}}}},
      {"scatter", {{{rows, one, places, x({4, 2})}}}},
      {"scatter_reduce",
       {{{rows, one, places, x({4, 2})}, {{"reduce", "mean"}}},
        {{rows, one, places, x({4, 2})}, {{"reduce", "amax"}}}}},
      {"masked_scatter", {{{rows, yes, x({4, 300})}}}},
      {"index_fill", {{{rows, zero, tensor({1}), 0.5}}}},
      {"index_put", {{{rows, ValueList{tensor({1, 1})}, x({300}), true}}}},
      {"take_along_dim", {{{rows, places, one}}}},
      {"conv1d", {{{x({2, 4, 9}), x({3, 4, 3}), x({3})}}}},
      {"conv3d", {{{x({2, 4, 3, 5, 4}), x({3, 4, 2, 3, 3}), x({3})}}}},
      {"conv_transpose1d", {{{x({2, 4, 9}), x({4, 3, 3}), x({3})}}}},
      {"conv_transpose2d", {{{image, x({4, 3, 3, 3}), x({3})}}}},
      {"fold", {{{x({2, 12, 9}), list({4, 4}), two}}}},
      {"interpolate",
       {{{image}, {{"scale_factor", 2.0}, {"mode", "bilinear"}}},
        {{image}, {{"size", list({3, 2})}, {"mode", "area"}}}}},
      {"adaptive_avg_pool1d", {{{rows, three}}}},
      {"adaptive_avg_pool2d", {{{image, two}}}},
      {"adaptive_max_pool1d", {{{rows, three}}}},
      {"adaptive_max_pool2d", {{{image, two}}}},
      {"instance_norm", {{{image}}}},
      {"ctc_loss", {{{x({5, 2, 4}), tensor({{1, 2}, {3, 3}}), tensor({5, 4}), tensor({2, 1})}}}},
      {"cummax", {{{rows, one}}}},
      {"cummin", {{{rows, one}}}},
      {"kthvalue", {{{rows, three}}}},
      {"rotary", {{{x({2, 3, 8}), x({3, 4}), x({3, 4})}}}},
  };
  return all;
}

// Nothing is computed, or by chance.
const std::set<std::string> kLeftOut = {"bucketize",
                                        "linalg_cholesky",
                                        "linalg_det",
                                        "linalg_eigh",
                                        "linalg_eigvalsh",
                                        "linalg_inv",
                                        "linalg_qr",
                                        "linalg_slogdet",
                                        "linalg_solve",
                                        "linalg_svd",
                                        "linalg_svdvals",
                                        "pixel_shuffle",
                                        "pixel_unshuffle",
                                        "quantile",
                                        "searchsorted",
                                        "unfold",
                                        "unique",
                                        "broadcast_to",
                                        "diag",
                                        "diag_embed",
                                        "diagonal",
                                        "dstack",
                                        "hstack",
                                        "isclose",
                                        "meshgrid",
                                        "repeat_interleave",
                                        "rotary_table",
                                        "tile",
                                        "unflatten",
                                        "vstack",
                                        "allclose",
                                        "bernoulli",
                                        "bincount",
                                        "bitwise_and",
                                        "bitwise_not",
                                        "bitwise_or",
                                        "bitwise_xor",
                                        "chunk",
                                        "expand",
                                        "equal",
                                        "eye",
                                        "flip",
                                        "full",
                                        "full_like",
                                        "arange",
                                        "linspace",
                                        "manual_seed",
                                        "movedim",
                                        "multinomial",
                                        "narrow",
                                        "one_hot",
                                        "ones",
                                        "ones_like",
                                        "permute",
                                        "rand",
                                        "rand_like",
                                        "randint",
                                        "randn",
                                        "randn_like",
                                        "randperm",
                                        "reshape",
                                        "select",
                                        "split",
                                        "to",
                                        "to_device",
                                        "view",
                                        "zeros",
                                        "zeros_like"};

// As many tensors of one shape as it needs.
std::vector<Arguments> plain_arguments(const Entry& entry, double size) {
  Arguments out;
  for (const Parameter& p : entry.parameters) {
    if (p.standard) continue;
    INFO(entry.signature() << ": explicit_arguments() or kLeftOut lack it");
    REQUIRE(p.type.find("tensor") == 0);
    out.positional.push_back(elements({4, 300}, size, out.positional.size() + 1));
  }
  return {out};
}

// f of each tensor in it.
template <class F>
void for_each_tensor(Value& v, F&& f) {
  if (auto* t = v.get_if<Tensor>())
    f(*t);
  else if (auto* several = v.get_if<ValueList>())
    for (Value& each : *several) for_each_tensor(each, f);
}

struct Run {
  Tensors results, gradients;
};

// With floating tensors rounded to `digits` and computed with as t, and gradients of a weighted sum.
Run run(const std::string& name, Arguments a, DType digits, DType t, bool gradients) {
  Tensors leaves;
  Value all(std::move(a.positional));
  for_each_tensor(all, [&](Tensor& x) {
    if (!x.is_floating_point()) return;
    x = x.to(digits).to(t).clone();
    if (gradients && leaves.size() < a.leaves) leaves.push_back(x.requires_grad_());
  });
  Value out(run_operator(name, std::move(*all.get_if<ValueList>()), a.named));
  Run r;
  for_each_tensor(out, [&](Tensor& x) { r.results.push_back(x); });
  Tensors roots, weights;
  for (const Tensor& x : r.results)
    if (x.requires_grad()) {
      roots.push_back(x);
      weights.push_back(elements(x.shape(), 1, 77).to(digits).to(x.dtype()));
    }
  if (!roots.empty()) r.gradients = autograd::grad(roots, leaves, weights);
  return r;
}

bool refuses_gradient(const std::string& name) { return name == "floor_divide"; }

double largest(const Tensor& x) {
  double most = 0;
  for (const double v : x.detach().to_vector<double>())
    if (std::isfinite(v)) most = std::max(most, std::abs(v));
  return most;
}

double length(const Tensor& x) { return ops::norm(x.detach().to(float64)).item(); }

// With infinities where the dtype ends.
Tensor in_range(const Tensor& x, DType t) {
  const Tensor rounded = x.to(t).to(float64), wide = x.to(float64);
  return ops::where(ops::isfinite(rounded), wide, rounded);
}

void compare(const std::string& name, const Arguments& a, DType t, bool gradients) {
  const double rounding = t == bfloat16 ? 0x1p-8 : 0x1p-11;
  const Run half = run(name, a, t, t, gradients), exact = run(name, a, t, float64, gradients);
  REQUIRE(half.results.size() == exact.results.size());
  for (size_t i = 0; i < half.results.size(); ++i) {
    const Tensor &got = half.results[i], &wanted = exact.results[i];
    INFO("result " << i);
    if (!wanted.is_floating_point()) {
      CHECK(bit_equal(got, wanted));
      continue;
    }
    CHECK((got.dtype() == t || (i > 0 && got.dtype() == float32)));
    // Where much is added up and little is left, float32 has fewer digits.
    const Tensor right = in_range(wanted, got.dtype());
    CHECK(difference(got.to(float64), right, 1.02 * rounding, 2e-6 * largest(right) + 1e-7) == "");
  }
  REQUIRE(half.gradients.size() == exact.gradients.size());
  for (size_t i = 0; i < half.gradients.size(); ++i) {
    INFO("gradient " << i);
    const Tensor &got = half.gradients[i], &wanted = exact.gradients[i];
    REQUIRE(got.defined() == wanted.defined());
    if (!got.defined()) continue;
    CHECK(got.dtype() == t);
    // Some are read from a rounded result, the logarithms of log_softmax among them.
    const double near = name == "log_softmax" ? 8 : 2;
    const Tensor right = in_range(wanted, t), finite = ops::isfinite(right);
    CHECK(bit_equal(ops::isfinite(got), finite));
    CHECK(length(ops::where(finite, got.to(float64) - right, 0.0)) <=
          near * rounding * length(ops::where(finite, right, 0.0)));
  }
}

void compare_all(double size, bool gradients) {
  const auto special = explicit_arguments(size);
  for (const Entry& entry : script::operators()) {
    if (entry.name.ends_with("_") || kLeftOut.contains(entry.name)) continue;
    const auto it = special.find(entry.name);
    for (const Arguments& a : it == special.end() ? plain_arguments(entry, size) : it->second)
      for (const DType t : {bfloat16, float16}) {
        INFO(entry.name << " of " << name(t));
        compare(entry.name, a, t, gradients && !refuses_gradient(entry.name));
      }
  }
}

TEST_CASE(
    "operators over long rows of halves give what float64 gives, rounded once, and so do their gradients") {
  compare_all(1, true);
}

TEST_CASE("operators of large halves overflow where their results do") { compare_all(400, false); }

}  // namespace
