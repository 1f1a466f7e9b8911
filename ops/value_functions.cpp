// Functions by name that compute: sums in another dtype, quotients, statistics, products, rotary tables.
#include "core/base/error.h"
#include "ops/dispatch/promote.h"
#include "ops/function_table.h"
#include "ops/ops.h"

namespace troupe::ops::internal {
namespace {

template <class F>
void add_reduction(Table& t, const char* name, F f, const char* text) {
  add(
      t, name,
      [f](Tensor x, Shape dim, bool keepdim, std::optional<DType> dtype) {
        return dtype ? f(x, dim, keepdim, *dtype) : f(x, dim, keepdim);
      },
      {{"input"}, with("dim", Shape()), with("keepdim", false), none("dtype")}, text);
}

template <class F>
void add_along(Table& t, const char* name, F f, Parameter dim, const char* text) {
  add(
      t, name,
      [f](Tensor x, int64_t along, std::optional<DType> dtype) {
        return dtype ? f(x, along, *dtype) : f(x, along);
      },
      {{"input"}, std::move(dim), none("dtype")}, text);
}

void add_sums(Table& t) {
  add_reduction(
      t, "sum", [](const auto&... a) { return sum(a...); },
      "The sum over dim (none: all dimensions), of dtype.");
  add_reduction(
      t, "mean", [](const auto&... a) { return mean(a...); },
      "The mean over dim (none: all dimensions), of dtype.");
  add_reduction(
      t, "prod", [](const auto&... a) { return prod(a...); },
      "The product over dim (none: all dimensions), of dtype.");
  add(
      t, "norm",
      [](Tensor x, Scalar p, Shape dim, bool keepdim, std::optional<DType> dtype) {
        return dtype ? norm(x, p, dim, keepdim, *dtype) : norm(x, p, dim, keepdim);
      },
      {{"input"}, with("p", Scalar(2)), with("dim", Shape()), with("keepdim", false), none("dtype")},
      "The p-norm over dim (none: all dimensions).");
  add_along(
      t, "cumsum", [](const auto&... a) { return cumsum(a...); }, {"dim"},
      "Sums of the first elements along dim, of dtype.");
  add_along(
      t, "cumprod", [](const auto&... a) { return cumprod(a...); }, {"dim"},
      "Products of the first elements along dim, of dtype.");
  add_along(
      t, "softmax", [](const auto&... a) { return softmax(a...); }, with("dim", int64_t{-1}),
      "exp(x) divided by its sum along dim, of dtype.");
  add_along(
      t, "log_softmax", [](const auto&... a) { return log_softmax(a...); }, with("dim", int64_t{-1}),
      "The logarithm of softmax along dim, of dtype.");
  add(
      t, "softmin",
      [](Tensor x, int64_t dim, std::optional<DType> dtype) {
        return dtype ? softmax(neg(x), dim, *dtype) : softmin(x, dim);
      },
      {{"input"}, with("dim", -1), none("dtype")}, "softmax of the negative elements along dim, of dtype.");
  add(
      t, "round", [](Tensor x, int64_t decimals) { return decimals ? round(x, decimals) : round(x); },
      {{"input"}, with("decimals", 0)},
      "Each element, rounded to the nearest number with so many decimals, an even one of two.");
}

Tensor quotient(const Operand& a, const Operand& b, const std::optional<std::string>& mode) {
  return std::visit(
      [&]<class A, class B>(const A& x, const B& y) -> Tensor {
        if constexpr (std::is_same_v<A, Scalar> && std::is_same_v<B, Scalar>)
          throw_invalid("[div] needs a tensor, got two numbers");
        else if constexpr (std::is_same_v<A, Scalar>)
          return mode && y.defined() ? div(wrapped(x, result_type(y, x), y.device()), y, *mode) : div(x, y);
        else
          return mode ? div(x, y, *mode) : div(x, y);
      },
      a.value, b.value);
}

Tensor bounded(const Tensor& x, const std::optional<Operand>& min, const std::optional<Operand>& max) {
  const auto number = [](const auto& b) -> std::optional<Scalar> {
    return b ? std::optional(std::get<Scalar>(b->value)) : std::nullopt;
  };
  if (x.defined() && (is_tensor(min) || is_tensor(max))) return clamp(x, as_bound(x, min), as_bound(x, max));
  return clamp(x, number(min), number(max));
}

void add_elements(Table& t) {
  add(
      t, "div",
      [](Operand a, Operand b, std::optional<std::string> rounding_mode) {
        return quotient(a, b, rounding_mode);
      },
      {{"input"}, {"other"}, none("rounding_mode")},
      "The quotient of the elements of two tensors that broadcast; rounding_mode: \"trunc\", \"floor\".");
  add(
      t, "clamp",
      [](Tensor x, std::optional<Operand> min, std::optional<Operand> max) { return bounded(x, min, max); },
      {{"input"}, none("min"), none("max")},
      "Limits the elements to [min, max], numbers or tensors, of which one may be left out.");
  add(t, "nan_to_num", &nan_to_num, {{"input"}, with("nan", 0.0), none("posinf"), none("neginf")},
      "Numbers in the place of NaN and infinities; if none, the largest and the lowest of the dtype.");
  add(t, "isclose", &isclose,
      {{"input"}, {"other"}, with("rtol", 1e-5), with("atol", 1e-8), with("equal_nan", false)},
      "Whether |input - other| <= atol + rtol |other| of each two elements.");
  add(t, "softplus", &softplus, {{"input"}, with("beta", 1.0), with("threshold", 20.0)},
      "log(1 + exp(beta x)) / beta of each element; x itself where beta x is above the threshold.");
}

// It calls f with what is taken off the number of elements.
template <class F>
auto with_correction(bool unbiased, const std::optional<double>& correction, F&& f) {
  if (!correction) return f(Correction{unbiased ? 1.0 : 0.0});
  if (!unbiased) throw_invalid("[var] got unbiased and correction: leave one out");
  return f(Correction{*correction});
}
template <class F>
void add_moments(Table& t, const char* name, F f, const char* text) {
  add(
      t, name,
      [f](Tensor x, Shape dim, bool unbiased, bool keepdim, std::optional<double> correction) {
        return with_correction(unbiased, correction,
                               [&](Correction c) { return f(x, IntList(dim), c, keepdim); });
      },
      {{"input"}, with("dim", Shape()), with("unbiased", true), with("keepdim", false), none("correction")},
      text);
}

void add_statistics(Table& t) {
  const auto of_var = [](const auto&... a) { return var(a...); };
  const auto of_std = [](const auto&... a) { return ops::std(a...); };
  const auto beside_mean = [](auto f) {
    return [f](const Tensor& x, const IntList& dim, Correction c, bool keepdim) {
      return Tensors{f(x, dim, c, keepdim), mean(x, dim, keepdim)};
    };
  };
  add_moments(t, "var", of_var,
              "The variance over dim (none: all), divided by the number of elements minus correction.");
  add_moments(t, "std", of_std, "The square root of the variance over dim (none: all).");
  add_moments(t, "var_mean", beside_mean(of_var),
              "The variance and the mean over dim (none: all dimensions).");
  add_moments(t, "std_mean", beside_mean(of_std),
              "The standard deviation and the mean over dim (none: all dimensions).");
  add(
      t, "normalize",
      [](Tensor x, double p, Shape dim, double eps) { return normalize(x, p, IntList(dim), eps); },
      {{"input"}, with("p", 2.0), with("dim", Shape{1}), with("eps", 1e-12)},
      "The input, divided by its p-norm over dim, or by eps if that is larger.");
  add(t, "cosine_similarity", &cosine_similarity, {{"x1"}, {"x2"}, with("dim", 1), with("eps", 1e-8)},
      "The cosine of the angle between vectors along dim; each length counts as at least eps.");
  add(
      t, "binary_cross_entropy",
      [](Tensor x, Tensor target, Tensor weight, std::string reduction) {
        return binary_cross_entropy(x, target, weight, reduction);
      },
      {{"input"}, {"target"}, none("weight"), with("reduction", std::string("mean"))},
      "Loss of probabilities for probabilities in [0, 1].");
}

template <class F>
void add_to_product(Table& t, const char* name, F f, const char* a, const char* b, const char* text) {
  add(
      t, name,
      [f](Tensor x, Tensor a, Tensor b, Scalar beta, Scalar alpha) { return f(x, a, b, beta, alpha); },
      {{"input"}, {a}, {b}, with("beta", Scalar(1)), with("alpha", Scalar(1))}, text);
}

void add_more_products(Table& t) {
  add_to_product(t, "addmm", &addmm, "mat1", "mat2", "beta input + alpha mat1 mat2.");
  add_to_product(t, "addmv", &addmv, "mat", "vec", "beta input + alpha mat vec.");
  add_to_product(t, "addbmm", &addbmm, "batch1", "batch2",
                 "beta input + alpha times the sum of the products of two batches.");
  add_to_product(t, "baddbmm", &baddbmm, "batch1", "batch2",
                 "beta input + alpha times the products of two batches.");
  add_to_product(t, "addr", &addr, "vec1", "vec2", "beta input + alpha vec1 vec2^T.");
  add(
      t, "tensordot",
      [](Tensor a, Tensor b, Value dims) {
        if (const auto* n = dims.get_if<int64_t>()) return tensordot(a, b, *n);
        const auto pair = Codec<std::vector<Shape>>::from(std::move(dims));
        if (pair.size() != 2) throw_invalid("[tensordot] dims is a number, or one list for each tensor");
        return tensordot(a, b, IntList(pair[0]), IntList(pair[1]));
      },
      {{"a"}, {"b"}, with("dims", 2)},
      "Sums of products over the last dims dimensions of a and the first ones of b, or over two lists.");
}

void add_attention(Table& t) {
  add(t, "scaled_dot_product_attention", &scaled_dot_product_attention,
      {{"query"},
       {"key"},
       {"value"},
       none("attn_mask"),
       with("dropout_p", 0.0),
       with("is_causal", false),
       none("scale"),
       with("enable_gqa", false)},
      "softmax(scale query key^T) value, scale 1 / sqrt(width) if none; attn_mask: the keys that a query "
      "sees, "
      "or numbers added to the scores; is_causal: query i sees keys 0 to i; enable_gqa: key and value have "
      "fewer "
      "heads.");
  add(
      t, "rotary_table",
      [](Tensor positions, int64_t width, double theta, std::string scaling, double factor, int64_t original,
         int64_t length, double beta_fast, double beta_slow, double attention_factor, double low_freq_factor,
         double high_freq_factor) {
        const RotaryTable table =
            rotary_table(positions, width,
                         {theta, scaling, factor, original, length, beta_fast, beta_slow, attention_factor,
                          low_freq_factor, high_freq_factor});
        return Tensors{table.cos, table.sin};
      },
      {{"positions"},
       {"width"},
       with("theta", 10000.0),
       with("scaling", std::string("default")),
       with("factor", 1.0),
       with("original_max_position_embeddings", 0),
       with("sequence_length", 0),
       with("beta_fast", 32.0),
       with("beta_slow", 1.0),
       with("attention_factor", 0.0),
       with("low_freq_factor", 1.0),
       with("high_freq_factor", 4.0)},
      "Cosines and sines of the angles of rotary: positions times width / 2 frequencies.");
}

}  // namespace

Tensor as_bound(const Tensor& x, const std::optional<Operand>& given) {
  if (!given) return {};
  if (const auto* t = std::get_if<Tensor>(&given->value)) return *t;
  const Scalar& n = std::get<Scalar>(given->value);
  return wrapped(n, result_type(x, n), x.device());
}

void add_computation(Table& t) {
  add_sums(t);
  add_elements(t);
  add_statistics(t);
  add_more_products(t);
  add_attention(t);
}

}  // namespace troupe::ops::internal
