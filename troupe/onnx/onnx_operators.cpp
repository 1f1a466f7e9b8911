#include "troupe/onnx/onnx_operators.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string_view>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/view.h"

namespace troupe::internal::onnx {

namespace {

using Ints = std::vector<int64_t>;

// One operator that is being added.
struct Adding {
  OnnxGraph& graph;
  const ops::Call& call;
  const Tensors& out;

  std::string in(size_t i) const { return graph.name_of(call.in[i]); }
  DType dtype(size_t i = 0) const { return call.in[i].dtype(); }
  int64_t rank(size_t i = 0) const { return call.in[i].dim(); }
  // A dimension from the beginning.
  int64_t dim(const char* name, size_t i = 0) const {
    const int64_t d = call.attrs.integer(name);
    return d < 0 ? d + rank(i) : d;
  }
  std::string number(double value) const { return graph.number(value, dtype()); }
  std::string node(const std::string& type, const std::vector<std::string>& inputs,
                   const std::vector<Attribute>& attributes = {}) const {
    return graph.node(type, inputs, attributes);
  }
  std::vector<std::string> all() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < call.in.size(); ++i) names.push_back(in(i));
    return names;
  }
  std::string shaped(const std::string& x, const Shape& shape) const {
    return node("Reshape", {x, graph.ints(Ints(shape.begin(), shape.end()))}, {{"allowzero", int64_t{1}}});
  }
};

using Rule = std::function<std::string(const Adding&)>;

Rule plain(const char* type) {
  return [type](const Adding& a) { return a.node(type, a.all()); };
}
// A rule with a number in the place of the second input.
Rule with_number(const char* type, const char* attribute) {
  return [type, attribute](const Adding& a) {
    return a.node(type, {a.in(0), a.number(a.call.attrs.scalar(attribute).to<double>())});
  };
}
// A rule for the opposite of what a type says.
Rule negated(const char* type) {
  return [type](const Adding& a) { return a.node("Not", {a.node(type, a.all())}); };
}
Rule reduction(const char* type) {
  return [type](const Adding& a) {
    Ints dims = a.call.attrs.ints("dim");
    for (int64_t& d : dims) d = d < 0 ? d + a.rank() : d;
    const int64_t keep = a.call.attrs.flag("keepdim");
    if (dims.empty()) return a.node(type, {a.in(0)}, {{"keepdims", keep}});
    return a.node(type, {a.in(0), a.graph.ints(dims)}, {{"keepdims", keep}});
  };
}
std::string to_shape(const Adding& a) { return a.shaped(a.in(0), a.out[0].shape()); }

// Gives x weight' + bias, of the last dimension.
std::string linear(const Adding& a, size_t bias) {
  const std::string weight = a.node("Transpose", {a.in(1)}, {{"perm", Ints{1, 0}}});
  const std::string y = a.node("MatMul", {a.in(0), weight});
  return a.call.in.size() > bias && a.call.in[bias].defined() ? a.node("Add", {y, a.in(bias)}) : y;
}

// Gives softmax(q k' scale + mask) v of the last two dimensions.
std::string mixed(const Adding& a, const std::string& q, const std::string& k, const std::string& v,
                  int64_t rank, int64_t time, int64_t keys, int64_t width, bool causal, double scale) {
  Ints perm;
  for (int64_t i = 0; i < rank; ++i) perm.push_back(i);
  std::swap(perm[static_cast<size_t>(rank - 1)], perm[static_cast<size_t>(rank - 2)]);
  std::string scores = a.node("MatMul", {q, a.node("Transpose", {k}, {{"perm", perm}})});
  scores = a.node("Mul", {scores, a.number(scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(width)))});
  if (causal) {
    const Tensor mask = zeros({time, keys}, float32);
    for (int64_t i = 0; i < time; ++i)
      for (int64_t j = i + 1; j < keys; ++j)
        mask.data<float>()[i * keys + j] = -std::numeric_limits<float>::infinity();
    scores = a.node("Add", {scores, a.graph.name_of(ops::to(mask, a.dtype()))});
  }
  return a.node("MatMul", {a.node("Softmax", {scores}, {{"axis", int64_t{-1}}}), v});
}

