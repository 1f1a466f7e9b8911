#include "ops/random.h"

#include <cmath>

#include "core/error.h"

namespace troupe::ops {
namespace {

template <class F>
Tensor drawn(const char* op, const Shape& shape, DType dtype, F next) {
  if (!is_floating(dtype))
    throw_invalid("[" + std::string(op) + "] needs a floating dtype, got " + std::string(name(dtype)));
  Tensor t = Tensor::empty(shape, dtype);
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    T* to = t.data<T>();
    for (int64_t i = 0, n = t.numel(); i < n; ++i) to[i] = static_cast<T>(next());
  });
  return t;
}

}  // namespace

Tensor randn(const Shape& shape, Generator& generator, DType dtype) {
  return drawn("randn", shape, dtype, [&] { return generator.normal(); });
}

// As many bits as the dtype has digits: rounding more of them up could give 1.
Tensor rand(const Shape& shape, Generator& generator, DType dtype) {
  const int digits = dtype == float64 ? 53 : dtype == float32 ? 24 : dtype == float16 ? 11 : 8;
  const double unit = std::ldexp(1.0, -digits);
  return drawn("rand", shape, dtype,
               [&] { return static_cast<double>(generator.next() >> (64 - digits)) * unit; });
}

Tensor randperm(int64_t n, Generator& generator) {
  if (n < 0) throw_invalid("[randperm] needs n >= 0, got " + std::to_string(n));
  return Tensor::of(generator.permutation(n));
}

}  // namespace troupe::ops
