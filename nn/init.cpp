// Each initializer is a rule for element i.
#include "nn/init.h"

#include <cmath>

#include "core/error.h"

namespace troupe::nn {
namespace {

// t[i] = f(i), in row-major order and whatever strides.
template <class F>
void fill(const char* name, const Tensor& t, F&& f) {
  if (!t.defined() || !is_floating(t.dtype()))
    throw_invalid("[" + std::string(name) + "] needs a floating tensor, got " + t.str());
  const Tensor values = Tensor::empty(t.shape(), t.dtype());
  visit_dtype(t.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* out = values.data<T>();
    for (int64_t i = 0, n = values.numel(); i < n; ++i) out[i] = static_cast<T>(f(i));
  });
  t.copy_(values);
}

struct Fan {
  double in, out;
};

// [out, in, kernel...]: each output sees in * kernel inputs.
Fan fan(const char* name, const Tensor& t) {
  if (!t.defined() || t.dim() < 2)
    throw_invalid("[" + std::string(name) + "] needs a tensor [out, in, ...] of at least 2 dimensions, got " +
                  t.str());
  double kernel = 1;
  for (int d = 2; d < t.dim(); ++d) kernel *= static_cast<double>(t.shape()[d]);
  return {static_cast<double>(t.shape()[1]) * kernel, static_cast<double>(t.shape()[0]) * kernel};
}

}  // namespace

void uniform_(const Tensor& t, double low, double high, Generator& generator) {
  if (!(low <= high))
    throw_invalid("[uniform_] low " + std::to_string(low) + " is above high " + std::to_string(high));
  fill("uniform_", t, [&](int64_t) { return generator.uniform(low, high); });
}

void normal_(const Tensor& t, double mean, double deviation, Generator& generator) {
  if (!(deviation >= 0))
    throw_invalid("[normal_] the deviation must be at least 0, got " + std::to_string(deviation));
  fill("normal_", t, [&](int64_t) { return mean + deviation * generator.normal(); });
}

void constant_(const Tensor& t, double value) {
  fill("constant_", t, [&](int64_t) { return value; });
}

void xavier_uniform_(const Tensor& t, Generator& generator, double gain) {
  const Fan f = fan("xavier_uniform_", t);
  const double bound = gain * std::sqrt(6 / (f.in + f.out));
  uniform_(t, -bound, bound, generator);
}

void kaiming_uniform_(const Tensor& t, Generator& generator, double slope) {
  const double bound = std::sqrt(6 / ((1 + slope * slope) * fan("kaiming_uniform_", t).in));
  uniform_(t, -bound, bound, generator);
}

void splitmix_(const Tensor& t, uint64_t parameter, double scale) {
  fill("splitmix_", t, [&](int64_t i) {
    const double u =
        static_cast<double>(splitmix64((parameter << 32) + static_cast<uint64_t>(i)) >> 11) * 0x1p-53;
    return scale * (2 * u - 1);
  });
}

}  // namespace troupe::nn
