// Operators and functions by name: their entries, each function once, and what PyTorch programs call.
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "ops/function_catalog.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/places.h"
#include "tests/support/received.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

const Maker<Value>& function(const std::string& name) {
  for (const auto& f : ops::functions())
    if (f.name == name) return f;
  FAIL("no function " << name);
  std::abort();
}
Tensor call(const std::string& name, ValueList positional, ValueMap named = {}) {
  return std::get<Tensor>(function(name)(std::move(positional), std::move(named)).v);
}
std::string signature(const std::string& op) { return ops::entry_of(*ops::find_op(op)).signature(); }

using Numbers = std::vector<double>;
Numbers numbers(const Tensor& t) { return t.to_vector<double>(); }

Tensor x() { return tensor({{3, 1, 2}, {6, 5, 4}}, float64); }
Tensor mask() { return ops::gt(x(), 3); }

/// A call, the shape of its first result, and, where they are easy to say, the elements.
struct Trial {
  std::string name;
  ValueList positional;
  ValueMap named;
  Shape shape;
  Numbers elements = {};
};

Tensor zero_matrix() { return zeros({2, 2}, float64); }
Value list(std::initializer_list<int64_t> values) { return ValueList(values.begin(), values.end()); }

std::vector<Trial> trials() {
  const int64_t zero = 0, one = 1, two = 2, three = 3;
  const Tensor ones = troupe::ones({2, 3}, float64), vector = tensor({1, 2}, float64);
  const Tensor diagonal = tensor({{2, 0}, {0, 4}}, float64);
  return {
      {"view", {x(), list({3, -1})}, {}, {3, 2}, {3, 1, 2, 6, 5, 4}},
      {"view", {x(), int64_t{6}}, {}, {6}},
      {"to", {x(), "float32"}, {}, {2, 3}, {3, 1, 2, 6, 5, 4}},
      {"to_device", {x(), "cpu"}, {}, {2, 3}, {3, 1, 2, 6, 5, 4}},
      {"flatten", {x()}, {}, {6}},
      {"select", {x(), zero, one}, {}, {3}, {6, 5, 4}},
      {"narrow", {x()}, {{"dim", one}, {"start", one}, {"length", two}}, {2, 2}, {1, 2, 5, 4}},
      {"unbind", {x()}, {}, {3}, {3, 1, 2}},
      {"squeeze", {ops::unsqueeze(x(), 0)}, {}, {2, 3}},
      {"squeeze", {ops::unsqueeze(x(), 0)}, {{"dim", one}}, {1, 2, 3}},
      {"movedim", {x(), zero, one}, {}, {3, 2}, {3, 6, 1, 5, 2, 4}},
      {"t", {x()}, {}, {3, 2}},
      {"split", {x(), two, one}, {}, {2, 2}, {3, 1, 6, 5}},
      {"split", {x(), list({1, 2}), one}, {}, {2, 1}, {3, 6}},
      {"chunk", {x(), two}, {}, {1, 3}},
      {"contiguous", {ops::t(x())}, {}, {3, 2}},
      {"detach", {x()}, {}, {2, 3}},
      {"diff", {x()}, {}, {2, 2}, {-2, 1, -1, -1}},
      {"max", {x()}, {}, {}, {6}},
      {"max", {x()}, {{"dim", one}}, {2}, {3, 6}},
      {"min", {x(), zero, true}, {}, {1, 3}, {3, 1, 2}},
      {"median", {x()}, {}, {}, {3}},
      {"argmax", {x()}, {}, {}, {3}},
      {"argmin", {x(), one}, {}, {2}, {1, 2}},
      {"count_nonzero", {x()}, {{"dim", one}}, {2}, {3, 3}},
      {"clamp", {x()}, {{"min", 2.5}}, {2, 3}, {3, 2.5, 2.5, 6, 5, 4}},
      {"outer", {vector, vector}, {}, {2, 2}, {1, 2, 2, 4}},
      {"dropout", {x(), 0.0}, {}, {2, 3}, {3, 1, 2, 6, 5, 4}},
      {"cross_entropy", {x(), tensor({0, 1})}, {}, {}},
      {"cross_entropy", {x(), ops::softmax(x(), 1)}, {{"reduction", std::string("none")}}, {2}},
      {"nll_loss",
       {x(), tensor({0, 1}), tensor({1, 2, 3}, float64), std::string("none")},
       {},
       {2},
       {-3, -10}},
      {"binary_cross_entropy_with_logits", {x(), ones}, {{"pos_weight", ones}}, {}},
      {"layer_norm", {x(), three}, {}, {2, 3}},
      {"layer_norm", {x(), list({3})}, {{"bias", full({3}, 9, float64)}}, {2, 3}},
      {"zeros", {list({2})}, {}, {2}, {0, 0}},
      {"ones", {two}, {{"dtype", std::string("int64")}}, {2}, {1, 1}},
      {"full", {ValueList(), 2.5}, {}, {}, {2.5}},
      {"rand", {list({4, 2})}, {}, {4, 2}},
      {"randn", {list({4, 2}), std::string("float64")}, {}, {4, 2}},
      {"randperm", {three}, {}, {3}},
      {"manual_seed", {three}, {}, {}},
      {"add_", {x(), ones}, {{"alpha", 2.0}}, {2, 3}, {5, 3, 4, 8, 7, 6}},
      {"add_", {x(), one}, {}, {2, 3}, {4, 2, 3, 7, 6, 5}},
      {"sub_", {x(), one, 2.0}, {}, {2, 3}, {1, -1, 0, 4, 3, 2}},
      {"mul_", {x(), two}, {}, {2, 3}, {6, 2, 4, 12, 10, 8}},
      {"div_", {x(), ones}, {}, {2, 3}, {3, 1, 2, 6, 5, 4}},
      {"pow_", {x(), two}, {}, {2, 3}, {9, 1, 4, 36, 25, 16}},
      {"fill_", {x(), 1.5}, {}, {2, 3}, {1.5, 1.5, 1.5, 1.5, 1.5, 1.5}},
      {"copy_", {x(), ones}, {}, {2, 3}, {1, 1, 1, 1, 1, 1}},
      {"zero_", {x()}, {}, {2, 3}, {0, 0, 0, 0, 0, 0}},
      {"clamp_", {x(), two, three}, {}, {2, 3}, {3, 2, 2, 3, 3, 3}},
      {"maximum_", {x(), ops::mul(ones, 4)}, {}, {2, 3}, {4, 4, 4, 6, 5, 4}},
      {"minimum_", {x(), ones}, {}, {2, 3}, {1, 1, 1, 1, 1, 1}},
      {"addcmul_", {x(), ones, ones}, {{"value", two}}, {2, 3}, {5, 3, 4, 8, 7, 6}},
      {"addcdiv_", {x(), ones, ones}, {}, {2, 3}, {4, 2, 3, 7, 6, 5}},
      {"remainder_", {x(), two}, {}, {2, 3}, {1, 1, 0, 0, 1, 0}},
      {"index_add_",
       {x(), zero, tensor({1}), troupe::ones({1, 3}, float64), two},
       {},
       {2, 3},
       {3, 1, 2, 8, 7, 6}},
      {"lerp_", {x(), ones, 1.0}, {}, {2, 3}, {1, 1, 1, 1, 1, 1}},
      {"masked_fill_", {x(), mask(), zero}, {}, {2, 3}, {3, 1, 2, 0, 0, 0}},
      {"neg_", {x()}, {}, {2, 3}, {-3, -1, -2, -6, -5, -4}},
      {"square_", {x()}, {}, {2, 3}, {9, 1, 4, 36, 25, 16}},
      {"addcmul", {x(), ones, ones}, {{"value", two}}, {2, 3}, {5, 3, 4, 8, 7, 6}},
      {"addcdiv", {x(), ones, ones}, {}, {2, 3}, {4, 2, 3, 7, 6, 5}},
      {"lerp", {x(), ones, 1.0}, {}, {2, 3}, {1, 1, 1, 1, 1, 1}},
      {"allclose", {x(), x()}, {}, {}},
      {"equal", {x(), x()}, {}, {}},
      {"masked_fill", {x(), mask(), tensor(0.0, float64)}, {}, {2, 3}, {3, 1, 2, 0, 0, 0}},
      {"isinf", {x()}, {}, {2, 3}, {0, 0, 0, 0, 0, 0}},
      {"bitwise_and", {mask(), mask()}, {}, {2, 3}, {0, 0, 0, 1, 1, 1}},
      {"bitwise_or", {mask(), mask()}, {}, {2, 3}, {0, 0, 0, 1, 1, 1}},
      {"bitwise_xor", {mask(), mask()}, {}, {2, 3}, {0, 0, 0, 0, 0, 0}},
      {"bitwise_not", {mask()}, {}, {2, 3}, {1, 1, 1, 0, 0, 0}},
      {"mm", {ones, ops::t(ones)}, {}, {2, 2}, {3, 3, 3, 3}},
      {"bmm", {ops::unsqueeze(ones, 0), ops::unsqueeze(ops::t(ones), 0)}, {}, {1, 2, 2}, {3, 3, 3, 3}},
      {"mv", {ops::t(ones), vector}, {}, {3}, {3, 3, 3}},
      {"dot", {vector, vector}, {}, {}, {5}},
      {"einsum", {std::string("i,i->"), ValueList{vector, vector}}, {}, {}, {5}},
      {"norm", {x()}, {{"p", one}}, {}, {21}},
      {"pad", {vector, list({1, 0})}, {{"value", 9.0}}, {3}, {9, 1, 2}},
      {"one_hot", {tensor({1})}, {}, {1, 2}, {0, 1}},
      {"bincount", {tensor({1, 1})}, {{"minlength", three}}, {3}, {0, 2, 0}},
      {"rms_norm", {ones, three}, {}, {2, 3}},
      {"group_norm", {x(), one}, {}, {2, 3}},
      {"embedding", {tensor({1, 0}), x()}, {{"padding_idx", int64_t{-1}}}, {2, 3}, {6, 5, 4, 3, 1, 2}},
      {"embedding_bag", {tensor({{0, 1}}), x()}, {}, {1, 3}, {4.5, 3, 3}},
      {"scaled_dot_product_attention", {ones, ones, ones}, {{"is_causal", true}}, {2, 3}},
      {"eye", {two}, {}, {2, 2}, {1, 0, 0, 1}},
      {"arange", {three}, {}, {3}, {0, 1, 2}},
      {"arange", {one, 2.0, 0.5}, {}, {2}, {1, 1.5}},
      {"linspace", {0.0, 1.0, three}, {}, {3}, {0, 0.5, 1}},
      {"zeros_like", {x()}, {}, {2, 3}, {0, 0, 0, 0, 0, 0}},
      {"ones_like", {vector}, {}, {2}, {1, 1}},
      {"full_like", {vector, 7.0}, {{"dtype", std::string("int64")}}, {2}, {7, 7}},
      {"rand_like", {x()}, {}, {2, 3}},
      {"randn_like", {x()}, {}, {2, 3}},
      {"randint", {zero, one, list({3})}, {}, {3}, {0, 0, 0}},
      {"bernoulli", {ones}, {}, {2, 3}, {1, 1, 1, 1, 1, 1}},
      {"multinomial", {vector, two}, {}, {2}},
      {"squeeze", {ops::unsqueeze(x(), 0), list({0, 1})}, {}, {2, 3}},
      {"movedim", {x(), list({0, 1}), list({1, 0})}, {}, {3, 2}},
      {"sum", {x()}, {{"dim", one}, {"dtype", std::string("int64")}}, {2}, {6, 15}},
      {"mean", {x(), one, true}, {}, {2, 1}, {2, 5}},
      {"prod", {x()}, {{"dtype", std::string("float32")}}, {}, {720}},
      {"cumsum", {x(), one}, {}, {2, 3}, {3, 4, 6, 6, 11, 15}},
      {"cumprod", {x(), one, std::string("int64")}, {}, {2, 3}, {3, 3, 6, 6, 30, 120}},
      {"softmax", {ops::mul(ones, 0), one}, {{"dtype", std::string("float32")}}, {2, 3}},
      {"log_softmax", {ones, one}, {}, {2, 3}},
      {"nonzero", {mask()}, {}, {3, 2}, {1, 0, 1, 1, 1, 2}},
      {"nonzero", {mask()}, {{"as_tuple", true}}, {3}, {1, 1, 1}},
      {"div", {x(), two}, {{"rounding_mode", std::string("floor")}}, {2, 3}, {1, 0, 1, 3, 2, 2}},
      {"div", {6.0, x()}, {}, {2, 3}, {2, 6, 3, 1, 1.2, 1.5}},
      {"clamp", {x(), ops::mul(ones, 2), 4.0}, {}, {2, 3}, {3, 2, 2, 4, 4, 4}},
      {"nan_to_num", {x()}, {}, {2, 3}, {3, 1, 2, 6, 5, 4}},
      {"isclose", {x(), x()}, {}, {2, 3}, {1, 1, 1, 1, 1, 1}},
      {"softplus", {x(), two, one}, {}, {2, 3}, {3, 1, 2, 6, 5, 4}},
      {"repeat_interleave", {vector, two}, {}, {4}, {1, 1, 2, 2}},
      {"repeat_interleave", {vector, tensor({0, 2})}, {{"dim", zero}}, {2}, {2, 2}},
      {"broadcast_to", {vector, list({2, 2})}, {}, {2, 2}, {1, 2, 1, 2}},
      {"hstack", {Value(ValueList{vector, vector})}, {}, {4}, {1, 2, 1, 2}},
      {"vstack", {Value(ValueList{vector, vector})}, {}, {2, 2}, {1, 2, 1, 2}},
      {"dstack", {Value(ValueList{vector, vector})}, {}, {1, 2, 2}, {1, 1, 2, 2}},
      {"meshgrid", {Value(ValueList{vector, vector})}, {}, {2, 2}, {1, 1, 2, 2}},
      {"diag", {vector}, {}, {2, 2}, {1, 0, 0, 2}},
      {"scatter", {x(), one, tensor({{2}, {0}}), 9.0}, {}, {2, 3}, {3, 1, 9, 9, 5, 4}},
      {"index_fill", {x(), zero, tensor({1}), zero}, {}, {2, 3}, {3, 1, 2, 0, 0, 0}},
      {"take_along_dim", {x(), tensor({{2}, {0}}), one}, {}, {2, 1}, {2, 6}},
      {"index_put", {x(), ValueList{tensor({1})}, tensor(7, float64)}, {}, {2, 3}, {3, 1, 2, 7, 7, 7}},
      {"index_put",
       {x(), ValueList{Value(), tensor({0, 0})}, tensor({1}, float64), true},
       {},
       {2, 3},
       {5, 1, 2, 8, 5, 4}},
      {"linalg_inv", {diagonal}, {}, {2, 2}, {0.5, 0, 0, 0.25}},
      {"linalg_det", {diagonal}, {}, {}, {8}},
      {"linalg_slogdet", {diagonal}, {}, {}, {1}},
      {"linalg_solve", {diagonal, vector}, {}, {2}, {0.5, 0.5}},
      {"linalg_cholesky", {ops::square(diagonal)}, {}, {2, 2}, {2, 0, 0, 4}},
      {"linalg_qr", {diagonal, std::string("r")}, {}, {2, 2}},
      {"linalg_svd", {diagonal}, {{"full_matrices", false}}, {2, 2}},
      {"linalg_svdvals", {diagonal}, {}, {2}, {4, 2}},
      {"linalg_eigh", {diagonal}, {}, {2}, {2, 4}},
      {"linalg_eigvalsh", {diagonal, std::string("U")}, {}, {2}, {2, 4}},
      {"var", {x(), one}, {{"correction", zero}}, {2}, {2. / 3, 2. / 3}},
      {"std", {x(), one}, {}, {2}, {1, 1}},
      {"var_mean", {x(), one}, {}, {2}, {1, 1}},
      {"std_mean", {x(), one, false}, {}, {2}},
      {"normalize", {tensor({{3, 4}}, float64)}, {}, {1, 2}, {0.6, 0.8}},
      {"cosine_similarity", {x(), x()}, {}, {2}},
      {"binary_cross_entropy", {ones, ones}, {}, {}, {0}},
      {"addmm", {ones, ops::matmul(x(), ops::t(x())), ones}, {{"alpha", zero}}, {2, 3}, {1, 1, 1, 1, 1, 1}},
      {"addmv", {vector, x(), ones[0]}, {}, {2}, {7, 17}},
      {"addbmm", {zero_matrix(), ones[None], ops::t(x())[None]}, {}, {2, 2}, {6, 15, 6, 15}},
      {"baddbmm", {zero_matrix(), ones[None], ops::t(x())[None]}, {}, {1, 2, 2}, {6, 15, 6, 15}},
      {"addr", {zero_matrix(), vector, vector}, {}, {2, 2}, {1, 2, 2, 4}},
      {"tensordot", {x(), x()}, {}, {}, {91}},
      {"tensordot", {x(), x(), ValueList{list({0}), list({0})}}, {}, {3, 3}},
      {"rotary_table", {tensor({0, 5}), two}, {}, {2, 1}},
      {"conv2d", {ones[None], troupe::ones({1, 1, 1, 2}, float64)}, {}, {1, 2, 2}, {2, 2, 2, 2}},
      {"conv2d",
       {ones[None], troupe::ones({1, 1, 1, 2}, float64)},
       {{"padding", std::string("same")}},
       {1, 2, 3},
       {2, 2, 1, 2, 2, 1}},
      {"max_pool2d", {x()[None], list({1, 2})}, {{"ceil_mode", true}}, {1, 2, 2}, {3, 2, 6, 4}},
      {"max_pool2d", {x()[None], two}, {{"return_indices", true}}, {1, 1, 1}, {6}},
      {"avg_pool2d", {x()[None], two}, {{"divisor_override", one}}, {1, 1, 1}, {15}},
      {"softmin", {troupe::zeros({2}, int64)}, {{"dtype", std::string("float64")}}, {2}, {0.5, 0.5}},
      {"round", {tensor({12.25, 17.75}, float64)}, {{"decimals", one}}, {2}, {12.2, 17.8}},
      {"round_", {tensor({12.25, 17.75}, float64)}, {}, {2}, {12, 18}},
      {"div_", {x(), two}, {{"rounding_mode", std::string("floor")}}, {2, 3}, {1, 0, 1, 3, 2, 2}},
      {"clamp_", {x(), tensor(2., float64), three}, {}, {2, 3}, {3, 2, 2, 3, 3, 3}},
      {"conv1d", {ones[None], troupe::ones({1, 2, 2}, float64)}, {}, {1, 1, 2}, {4, 4}},
      {"conv_transpose1d", {ones[None], troupe::ones({2, 1, 1}, float64)}, {}, {1, 1, 3}, {2, 2, 2}},
      {"conv_transpose2d",
       {x()[None][None], troupe::ones({1, 1, 1, 1}, float64)},
       {{"stride", list({1, 2})}},
       {1, 1, 2, 5},
       {3, 0, 1, 0, 2, 6, 0, 5, 0, 4}},
      {"unfold", {x()[None][None], two}, {}, {1, 4, 2}, {3, 1, 1, 2, 6, 5, 5, 4}},
      {"fold", {troupe::ones({1, 4, 2}, float64), list({2, 3}), two}, {}, {1, 1, 2, 3}, {1, 2, 1, 1, 2, 1}},
      {"pixel_shuffle", {ops::reshape(arange(4, float64), {4, 1, 1}), two}, {}, {1, 2, 2}, {0, 1, 2, 3}},
      {"pixel_unshuffle", {ops::reshape(arange(4, float64), {1, 2, 2}), two}, {}, {4, 1, 1}, {0, 1, 2, 3}},
      {"interpolate", {vector[None][None]}, {{"scale_factor", 2.0}}, {1, 1, 4}, {1, 1, 2, 2}},
      {"interpolate", {vector[None][None], one}, {{"mode", std::string("area")}}, {1, 1, 1}, {1.5}},
      {"adaptive_avg_pool1d", {x(), one}, {}, {2, 1}, {2, 5}},
      {"adaptive_max_pool1d", {x(), one}, {}, {2, 1}, {3, 6}},
      {"adaptive_avg_pool2d", {x()[None], list({1, 1})}, {}, {1, 1, 1}, {3.5}},
      {"adaptive_max_pool2d", {x()[None], one}, {}, {1, 1, 1}, {6}},
      {"instance_norm", {x()[None]}, {}, {1, 2, 3}},
      {"conv3d",
       {x()[None][None][None], troupe::ones({1, 1, 1, 1, 2}, float64)},
       {{"stride", list({1, 1, 1})}},
       {1, 1, 1, 2, 2},
       {4, 3, 11, 9}},
      {"adaptive_max_pool1d", {x(), one}, {{"return_indices", true}}, {2, 1}, {3, 6}},
      {"unique", {x()}, {{"dim", zero}, {"return_inverse", true}}, {2, 3}, {3, 1, 2, 6, 5, 4}},
      {"searchsorted", {vector, 1.5}, {{"sorter", tensor({0, 1})}}, {}, {1}},
      {"embedding_bag",
       {tensor({{0, 1}}), x()},
       {{"mode", std::string("max")}, {"padding_idx", zero}},
       {1, 3},
       {6, 5, 4}},
      {"pairwise_distance", {x(), x()}, {{"eps", 0.0}}, {2}, {0, 0}},
      {"triplet_margin_loss", {x(), x(), x()}, {}, {}},
      {"ctc_loss", {zeros({1, 1, 2}, float64), tensor({{1}}), tensor({1}), tensor({1})}, {}, {}, {0}},
      {"cummax", {x(), one}, {}, {2, 3}, {3, 3, 3, 6, 6, 6}},
      {"cummin", {x(), one}, {}, {2, 3}, {3, 1, 1, 6, 5, 4}},
      {"kthvalue", {x(), two}, {}, {2}, {2, 5}},
      {"quantile", {x(), 0.5, one}, {}, {2}, {2, 5}},
      {"quantile", {vector, vector - 1}, {{"interpolation", std::string("lower")}}, {2}, {1, 2}},
      {"searchsorted", {vector, 1.5}, {}, {}, {1}},
      {"searchsorted", {vector, vector}, {{"side", std::string("right")}}, {2}, {1, 2}},
      {"bucketize", {vector, vector}, {}, {2}, {0, 1}},
      {"unique", {tensor({2, 1, 2})}, {}, {2}, {1, 2}},
      {"unique", {tensor({2, 1, 2})}, {{"return_counts", true}}, {2}, {1, 2}}};
}

}  // namespace