std::string attention(const Adding& a) {
  const Tensor &q = a.call.in[0], &k = a.call.in[1];
  return mixed(a, a.in(0), a.in(1), a.in(2), q.dim(), q.size(-2), k.size(-2), q.size(-1),
               a.call.attrs.flag("causal"), a.call.attrs.number("scale"));
}

std::string self_attention(const Adding& a) {
  const Tensor& x = a.call.in[0];
  const int64_t batch = x.size(0), time = x.size(1), heads = a.call.attrs.integer("heads"),
                width = x.size(2) / 3 / heads;
  const std::string parted = a.node("Transpose", {a.shaped(a.in(0), {batch, time, 3, heads, width})},
                                    {{"perm", Ints{2, 0, 3, 1, 4}}});
  const auto part = [&](int64_t i) {
    return a.node("Gather", {parted, a.graph.name_of(full({}, static_cast<double>(i), int64))},
                  {{"axis", int64_t{0}}});
  };
  const std::string y = mixed(a, part(0), part(1), part(2), 4, time, time, width, a.call.attrs.flag("causal"),
                              a.call.attrs.number("scale"));
  return a.shaped(a.node("Transpose", {y}, {{"perm", Ints{0, 2, 1, 3}}}), {batch, time, heads * width});
}

std::string rms_norm(const Adding& a) {
  Ints dims;
  for (int64_t i = a.rank() - a.rank(1); i < a.rank(); ++i) dims.push_back(i);
  const std::string x = a.in(0);
  const std::string mean = a.node("ReduceMean", {a.node("Mul", {x, x}), a.graph.ints(dims)});
  const std::string root = a.node("Sqrt", {a.node("Add", {mean, a.number(a.call.attrs.number("eps"))})});
  return a.node("Mul", {a.node("Div", {x, root}), a.in(1)});
}

std::string variance(const Adding& a, bool root) {
  Ints dims = a.call.attrs.ints("dim");
  int64_t n = 1;
  if (dims.empty())
    for (int64_t d = 0; d < a.rank(); ++d) dims.push_back(d);
  for (int64_t& d : dims) d = d < 0 ? d + a.rank() : d, n *= a.call.in[0].size(d);
  const std::string axes = a.graph.ints(dims);
  const std::string off = a.node("Sub", {a.in(0), a.node("ReduceMean", {a.in(0), axes})});
  const std::string sum = a.node("ReduceSum", {a.node("Mul", {off, off}), axes},
                                 {{"keepdims", int64_t{a.call.attrs.flag("keepdim")}}});
  const std::string var =
      a.node("Div", {sum, a.number(static_cast<double>(n - (a.call.attrs.flag("unbiased") ? 1 : 0)))});
  return root ? a.node("Sqrt", {var}) : var;
}

std::string channel_affine(const Adding& a) {
  Shape shape = a.call.in[0].shape();
  for (int i = 0; i < shape.rank(); ++i)
    if (i != 1) shape[i] = 1;
  const auto part = [&](size_t i) { return a.shaped(a.in(i), shape); };
  return a.node("Add", {a.node("Mul", {a.node("Sub", {a.in(0), part(1)}), part(2)}), part(3)});
}

// Normalizes by the statistics of the input itself, of so many channels together: group_norm is made of it.
std::string batch_norm(const Adding& a) {
  const Shape shape = a.call.in[0].shape();
  const int64_t together = a.call.attrs.integer("together"), groups = shape[1] / together;
  Shape one = shape;
  for (int i = 0; i < one.rank(); ++i)
    if (i != 1) one[i] = 1;
  const std::string x =
      a.shaped(a.in(0), {shape[0], groups, shape.numel() / std::max<int64_t>(shape[0] * groups, 1)});
  const std::string axes = a.graph.ints({0, 2});
  const std::string off = a.node("Sub", {x, a.node("ReduceMean", {x, axes})});
  const std::string var = a.node("ReduceMean", {a.node("Mul", {off, off}), axes});
  const std::string root = a.node("Sqrt", {a.node("Add", {var, a.number(a.call.attrs.number("eps"))})});
  const std::string y = a.shaped(a.node("Div", {off, root}), shape);
  return a.node("Add", {a.node("Mul", {y, a.shaped(a.in(1), one)}), a.shaped(a.in(2), one)});
}

