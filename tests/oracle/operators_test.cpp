// Every operator against reference values: results and vector-Jacobian products, in float64 and float32.
#include <catch2/catch.hpp>
#include <functional>
#include <iostream>
#include <map>
#include <set>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tests/support/near.h"
#include "tests/support/oracle.h"

using namespace troupe;

namespace {

using ops::Attrs;
using Function = std::function<Tensors(const Tensors&, const Attrs&)>;

// Cases of the file that are not here yet. A name leaves this list when its operator arrives.
const std::set<std::string> kNotYet = {};

// A list of numbers among the attributes, as a tensor like `like`.
Tensor attr_tensor(const Attrs& attrs, const char* name, const Tensor& like) {
  return ops::to(tensor(attrs.get<std::vector<double>>(name), float64), like.dtype());
}

// Cases that combine operators, or have as attributes what are tensors here.
const std::map<std::string, Function> kCombinations = {
    {"sum_all", [](const Tensors& x, const Attrs&) { return Tensors{ops::sum(x[0])}; }},
    {"mean_all", [](const Tensors& x, const Attrs&) { return Tensors{ops::mean(x[0])}; }},
    {"matmul_transposed",
     [](const Tensors& x, const Attrs&) {
       return Tensors{ops::matmul(x[0].transpose(0, 1), x[1].transpose(0, 1))};
     }},
    {"reshape_of_transposed",
     [](const Tensors& x, const Attrs& a) {
       return ops::apply(ops::kReshape, std::vector{x[0].transpose(0, 1)}, a);
     }},
    {"batch_norm_eval",
     [](const Tensors& x, const Attrs& a) {
       return Tensors{ops::batch_norm_eval(x[0], x[1], x[2], attr_tensor(a, "mean", x[0]),
                                           attr_tensor(a, "var", x[0]), a.number("eps"))};
     }},
    {"embedding_bag",
     [](const Tensors& x, const Attrs& a) {
       return Tensors{ops::embedding_bag(x[0], x[1], tensor(a.ints("offsets")), a.text("mode"))};
     }},
    {"group_norm",
     [](const Tensors& x, const Attrs& a) {
       return Tensors{ops::group_norm(x[0], a.integer("groups"), x[1], x[2], a.number("eps"))};
     }},
    {"one_hot",
     [](const Tensors& x, const Attrs& a) { return Tensors{ops::one_hot(x[0], a.integer("classes"))}; }},
    {"concat", [](const Tensors& x, const Attrs& a) { return Tensors{ops::cat(x, a.integer("dim"))}; }},
    {"mul_self_plus_self", [](const Tensors& x, const Attrs&) { return Tensors{x[0] * x[0] + x[0]}; }},
    {"diamond", [](const Tensors& x,
                   const Attrs&) { return Tensors{x[0].matmul(x[1]).tanh() * x[0].matmul(x[1]).sigmoid()}; }},
    {"two_layer_mlp_loss",
     [](const Tensors& x, const Attrs&) {
       const Tensor hidden = ops::relu(ops::linear(x[0], x[1], x[2]));
       return Tensors{ops::cross_entropy(ops::linear(hidden, x[3], x[4]), x[5])};
     }},
};

Function function_of(const std::string& name) {
  if (const auto it = kCombinations.find(name); it != kCombinations.end()) return it->second;
  const ops::Op* op = ops::find_op(name);
  if (!op) return {};
  return [op](const Tensors& in, const Attrs& attrs) { return ops::apply(*op, in, attrs); };
}

void check_case(const nlohmann::json& c, const Function& f, DType dtype) {
  const std::set<std::string> long_reductions = {"var", "conv2d", "batch_norm_train", "batch_norm_eval",
                                                 "group_norm"};
  const double relative = dtype == float64 ? 1e-12 : long_reductions.count(c.at("op")) ? 1e-4 : 1e-5;
  const double absolute = dtype == float64 ? 1e-12 : 1e-6;
  Tensors in = testing::to_tensors(c.at("inputs"), dtype), wanted;
  for (Tensor& t : in)
    if (is_floating(t.dtype())) wanted.push_back(t.requires_grad_());
  const Tensors out = f(in, testing::to_attrs(c.at("attrs")));
  const Tensors expected = testing::to_tensors(c.at("outputs"), dtype);
  // The file has only what PyTorch's function returns, without the statistics of the batch.
  REQUIRE(out.size() == expected.size() + (c.at("op") == "batch_norm_train" ? 2 : 0));
  Tensors roots, weights;
  const Tensors grad_outputs = testing::to_tensors(c.at("grad_outputs"), dtype);
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(out[i].dtype() == expected[i].dtype());
    CHECK(testing::difference(out[i], expected[i], relative, absolute) == "");
    if (!grad_outputs[i].defined()) continue;
    roots.push_back(out[i]);
    weights.push_back(grad_outputs[i]);
  }
  if (roots.empty()) return;
  const Tensors grads = autograd::grad(roots, wanted, weights);
  size_t next = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!in[i].requires_grad()) continue;
    INFO("gradient of input " << i);
    CHECK(testing::difference(grads[next++], testing::to_tensor(c.at("grad_inputs")[i], dtype), relative,
                              absolute) == "");
  }
}

TEST_CASE("operators agree with the reference values", "[oracle]") {
  const auto file = testing::read_oracle("operators.json");
  std::set<std::string> missing;
  int checked = 0, skipped = 0;
  for (const auto& c : file.at("cases")) {
    const std::string name = c.at("op");
    const Function f = function_of(name);
    if (!f) {
      missing.insert(name);
      ++skipped;
      continue;
    }
    ++checked;
    for (const DType t : {float64, float32}) {
      INFO(name << " " << c.at("attrs").dump() << " in " << troupe::name(t));
      check_case(c, f, t);
    }
  }
  std::cout << "[oracle] " << checked << " cases checked, " << skipped << " of operators that are not here:";
  for (const auto& name : missing) std::cout << " " << name;
  std::cout << "\n";
  CHECK(checked > 0);
  CHECK(missing == kNotYet);
}

}  // namespace