TEST_CASE("an operator's entry has its inputs, its attributes and their defaults") {
  CHECK(signature("linear") == "linear(input: tensor, weight: tensor, bias: tensor = none) -> tensor");
  CHECK(function("conv2d").signature() ==
        "conv2d(input: tensor, weight: tensor, bias: tensor = none, stride: list of int64 = [1], padding: "
        "any value = [0], dilation: list of int64 = [1], groups: int64 = 1) -> tensor");
  CHECK(signature("cat") == "cat(tensors: list of tensor, dim: int64 = 0) -> tensor");
  CHECK(signature("masked_fill") == "masked_fill(input: tensor, mask: tensor, value: number = 0) -> tensor");
  CHECK(function("to").signature() == "to(input: tensor, dtype: dtype) -> tensor");
  CHECK(signature("gather") == "gather(input: tensor, dim: int64, index: tensor) -> tensor");
  CHECK(signature("gelu") == "gelu(input: tensor, approximate: string = \"none\") -> tensor");
}

TEST_CASE("no function writes to what another process has") {
  const auto received = [](ValueList values) {
    for (Value& v : values)
      if (const Tensor* t = v.get_if<Tensor>()) v = testing::received(*t);
    return values;
  };
  std::set<std::string> tried;
  for (const Trial& t : trials()) {
    INFO(t.name);
    tried.insert(t.name);
    const Value result = function(t.name)(received(t.positional), t.named);
    if (const Tensor* got = result.get_if<Tensor>(); got && !t.elements.empty())
      CHECK(numbers(*got) == t.elements);
  }
  for (const auto& f : ops::functions()) {
    if (tried.count(f.name) || !f.name.ends_with("_")) continue;
    INFO(f.name);
    const Tensor there = testing::received(x());
    const Tensor result = std::get<Tensor>(f(ValueList{there}, {}).v);
    CHECK(result.is_same(there));
    CHECK_FALSE(result.storage()->borrowed());
  }
  const Tensor put = testing::received(x());
  ops::index_put_(put, {tensor({1})}, tensor({7}, float64));
  put[0] = 2;
  CHECK(numbers(put) == Numbers{2, 2, 2, 7, 7, 7});
}

