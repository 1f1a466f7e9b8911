#include "ops/random.h"

#include <cmath>

#include "core/base/error.h"

namespace troupe::ops {
namespace {

template <class F>
Tensor drawn(const char* op, const Shape& shape, DType dtype, Device device, F next) {
  if (!is_floating(dtype))
    throw_invalid("[" + std::string(op) + "] needs a floating dtype, got " + std::string(name(dtype)));
  Tensor t = Tensor::empty(shape, dtype);
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    T* to = t.data<T>();
    for (int64_t i = 0, n = t.numel(); i < n; ++i) to[i] = static_cast<T>(next());
  });
  return t.data_on(device);
}

}  // namespace

Tensor randn(const Shape& shape, AnyGenerator generator, DType dtype, Device device) {
  return drawn("randn", shape, dtype, device, [&] { return generator.normal(); });
}

// As many bits as the dtype has digits: rounding more of them up could give 1.
Tensor rand(const Shape& shape, AnyGenerator generator, DType dtype, Device device) {
  const int digits = dtype == float64 ? 53 : dtype == float32 ? 24 : dtype == float16 ? 11 : 8;
  const double unit = std::ldexp(1.0, -digits);
  return drawn("rand", shape, dtype, device,
               [&] { return static_cast<double>(generator.next() >> (64 - digits)) * unit; });
}

Tensor randperm(int64_t n, AnyGenerator generator, Device device) {
  if (n < 0) throw_invalid("[randperm] needs n >= 0, got " + std::to_string(n));
  return Tensor::of(generator.permutation(n)).data_on(device);
}

Tensor randn(const Shape& shape, DType dtype, Device device) {
  Generator generator = next_generator();
  return randn(shape, generator, dtype, device);
}

Tensor rand(const Shape& shape, DType dtype, Device device) {
  Generator generator = next_generator();
  return rand(shape, generator, dtype, device);
}

Tensor randperm(int64_t n, Device device) {
  Generator generator = next_generator();
  return randperm(n, generator, device);
}

namespace {

Tensor to_tensor(const Generator::Position& at) {
  return Tensor::of<int64_t>({static_cast<int64_t>(at.seed), static_cast<int64_t>(at.counter)}, {2});
}

Generator::Position to_position(const Tensor& state) {
  if (!state.defined() || state.dtype() != int64 || state.shape() != Shape{2})
    throw_invalid("[rng_state] got " + state.str() + ", expected what get_rng_state() gave: int64 [2]");
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