std::vector<Attribute> window(const Adding& a, bool dilated) {
  const Ints &stride = a.call.attrs.ints("stride"), &pad = a.call.attrs.ints("padding");
  std::vector<Attribute> all{{"strides", stride}, {"pads", Ints{pad[0], pad[1], pad[0], pad[1]}}};
  if (dilated)
    all.emplace_back("dilations", a.call.attrs.ints("dilation"));
  else
    all.emplace_back("kernel_shape", a.call.attrs.ints("kernel_size"));
  return all;
}

std::string conv2d(const Adding& a) {
  auto attributes = window(a, true);
  attributes.emplace_back("group", a.call.attrs.integer("groups"));
  return a.node("Conv", a.all(), attributes);
}

std::string slice(const Adding& a, int64_t dim, int64_t start, int64_t stop, int64_t step) {
  return a.node("Slice", {a.in(0), a.graph.ints({start}), a.graph.ints({stop}), a.graph.ints({dim}),
                          a.graph.ints({step})});
}

std::string sliced(const Adding& a) {
  const int64_t dim = a.dim("dim"), step = a.call.attrs.integer("step");
  int64_t start = a.call.attrs.integer("start");
  if (start < 0) start += a.call.in[0].size(dim);
  start = std::max<int64_t>(0, std::min(start, a.call.in[0].size(dim)));
  return slice(a, dim, start, start + a.out[0].size(dim) * step, step);
}

std::string split(const Adding& a) {
  const int64_t dim = a.dim("dim");
  int64_t from = 0;
  std::string first;
  for (const Tensor& part : a.out) {
    const std::string name = slice(a, dim, from, from + part.size(dim), 1);
    a.graph.give(part, name);
    if (first.empty()) first = name;
    from += part.size(dim);
  }
  return first;
}

std::string padded(const Adding& a) {
  const Ints& widths = a.call.attrs.ints("pad");  // the last dimension first
  Ints pads(2 * static_cast<size_t>(a.rank()));
  for (size_t i = 0; i < widths.size(); ++i) {
    const size_t dim = static_cast<size_t>(a.rank()) - 1 - i / 2;
    pads[dim + (i % 2 ? static_cast<size_t>(a.rank()) : 0)] = widths[i];
  }
  return a.node("Pad", {a.in(0), a.graph.ints(pads), a.number(a.call.attrs.scalar("value").to<double>())});
}

// The largest or smallest along a dimension, and its place.
std::string along(const Adding& a, const char* value, const char* place) {
  const int64_t dim = a.dim("dim"), keep = a.call.attrs.flag("keepdim");
  a.graph.give(a.out[1], a.node(place, {a.in(0)}, {{"axis", dim}, {"keepdims", keep}}));
  return a.node(value, {a.in(0), a.graph.ints({dim})}, {{"keepdims", keep}});
}

std::string clamped(const Adding& a) {
  std::string x = a.in(0);
  if (a.call.attrs.flag("has_min")) x = a.node("Max", {x, a.number(a.call.attrs.scalar("min").to<double>())});
  if (a.call.attrs.flag("has_max")) x = a.node("Min", {x, a.number(a.call.attrs.scalar("max").to<double>())});
  return x;
}

Rule logarithm(double base) {
  return [base](const Adding& a) {
    return a.node("Div", {a.node("Log", {a.in(0)}), a.number(std::log(base))});
  };
}