TEST_CASE("every function of the table runs by name") {
  std::set<std::string> tried;
  for (const Trial& t : trials()) {
    INFO(t.name);
    tried.insert(t.name);
    Value result = function(t.name)(t.positional, t.named);
    if (t.name == "manual_seed") {
      CHECK(result.is_null());
      continue;
    }
    if (const auto* yes = result.get_if<bool>()) {
      CHECK(*yes);
      continue;
    }
    if (auto* several = result.get_if<ValueList>()) result = Value((*several)[0]);
    const Tensor* got = result.get_if<Tensor>();
    REQUIRE(got);
    CHECK(got->shape() == t.shape);
    if (!t.elements.empty()) CHECK(numbers(*got) == t.elements);
  }
  std::set<std::string> names;
  for (const auto& f : ops::functions()) {
    INFO(f.signature());
    CHECK(names.insert(f.name).second);
    CHECK((!f.text.empty() && f.text.back() == '.'));
    const ops::Op* op = ops::find_op(f.name);
    CHECK((!op || op->internal));
    if (tried.count(f.name)) continue;
    // What is left are functions of one tensor, in place.
    REQUIRE(f.name.ends_with("_"));
    const Tensor t = x();
    CHECK(call(f.name, {t}).is_same(t));
    CHECK(numbers(t) == numbers(ops::apply1(*ops::find_op(f.name.substr(0, f.name.size() - 1)), {x()})));
  }
}

