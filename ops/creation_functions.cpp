// The functions that make tensors, by name.
#include "ops/function_table.h"
#include "ops/ops.h"

namespace troupe::ops::internal {
namespace {

using Type = std::optional<DType>;

TensorOptions of(const Type& dtype) { return dtype ? TensorOptions(*dtype) : TensorOptions(); }

template <class F>
void add_like(Table& t, const char* name, F f, const char* text) {
  add(
      t, name, [f](Tensor x, Type dtype) { return f(x, of(dtype)); }, {{"input"}, none("dtype")}, text);
}

void add_numbers(Table& t) {
  const std::vector<Parameter> size{{"size"}, none("dtype")};
  add(
      t, "zeros", [](Shape size, Type dtype) { return zeros(size, of(dtype)); }, size, "Zeros.");
  add(
      t, "ones", [](Shape size, Type dtype) { return ones(size, of(dtype)); }, size, "Ones.");
  add(
      t, "full", [](Shape size, Scalar value, Type dtype) { return full(size, value, of(dtype)); },
      {{"size"}, {"fill_value"}, none("dtype")}, "One number everywhere, of whose kind the dtype is.");
  add(
      t, "eye",
      [](int64_t n, std::optional<int64_t> m, Type dtype) { return eye(n, m.value_or(n), of(dtype)); },
      {{"n"}, none("m"), none("dtype")}, "Ones on the diagonal of a matrix [n, m], else zeros.");
  add(
      t, "arange",
      [](Scalar start, std::optional<Scalar> end, Scalar step, Type dtype) {
        return end ? arange(start, *end, step, of(dtype)) : arange(0, start, step, of(dtype));
      },
      {{"start"}, none("end"), with("step", Scalar(1)), none("dtype")},
      "start, start + step, ... before end; of one number those from 0 on before it.");
  add(
      t, "linspace",
      [](double start, double end, int64_t steps, Type dtype) {
        return linspace(start, end, steps, of(dtype));
      },
      {{"start"}, {"end"}, {"steps"}, none("dtype")}, "So many numbers from start to end, both included.");
  add_like(
      t, "zeros_like", [](const Tensor& x, const TensorOptions& o) { return zeros_like(x, o); },
      "Zeros, of the size and dtype of input.");
  add_like(
      t, "ones_like", [](const Tensor& x, const TensorOptions& o) { return ones_like(x, o); },
      "Ones, of the size and dtype of input.");
  add(
      t, "full_like", [](Tensor x, Scalar value, Type dtype) { return full_like(x, value, of(dtype)); },
      {{"input"}, {"fill_value"}, none("dtype")}, "One number everywhere, of the size and dtype of input.");
}

void add_random(Table& t) {
  const std::vector<Parameter> size{{"size"}, none("dtype")};
  add(
      t, "rand", [](Shape size, Type dtype) { return rand(size, of(dtype)); }, size,
      "Random numbers, uniform in [0, 1).");
  add(
      t, "randn", [](Shape size, Type dtype) { return randn(size, of(dtype)); }, size,
      "Random numbers, standard normal.");
  add(
      t, "randint",
      [](int64_t low, int64_t high, Shape size, Type dtype) { return randint(low, high, size, of(dtype)); },
      {{"low"}, {"high"}, {"size"}, none("dtype")}, "Random integers in [low, high).");
  add(
      t, "randperm", [](int64_t n, Type dtype) { return randperm(n, of(dtype)); }, {{"n"}, none("dtype")},
      "0 to n - 1 in random order.");
  add_like(
      t, "rand_like", [](const Tensor& x, const TensorOptions& o) { return rand_like(x, o); },
      "Random numbers, uniform in [0, 1), of the size and dtype of input.");
  add_like(
      t, "randn_like", [](const Tensor& x, const TensorOptions& o) { return randn_like(x, o); },
      "Random numbers, standard normal, of the size and dtype of input.");
  add(
      t, "bernoulli", [](Tensor x) { return bernoulli(x); }, {{"input"}},
      "1 with the probability that the element is, else 0.");
  add(
      t, "multinomial",
      [](Tensor x, int64_t count, bool replacement) { return multinomial(x, count, replacement); },
      {{"input"}, {"num_samples"}, with("replacement", false)},
      "Random places in each row, with probabilities in proportion to its elements.");
  add(
      t, "manual_seed", [](int64_t seed) { manual_seed(static_cast<uint64_t>(seed)); }, {{"seed"}},
      "Starts the stream of random numbers anew.");
}

}  // namespace

void add_creation(Table& t) {
  add_numbers(t);
  add_random(t);
}

}  // namespace troupe::ops::internal