void add_elementwise(std::map<std::string_view, Rule>& t) {
  for (const auto& [ours, theirs] : std::initializer_list<std::pair<const char*, const char*>>{
           {"add", "Add"},         {"sub", "Sub"},
           {"mul", "Mul"},         {"div", "Div"},
           {"pow", "Pow"},         {"maximum", "Max"},
           {"minimum", "Min"},     {"eq", "Equal"},
           {"lt", "Less"},         {"le", "LessOrEqual"},
           {"gt", "Greater"},      {"ge", "GreaterOrEqual"},
           {"where", "Where"},     {"logical_and", "And"},
           {"logical_or", "Or"},   {"logical_not", "Not"},
           {"neg", "Neg"},         {"abs", "Abs"},
           {"sign", "Sign"},       {"floor", "Floor"},
           {"ceil", "Ceil"},       {"round", "Round"},
           {"exp", "Exp"},         {"log", "Log"},
           {"sqrt", "Sqrt"},       {"reciprocal", "Reciprocal"},
           {"sin", "Sin"},         {"cos", "Cos"},
           {"tan", "Tan"},         {"asin", "Asin"},
           {"acos", "Acos"},       {"atan", "Atan"},
           {"sinh", "Sinh"},       {"cosh", "Cosh"},
           {"asinh", "Asinh"},     {"acosh", "Acosh"},
           {"atanh", "Atanh"},     {"erf", "Erf"},
           {"relu", "Relu"},       {"tanh", "Tanh"},
           {"sigmoid", "Sigmoid"}, {"softplus", "Softplus"},
           {"clone", "Identity"},  {"to_device", "Identity"},
           {"matmul", "MatMul"}})
    t[ours] = plain(theirs);
  t["ne"] = negated("Equal");
  t["add_scalar"] = with_number("Add", "value"), t["mul_scalar"] = with_number("Mul", "value");
  t["div_scalar"] = with_number("Div", "value"), t["pow_scalar"] = with_number("Pow", "exponent");
  t["square"] = [](const Adding& a) { return a.node("Mul", {a.in(0), a.in(0)}); };
  t["rsqrt"] = [](const Adding& a) { return a.node("Reciprocal", {a.node("Sqrt", {a.in(0)})}); };
  t["log1p"] = [](const Adding& a) { return a.node("Log", {a.node("Add", {a.in(0), a.number(1)})}); };
  t["expm1"] = [](const Adding& a) { return a.node("Sub", {a.node("Exp", {a.in(0)}), a.number(1)}); };
  t["exp2"] = [](const Adding& a) { return a.node("Pow", {a.number(2), a.in(0)}); };
  t["log2"] = logarithm(2), t["log10"] = logarithm(10);
  t["erfc"] = [](const Adding& a) { return a.node("Sub", {a.number(1), a.node("Erf", {a.in(0)})}); };
  t["trunc"] = [](const Adding& a) {
    return a.node("Mul", {a.node("Sign", {a.in(0)}), a.node("Floor", {a.node("Abs", {a.in(0)})})});
  };
  t["silu"] = [](const Adding& a) { return a.node("Mul", {a.in(0), a.node("Sigmoid", {a.in(0)})}); };
  t["gelu"] = [](const Adding& a) {
    return a.node("Gelu", {a.in(0)}, {{"approximate", a.call.attrs.text("approximate")}});
  };
  t["leaky_relu"] = [](const Adding& a) {
    return a.node("LeakyRelu", {a.in(0)}, {{"alpha", a.call.attrs.number("negative_slope")}});
  };
  t["elu"] = [](const Adding& a) {
    return a.node("Elu", {a.in(0)}, {{"alpha", a.call.attrs.number("alpha")}});
  };
  t["clamp"] = clamped;
  t["to"] = [](const Adding& a) {
    return a.node("Cast", {a.in(0)}, {{"to", type_number(a.out[0].dtype())}});
  };
}

void add_layers(std::map<std::string_view, Rule>& t) {
  t["linear"] = [](const Adding& a) { return linear(a, 2); };
  t["linear_relu"] = [](const Adding& a) { return a.node("Relu", {linear(a, 2)}); };
  t["linear_gelu"] = [](const Adding& a) { return a.node("Gelu", {linear(a, 2)}); };
  t["linear_add"] = [](const Adding& a) { return a.node("Add", {linear(a, 3), a.in(2)}); };
  t["attention"] = attention, t["self_attention"] = self_attention;
  t["layer_norm"] = [](const Adding& a) {
    return a.node("LayerNormalization", a.all(),
                  {{"axis", -a.rank(1)}, {"epsilon", a.call.attrs.number("eps")}});
  };
  t["rms_norm"] = rms_norm, t["channel_affine"] = channel_affine, t["batch_norm_train"] = batch_norm,
  t["conv2d"] = conv2d;
  t["max_pool2d"] = [](const Adding& a) { return a.node("MaxPool", {a.in(0)}, window(a, false)); };
  t["avg_pool2d"] = [](const Adding& a) {
    auto attributes = window(a, false);
    attributes.emplace_back("count_include_pad", int64_t{1});
    return a.node("AveragePool", {a.in(0)}, attributes);
  };
  t["softmax"] = [](const Adding& a) { return a.node("Softmax", {a.in(0)}, {{"axis", a.dim("dim")}}); };
  t["log_softmax"] = [](const Adding& a) {
    return a.node("LogSoftmax", {a.in(0)}, {{"axis", a.dim("dim")}});
  };
  t["embedding"] = [](const Adding& a) {
    return a.node("Gather", {a.in(1), a.in(0)}, {{"axis", int64_t{0}}});
  };
}

