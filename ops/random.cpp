#include "ops/random.h"

#include <cmath>

#include "core/base/error.h"
#include "core/tensor/convert.h"

namespace troupe::ops {
namespace {

// Numbers that `next` gives, in row-major order.
template <class F>
Tensor drawn(const Shape& shape, DType dtype, const TensorOptions& options, F next) {
  Tensor t = empty(shape, dtype);
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    T* to = t.data<T>();
    for (int64_t i = 0, n = t.numel(); i < n; ++i) to[i] = convert<T>(next());
  });
  Tensor there = t.data_on(options.device_or(cpu));
  if (options.requires_grad_on()) there.requires_grad_();
  return there;
}

DType floating(const char* op, const TensorOptions& options) {
  const DType t = options.dtype_or(kDefaultDType);
  if (!is_floating(t))
    throw_invalid("[" + std::string(op) + "] needs a floating dtype, got " + std::string(name(t)));
  return t;
}

// The places that one row of multinomial() draws.
void draw_places(const std::vector<double>& weights, int64_t count, bool replacement, Generator& generator,
                 int64_t* to) {
  double total = 0;
  int64_t possible = 0;
  for (const double w : weights) {
    if (!(w >= 0) || std::isinf(w))
      throw_invalid("[multinomial] elements must be finite and at least 0, got " + Scalar(w).str());
    total += w, possible += w > 0;
  }
  if (possible == 0) throw_invalid("[multinomial] a row has no element above 0");
  if (!replacement && possible < count)
    throw_invalid("[multinomial] " + std::to_string(count) + " samples without replacement of " +
                  std::to_string(possible) + " elements above 0");
  std::vector<double> left = weights;
  for (int64_t i = 0; i < count; ++i) {
    double at = generator.uniform() * total;
    size_t place = left.size();
    for (size_t k = 0; k < left.size(); ++k) {
      if (left[k] == 0) continue;
      place = k;  // rounding may leave a rest after the last one
      if ((at -= left[k]) < 0) break;
    }
    to[i] = static_cast<int64_t>(place);
    if (replacement) continue;
    left[place] = total = 0;
    for (const double w : left) total += w;
  }
}

}  // namespace

Tensor randn(const Shape& size, AnyGenerator generator, const TensorOptions& options) {
  return drawn(size, floating("randn", options), options, [&] { return generator.normal(); });
}

// As many bits as the dtype has digits: rounding more of them up could give 1.
Tensor rand(const Shape& size, AnyGenerator generator, const TensorOptions& options) {
  const DType dtype = floating("rand", options);
  const int digits = dtype == float64 ? 53 : dtype == float32 ? 24 : dtype == float16 ? 11 : 8;
  const double unit = std::ldexp(1.0, -digits);
  return drawn(size, dtype, options,
               [&] { return static_cast<double>(generator.next() >> (64 - digits)) * unit; });
}

Tensor randint(int64_t low, int64_t high, const Shape& size, AnyGenerator generator,
               const TensorOptions& options) {
  if (low >= high)
    throw_invalid("[randint] needs low < high, got " + std::to_string(low) + " and " + std::to_string(high));
  const DType dtype = options.dtype_or(int64);
  require_fits(low, dtype, "randint"), require_fits(high - 1, dtype, "randint");
  const uint64_t from = static_cast<uint64_t>(low), range = static_cast<uint64_t>(high) - from;
  return drawn(size, dtype, options, [&] { return static_cast<int64_t>(from + generator.below(range)); });
}

Tensor randperm(int64_t n, AnyGenerator generator, const TensorOptions& options) {
  if (n < 0) throw_invalid("[randperm] needs n >= 0, got " + std::to_string(n));
  const DType dtype = options.dtype_or(int64);
  if (n) require_fits(n - 1, dtype, "randperm");
  const std::vector<int64_t> places = generator.permutation(n);
  return drawn(n, dtype, options, [at = places.begin()]() mutable { return *at++; });
}

