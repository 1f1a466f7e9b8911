// The table of functions that are no operators.
#include "ops/catalog.h"
#include "ops/ops.h"

namespace troupe {
namespace {

/// The other operand of an operator.
struct Operand {
  std::variant<Tensor, Scalar> value;
};

}  // namespace

template <>
struct Codec<Operand> {
  static std::string name() { return "tensor or number"; }
  static Value to(const Operand& x) {
    if (const auto* t = std::get_if<Tensor>(&x.value)) return *t;
    return Codec<Scalar>::to(std::get<Scalar>(x.value));
  }
  static Operand from(Value v) {
    if (auto* t = v.get_if<Tensor>()) return {std::move(*t)};
    try {
      return {Codec<Scalar>::from(v)};
    } catch (const Error&) {
      internal::mismatch(name(), v);
    }
  }
};

namespace ops {
namespace {

using Table = std::vector<Maker<Value>>;

template <class T>
Parameter with(std::string name, T standard) {
  return {std::move(name), "", internal::to_value(std::move(standard))};
}
Parameter none(std::string name) { return {std::move(name), "", Value()}; }

std::vector<int64_t> listed(const Shape& sizes) { return {sizes.begin(), sizes.end()}; }

template <class F>
void add(Table& t, std::string name, F f, std::vector<Parameter> parameters, std::string text) {
  t.push_back(maker<Value>(std::move(name), std::move(f), std::move(parameters), std::move(text)));
}

void add_geometry(Table& t) {
  add(
      t, "view", [](Tensor x, Shape shape) { return view(x, listed(shape)); }, {{"input"}, {"shape"}},
      "The elements in another shape, without a copy.");
  add(t, "to", static_cast<Tensor (*)(const Tensor&, DType)>(&to), {{"input"}, {"dtype"}},
      "The elements as another dtype; a tensor that has it already as it is.");
  add(
      t, "to_device", [](Tensor x, std::string device) { return to(x, Device(device)); },
      {{"input"}, {"device"}},
      "The elements on a device (\"cpu\", \"cuda:0\"); a tensor that is there already as it is.");
  add(t, "flatten", &flatten, {{"input"}, with("start_dim", 0), with("end_dim", -1)},
      "Dimensions start_dim to end_dim in one.");
  add(t, "select", &select, {{"input"}, {"dim"}, {"index"}},
      "Slice number index along dim, without that dimension. A view.");
  add(t, "narrow", &narrow, {{"input"}, {"dim"}, {"start"}, {"length"}},
      "The elements start, ..., start + length - 1 along dim. A view.");
  add(t, "unbind", &unbind, {{"input"}, with("dim", 0)}, "Every slice along dim. Views.");
  add(
      t, "squeeze", [](Tensor x, std::optional<int64_t> dim) { return dim ? squeeze(x, *dim) : squeeze(x); },
      {{"input"}, none("dim")}, "Without dimension dim if it has size 1, or without all of these. A view.");
  add(t, "movedim", &movedim, {{"input"}, {"source"}, {"destination"}},
      "Dimension source moved to place destination. A view.");
  add(t, "t", &ops::t, {{"input"}}, "A matrix with its dimensions swapped. A view.");
  add(
      t, "split",
      [](Tensor x, Value size, int64_t dim) {
        if (const auto* one = size.get_if<int64_t>()) return split(x, *one, dim);
        return split(x, Codec<std::vector<int64_t>>::from(std::move(size)), dim);
      },
      {{"input"}, {"split_size"}, with("dim", 0)},
      "Consecutive pieces along dim, of one size or of a list of sizes. Views.");
  add(t, "chunk", &chunk, {{"input"}, {"chunks"}, with("dim", 0)},
      "At most so many pieces along dim, as large as each other but for the last. Views.");
  add(t, "contiguous", &contiguous, {{"input"}}, "The tensor itself if contiguous, else a contiguous copy.");
  add(
      t, "detach", [](Tensor x) { return x.detach(); }, {{"input"}}, "The same elements, without history.");
  add(t, "cat", &cat, {{"tensors"}, with("dim", 0)}, "Tensors one after the other along dim.");
  add(t, "diff", &diff, {{"input"}, with("n", 1), with("dim", -1)},
      "Differences of neighbours along dim, n times over.");
}

// One of all elements, or those along a dimension with their places.
template <class All, class Along>
void add_extremum(Table& t, const char* name, All all, Along along, const char* text) {
  add(
      t, name,
      [all, along](Tensor x, std::optional<int64_t> dim, bool keepdim) -> Value {
        if (dim) return internal::to_value(along(x, *dim, keepdim));
        if (keepdim) throw_invalid("keepdim needs dim");
        return all(x);
      },
      {{"input"}, none("dim"), with("keepdim", false)}, text);
}

void add_values(Table& t) {
  const auto both = []<class F>(F f) { return f; };
  add_extremum(t, "max", both([](const Tensor& x) { return max(x); }),
               both([](const Tensor& x, int64_t dim, bool keep) { return max(x, dim, keep); }),
               "The largest element; with dim the largest ones along it, and their places.");
  add_extremum(t, "min", both([](const Tensor& x) { return min(x); }),
               both([](const Tensor& x, int64_t dim, bool keep) { return min(x, dim, keep); }),
               "The smallest element; with dim the smallest ones along it, and their places.");
  add_extremum(t, "median", both([](const Tensor& x) { return median(x); }),
               both([](const Tensor& x, int64_t dim, bool keep) { return median(x, dim, keep); }),
               "The middle element; with dim the middle ones along it, and their places.");
  add_extremum(t, "argmax", both([](const Tensor& x) { return argmax(x); }),
               both([](const Tensor& x, int64_t dim, bool keep) { return argmax(x, dim, keep); }),
               "The place of the largest element; with dim those along it.");
  add_extremum(t, "argmin", both([](const Tensor& x) { return argmin(x); }),
               both([](const Tensor& x, int64_t dim, bool keep) { return argmin(x, dim, keep); }),
               "The place of the smallest element; with dim those along it.");
  add(
      t, "count_nonzero",
      [](Tensor x, Shape dim, bool keepdim) { return count_nonzero(x, listed(dim), keepdim); },
      {{"input"}, with("dim", Shape()), with("keepdim", false)},
      "How many elements over dim (none: all dimensions) are not 0.");
  add(t, "clamp", &clamp, {{"input"}, none("min"), none("max")},
      "Limits the elements to [min, max], of which one may be left out.");
  add(t, "outer", &outer, {{"input"}, {"vec2"}}, "The products of each two elements of two vectors.");
  add(
      t, "dropout", [](Tensor x, double p) { return dropout(x, p); }, {{"input"}, with("p", 0.5)},
      "Zeros with probability p, and the rest divided by 1 - p.");
  add(t, "cross_entropy", &cross_entropy,
      {{"input"},
       {"target"},
       with("reduction", std::string("mean")),
       with("ignore_index", -100),
       with("label_smoothing", 0.0)},
      "Loss of scores for classes, or for distributions over them.");
  add(
      t, "layer_norm",
      [](Tensor x, Shape shape, Tensor weight, Tensor bias, double eps) {
        if (!weight.defined() && !bias.defined()) return layer_norm(x, listed(shape), eps);
        if (!weight.defined()) weight = Tensor::full(shape, 1, x.dtype(), x.device());
        if (weight.shape() != shape)
          throw_invalid("[layer_norm] weight must be " + shape.str() + ", got " + weight.str());
        return layer_norm(x, weight, bias, eps);
      },
      {{"input"}, {"normalized_shape"}, none("weight"), none("bias"), with("eps", 1e-5)},
      "Normalizes over the last dimensions, which have this shape.");
}

void add_creation(Table& t) {
  const std::vector<Parameter> shape{{"shape"}, with("dtype", float32)};
  add(
      t, "zeros", [](Shape shape, DType dtype) { return Tensor::zeros(shape, dtype); }, shape, "Zeros.");
  add(
      t, "ones", [](Shape shape, DType dtype) { return Tensor::full(shape, 1, dtype); }, shape, "Ones.");
  add(
      t, "full", [](Shape shape, Scalar value, DType dtype) { return Tensor::full(shape, value, dtype); },
      {{"shape"}, {"fill_value"}, with("dtype", float32)}, "One number everywhere.");
  add(
      t, "rand", [](Shape shape, DType dtype) { return rand(shape, dtype); }, shape,
      "Random numbers, uniform in [0, 1).");
  add(
      t, "randn", [](Shape shape, DType dtype) { return randn(shape, dtype); }, shape,
      "Random numbers, standard normal.");
  add(
      t, "randperm", [](int64_t n) { return randperm(n); }, {{"n"}}, "0 to n - 1 in random order.");
  add(
      t, "manual_seed", [](int64_t seed) { manual_seed(static_cast<uint64_t>(seed)); }, {{"seed"}},
      "Starts the stream of random numbers anew.");
}

template <class F>
void add_binary_in_place(Table& t, const char* name, F f, const char* other, const char* text) {
  add(
      t, name,
      [f](Tensor x, Operand y) {
        return std::visit([&](const auto& other) { return f(x, other); }, y.value);
      },
      {{"input"}, {other}}, text);
}

void add_in_place(Table& t) {
  const auto sum = [&](const char* name, auto f, const char* text) {
    add(
        t, name,
        [f](Tensor x, Operand y, Scalar alpha) {
          return std::visit([&](const auto& other) { return f(x, other, alpha); }, y.value);
        },
        {{"input"}, {"other"}, with("alpha", 1)}, text);
  };
  sum(
      "add_", [](const Tensor& x, const auto& y, Scalar alpha) { return x.add_(y, alpha); },
      "input += alpha other.");
  sum(
      "sub_", [](const Tensor& x, const auto& y, Scalar alpha) { return x.sub_(y, alpha); },
      "input -= alpha other.");
  add_binary_in_place(
      t, "mul_", [](const Tensor& x, const auto& y) { return x.mul_(y); }, "other", "input *= other.");
  add_binary_in_place(
      t, "div_", [](const Tensor& x, const auto& y) { return x.div_(y); }, "other", "input /= other.");
  add_binary_in_place(
      t, "pow_", [](const Tensor& x, const auto& y) { return pow_(x, y), x; }, "exponent",
      "input to the power of exponent, in place.");
  add_binary_in_place(
      t, "fill_", [](const Tensor& x, const auto& y) { return fill_(x, y), x; }, "value",
      "Writes one number everywhere.");
  add(
      t, "copy_", [](Tensor x, Tensor src) { return copy_(x, src), x; }, {{"input"}, {"src"}},
      "Writes the elements of src, broadcast and converted.");
  add(
      t, "zero_", [](Tensor x) { return x.zero_(); }, {{"input"}}, "Writes zeros.");
  add(
      t, "clamp_",
      [](Tensor x, std::optional<Scalar> min, std::optional<Scalar> max) { return clamp_(x, min, max), x; },
      {{"input"}, none("min"), none("max")}, "Limits the elements to [min, max] in place.");
  add(
      t, "maximum_", [](Tensor x, Tensor y) { return maximum_(x, y), x; }, {{"input"}, {"other"}},
      "The larger one of each two elements, in place.");
  add(
      t, "minimum_", [](Tensor x, Tensor y) { return minimum_(x, y), x; }, {{"input"}, {"other"}},
      "The smaller one of each two elements, in place.");
  add(
      t, "addcmul_", [](Tensor x, Tensor a, Tensor b, Scalar value) { return addcmul_(x, a, b, value), x; },
      {{"input"}, {"tensor1"}, {"tensor2"}, with("value", 1)}, "input += value tensor1 tensor2.");
  add(
      t, "addcdiv_", [](Tensor x, Tensor a, Tensor b, Scalar value) { return addcdiv_(x, a, b, value), x; },
      {{"input"}, {"tensor1"}, {"tensor2"}, with("value", 1)}, "input += value tensor1 / tensor2.");
  add(
      t, "lerp_",
      [](Tensor x, Tensor end, Operand weight) {
        if (const auto* w = std::get_if<Tensor>(&weight.value))
          lerp_(x, end, *w);
        else
          lerp_(x, end, std::get<Scalar>(weight.value).to<double>());
        return x;
      },
      {{"input"}, {"end"}, {"weight"}}, "input += weight (end - input).");
  add(
      t, "masked_fill_",
      [](Tensor x, Tensor mask, Operand value) {
        return std::visit([&](const auto& v) { return masked_fill_(x, mask, v), x; }, value.value);
      },
      {{"input"}, {"mask"}, {"value"}}, "Writes value where mask is true.");
  for (const auto& [name, f] :
       std::initializer_list<std::pair<const char*, void (*)(const Tensor&)>>{{"neg", neg_},
                                                                              {"abs", abs_},
                                                                              {"square", square_},
                                                                              {"floor", floor_},
                                                                              {"ceil", ceil_},
                                                                              {"round", round_},
                                                                              {"exp", exp_},
                                                                              {"expm1", expm1_},
                                                                              {"log", log_},
                                                                              {"log1p", log1p_},
                                                                              {"sqrt", sqrt_},
                                                                              {"rsqrt", rsqrt_},
                                                                              {"sin", sin_},
                                                                              {"cos", cos_},
                                                                              {"relu", relu_},
                                                                              {"tanh", tanh_},
                                                                              {"sigmoid", sigmoid_},
                                                                              {"reciprocal", reciprocal_}})
    add(
        t, std::string(name) + "_", [f = f](Tensor x) { return f(x), x; }, {{"input"}},
        std::string(name) + " in place.");
}

Table make_table() {
  Table t;
  add_geometry(t);
  add_values(t);
  add_creation(t);
  add_in_place(t);
  return t;
}

}  // namespace

std::span<const Maker<Value>> functions() {
  static const Table all = make_table();
  return all;
}

}  // namespace ops
}  // namespace troupe