void add_reductions(std::map<std::string_view, Rule>& t) {
  t["sum"] = reduction("ReduceSum"), t["mean"] = reduction("ReduceMean"), t["prod"] = reduction("ReduceProd");
  t["amax"] = reduction("ReduceMax"), t["amin"] = reduction("ReduceMin"),
  t["logsumexp"] = reduction("ReduceLogSumExp");
  t["var"] = [](const Adding& a) { return variance(a, false); };
  t["std"] = [](const Adding& a) { return variance(a, true); };
  t["max"] = [](const Adding& a) { return a.node("ReduceMax", {a.in(0)}, {{"keepdims", int64_t{0}}}); };
  t["min"] = [](const Adding& a) { return a.node("ReduceMin", {a.in(0)}, {{"keepdims", int64_t{0}}}); };
  t["norm"] = [](const Adding& a) { return a.node("ReduceL2", {a.in(0)}, {{"keepdims", int64_t{0}}}); };
  t["max_along"] = [](const Adding& a) { return along(a, "ReduceMax", "ArgMax"); };
  t["min_along"] = [](const Adding& a) { return along(a, "ReduceMin", "ArgMin"); };
  t["cumsum"] = [](const Adding& a) {
    return a.node("CumSum", {a.in(0), a.graph.name_of(full({}, static_cast<double>(a.dim("dim")), int64))});
  };
}

void add_arrangements(std::map<std::string_view, Rule>& t) {
  t["reshape"] = to_shape, t["squeeze"] = to_shape, t["unsqueeze"] = to_shape;
  t["transpose"] = [](const Adding& a) {
    Ints perm;
    for (int64_t i = 0; i < a.rank(); ++i) perm.push_back(i);
    if (!perm.empty())
      std::swap(perm[static_cast<size_t>(a.dim("dim0"))], perm[static_cast<size_t>(a.dim("dim1"))]);
    return a.node("Transpose", {a.in(0)}, {{"perm", perm}});
  };
  t["permute"] = [](const Adding& a) {
    Ints perm = a.call.attrs.ints("dims");
    for (int64_t& d : perm) d = d < 0 ? d + a.rank() : d;
    return a.node("Transpose", {a.in(0)}, {{"perm", perm}});
  };
  t["expand"] = [](const Adding& a) {
    const Shape& s = a.out[0].shape();
    return a.node("Expand", {a.in(0), a.graph.ints(Ints(s.begin(), s.end()))});
  };
  t["slice"] = sliced, t["split"] = split, t["pad"] = padded;
  t["cat"] = [](const Adding& a) { return a.node("Concat", a.all(), {{"axis", a.dim("dim")}}); };
  t["index_select"] = [](const Adding& a) { return a.node("Gather", a.all(), {{"axis", a.dim("dim")}}); };
  t["gather"] = [](const Adding& a) { return a.node("GatherElements", a.all(), {{"axis", a.dim("dim")}}); };
  for (const bool upper : {false, true})
    t[upper ? "triu" : "tril"] = [upper](const Adding& a) {
      return a.node(
          "Trilu",
          {a.in(0), a.graph.name_of(full({}, static_cast<double>(a.call.attrs.integer("diagonal")), int64))},
          {{"upper", int64_t{upper}}});
    };
}

const std::map<std::string_view, Rule>& rules() {
  static const std::map<std::string_view, Rule> all = [] {
    std::map<std::string_view, Rule> t;
    add_elementwise(t), add_layers(t), add_reductions(t), add_arrangements(t);
    return t;
  }();
  return all;
}

}  // namespace

void add_operator(OnnxGraph& graph, const ops::Call& call, const Tensors& out) {
  const auto rule = rules().find(call.name());
  if (rule == rules().end())
    throw_invalid(fmt::format(
        "[onnx] the operator {} has no form in ONNX here: compute it outside of the layer that is exported",
        call.name()));
  graph.give(out[0], rule->second({graph, call, out}));
}

}  // namespace troupe::internal::onnx