Tensor bernoulli(const Tensor& input, AnyGenerator generator) {
  if (!input.defined() || !is_floating(input.dtype()))
    throw_invalid("[bernoulli] needs a floating tensor, got " + input.summary());
  const std::vector<double> p = input.to_vector<double>();
  for (const double one : p)
    if (!(one >= 0 && one <= 1))
      throw_invalid("[bernoulli] elements must be in [0, 1], got " + Scalar(one).str());
  return drawn(input.shape(), input.dtype(), TensorOptions(input.device()),
               [&, at = p.begin()]() mutable { return generator.uniform() < *at++ ? 1.0 : 0.0; });
}

Tensor multinomial(const Tensor& input, int64_t num_samples, bool replacement, AnyGenerator generator) {
  if (!input.defined() || !is_floating(input.dtype()) || input.dim() < 1 || input.dim() > 2)
    throw_invalid("[multinomial] needs a floating tensor [n] or [m, n], got " + input.summary());
  if (num_samples < 1)
    throw_invalid("[multinomial] num_samples must be at least 1, got " + std::to_string(num_samples));
  const std::vector<double> all = input.to_vector<double>();
  const int64_t n = input.shape().back(), rows = input.dim() == 1 ? 1 : input.shape()[0];
  Shape shape = input.shape();
  shape.back() = num_samples;
  Tensor out = empty(shape, int64);
  for (int64_t i = 0; i < rows; ++i)
    draw_places({all.begin() + i * n, all.begin() + (i + 1) * n}, num_samples, replacement, generator,
                out.data<int64_t>() + i * num_samples);
  return out.data_on(input.device());
}

Tensor randn(const Shape& size, const TensorOptions& options) {
  return randn(size, next_generator(), options);
}
Tensor rand(const Shape& size, const TensorOptions& options) { return rand(size, next_generator(), options); }
Tensor randint(int64_t low, int64_t high, const Shape& size, const TensorOptions& options) {
  return randint(low, high, size, next_generator(), options);
}
Tensor randint(int64_t high, const Shape& size, AnyGenerator generator, const TensorOptions& options) {
  return randint(0, high, size, generator, options);
}
Tensor randint(int64_t high, const Shape& size, const TensorOptions& options) {
  return randint(0, high, size, next_generator(), options);
}
Tensor randperm(int64_t n, const TensorOptions& options) { return randperm(n, next_generator(), options); }

Tensor rand_like(const Tensor& input, const TensorOptions& options) {
  return rand(input.shape(), like(input, options));
}
Tensor randn_like(const Tensor& input, const TensorOptions& options) {
  return randn(input.shape(), like(input, options));
}
Tensor randint_like(const Tensor& input, int64_t high, const TensorOptions& options) {
  return randint(0, high, input.shape(), like(input, options));
}
Tensor randint_like(const Tensor& input, int64_t low, int64_t high, const TensorOptions& options) {
  return randint(low, high, input.shape(), like(input, options));
}

namespace {

Tensor to_tensor(const Generator::Position& at) {
  return tensor({static_cast<int64_t>(at.seed), static_cast<int64_t>(at.counter)}, int64);
}

Generator::Position to_position(const Tensor& state) {
  if (!state.defined() || state.dtype() != int64 || state.shape() != Shape{2})
    throw_invalid("[rng_state] got " + state.summary() + ", expected what get_rng_state() gave: int64 [2]");
  const auto numbers = state.to_vector<int64_t>();
  return {static_cast<uint64_t>(numbers[0]), static_cast<uint64_t>(numbers[1])};
}

}  // namespace

Tensor get_rng_state() { return to_tensor(current_stream().position()); }
void set_rng_state(const Tensor& state) { current_stream().set_position(to_position(state)); }
Tensor rng_state_of(const Generator& generator) { return to_tensor(generator.position()); }
void set_rng_state_of(Generator& generator, const Tensor& state) {
  generator.set_position(to_position(state));
}

}  // namespace troupe::ops