TEST_CASE("operators that are not to be called by name have a function, or none that programs know") {
  std::set<std::string> functions, helpers;
  for (const auto& f : ops::functions()) functions.insert(f.name);
  for (const ops::Op* op : ops::all_ops())
    if (op->internal && !functions.count(op->name)) helpers.insert(op->name);
  for (const std::string& name : helpers) {
    INFO(name);
    const bool helper = name.find("_grad") != std::string::npos || name.ends_with("_scalar") ||
                        name.starts_with("channel_") || name.ends_with("_along") || name.ends_with("_pick");
    CHECK((helper || name == "attention" || name == "soft_cross_entropy"));
  }
}

TEST_CASE("what PyTorch programs call is found by name") {
  std::ifstream in(std::string(testing::kOracleFolder) + "/programs.json");
  const auto all = nlohmann::json::parse(in);
  std::set<std::string> functions, missing;
  for (const auto& f : ops::functions()) functions.insert(f.name);
  for (const auto& program : all.at("programs"))
    for (const auto& statement : program.at("body")) {
      if (!statement.contains("op")) continue;
      const std::string name = statement.at("op");
      const ops::Op* op = ops::find_op(name);
      if (!functions.count(name) && !(op && !op->internal)) missing.insert(name);
    }
  CHECK(missing == std::set<std::string>{"getitem", "setitem"});
}

TEST_CASE("arguments that do not fit a function are refused with its signature") {
  const auto said = [](auto f) { return error_of(f).message(); };
  CHECK(said([] { function("narrow")({x()}); }) ==
        "narrow needs \"dim\": narrow(input: tensor, dim: int64, start: int64, length: int64) -> tensor");
  CHECK_THAT(said([] {
               function("add_")({x(), std::string("a")});
             }),
             Contains("add_: other: expected tensor or number, got string"));
  CHECK_THAT(said([] { function("zeros")({ValueList{true}}); }),
             Contains("zeros: size: expected list of int64"));
  CHECK_THAT(said([] {
               function("layer_norm")({x(), int64_t{2}}, {{"weight", ones({3}, float64)}});
             }),
             Contains("[layer_norm] weight must be [2]"));
  CHECK_THAT(said([] { function("max")({x()}, {{"keepdim", true}}); }), Contains("keepdim needs dim"));
}
