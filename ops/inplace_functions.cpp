// The functions in place, by name.
#include "ops/function_table.h"
#include "ops/ops.h"

namespace troupe::ops::internal {
namespace {

template <class F>
void add_binary_in_place(Table& t, const char* name, F f, const char* other, const char* text) {
  add(
      t, name,
      [f](Tensor x, Operand y) {
        return std::visit([&](const auto& other) { return f(x, other); }, y.value);
      },
      {{"input"}, {other}}, text);
}

constexpr std::pair<const char*, void (*)(const Tensor&)> kUnary[] = {{"neg", neg_},
                                                                      {"abs", abs_},
                                                                      {"square", square_},
                                                                      {"floor", floor_},
                                                                      {"ceil", ceil_},
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
                                                                      {"reciprocal", reciprocal_}};

void add_arithmetic_in_place(Table& t) {
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
  add(
      t, "div_",
      [](Tensor x, Operand y, std::optional<std::string> rounding_mode) {
        return std::visit(
            [&](const auto& other) {
              return rounding_mode ? (div_(x, other, *rounding_mode), x) : x.div_(other);
            },
            y.value);
      },
      {{"input"}, {"other"}, none("rounding_mode")}, "input /= other; rounding_mode: \"trunc\", \"floor\".");
  add_binary_in_place(
      t, "remainder_", [](const Tensor& x, const auto& y) { return remainder_(x, y), x; }, "other",
      "input %= other.");
  add_binary_in_place(
      t, "pow_", [](const Tensor& x, const auto& y) { return pow_(x, y), x; }, "exponent",
      "input to the power of exponent, in place.");
  add_binary_in_place(
      t, "fill_", [](const Tensor& x, const auto& y) { return fill_(x, y), x; }, "value",
      "Writes one number everywhere.");
}

void add_limits_in_place(Table& t) {
  add(
      t, "clamp_",
      [](Tensor x, std::optional<Operand> min, std::optional<Operand> max) {
        const auto number = [](const auto& b) -> std::optional<Scalar> {
          return b ? std::optional(std::get<Scalar>(b->value)) : std::nullopt;
        };
        if (x.defined() && (is_tensor(min) || is_tensor(max)))
          clamp_(x, as_bound(x, min), as_bound(x, max));
        else
          clamp_(x, number(min), number(max));
        return x;
      },
      {{"input"}, none("min"), none("max")},
      "Limits the elements to [min, max], numbers or tensors, in place.");
  add(
      t, "round_", [](Tensor x, int64_t decimals) { return decimals ? round_(x, decimals) : round_(x), x; },
      {{"input"}, with("decimals", 0)}, "round in place.");
}

}  // namespace

void add_in_place(Table& t) {
  add_arithmetic_in_place(t);
  add_limits_in_place(t);
  add(
      t, "copy_", [](Tensor x, Tensor src) { return copy_(x, src), x; }, {{"input"}, {"src"}},
      "Writes the elements of src, broadcast and converted.");
  add(
      t, "zero_", [](Tensor x) { return x.zero_(); }, {{"input"}}, "Writes zeros.");
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
      t, "index_add_",
      [](Tensor x, int64_t dim, Tensor index, Tensor source, Scalar alpha) {
        return index_add_(x, dim, index, source, alpha), x;
      },
      {{"input"}, {"dim"}, {"index"}, {"source"}, with("alpha", 1)},
      "input += alpha source in its slices index along dim.");
  add(
      t, "masked_fill_",
      [](Tensor x, Tensor mask, Operand value) {
        return std::visit([&](const auto& v) { return masked_fill_(x, mask, v), x; }, value.value);
      },
      {{"input"}, {"mask"}, {"value"}}, "Writes value where mask is true.");
  for (const auto& [name, f] : kUnary)
    add(
        t, std::string(name) + "_", [f = f](Tensor x) { return f(x), x; }, {{"input"}},
        std::string(name) + " in place.");
}

}  // namespace troupe::ops::internal
