// Each initializer is a rule for element i.
#include "nn/init.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"

namespace troupe::nn::init {
namespace {

// t[i] = f(i), in row-major order and whatever strides.
template <class F>
void fill(const char* name, const Tensor& t, F&& f) {
  if (!t.defined() || !is_floating(t.dtype()))
    throw_invalid("[" + std::string(name) + "] needs a floating tensor, got " + t.summary());
  const Tensor values = empty(t.shape(), t.dtype());
  visit_dtype(t.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* out = values.data<T>();
    for (int64_t i = 0, n = values.numel(); i < n; ++i) out[i] = static_cast<T>(f(i));
  });
  NoGradGuard off;
  t.copy_(values);
}

struct Fan {
  double in, out;
};

// [out, in, kernel...]: each output sees in * kernel inputs.
Fan fan(const char* name, const Tensor& t) {
  if (!t.defined() || t.dim() < 2)
    throw_invalid("[" + std::string(name) + "] needs a tensor [out, in, ...] of at least 2 dimensions, got " +
                  t.summary());
  double kernel = 1;
  for (int d = 2; d < t.dim(); ++d) kernel *= static_cast<double>(t.shape()[d]);
  return {static_cast<double>(t.shape()[1]) * kernel, static_cast<double>(t.shape()[0]) * kernel};
}

// Turns the rows of a [rows, columns] matrix, rows <= columns, into orthonormal ones (Gram and Schmidt, twice
// for the roundings).
void orthonormalize(std::vector<double>& m, size_t rows, size_t columns) {
  for (size_t r = 0; r < rows; ++r) {
    double* row = m.data() + r * columns;
    for (int pass = 0; pass < 2; ++pass)
      for (size_t q = 0; q < r; ++q) {
        const double* other = m.data() + q * columns;
        double along = 0;
        for (size_t c = 0; c < columns; ++c) along += row[c] * other[c];
        for (size_t c = 0; c < columns; ++c) row[c] -= along * other[c];
      }
    double length = 0;
    for (size_t c = 0; c < columns; ++c) length += row[c] * row[c];
    for (size_t c = 0; c < columns; ++c) row[c] /= std::sqrt(length);
  }
}

}  // namespace

void uniform_(const Tensor& t, double low, double high, AnyGenerator generator) {
  if (!(low <= high))
    throw_invalid(fmt::format("[uniform_] low {} is above high {}", low, high));
  fill("uniform_", t, [&](int64_t) { return generator.uniform(low, high); });
}

void normal_(const Tensor& t, double mean, double deviation, AnyGenerator generator) {
  if (!(deviation >= 0))
    throw_invalid(fmt::format("[normal_] the deviation must be at least 0, got {}", deviation));
  fill("normal_", t, [&](int64_t) { return mean + deviation * generator.normal(); });
}

void trunc_normal_(const Tensor& t, double mean, double deviation, double low, double high,
                   AnyGenerator generator) {
  const double reach = 8 * deviation;
  if (!(deviation > 0) || !(low < high) || !(low < mean + reach) || !(high > mean - reach))
    throw_invalid(
        fmt::format("[trunc_normal_] needs a deviation above 0 and low < high near the mean, got mean {}, "
                    "deviation {}, low {}, high {}",
                    mean, deviation, low, high));
  // By inversion of the distribution function: bisection, so that far tails cost no more.
  const auto below = [&](double x) { return 0.5 * std::erfc((mean - x) / (deviation * std::sqrt(2.0))); };
  const double from = below(low), to = below(high);
  fill("trunc_normal_", t, [&](int64_t) {
    const double wanted = generator.uniform(from, to);
    double left = std::max(low, mean - reach), right = std::min(high, mean + reach);
    for (int i = 0; i < 60; ++i) {
      const double middle = 0.5 * (left + right);
      (below(middle) < wanted ? left : right) = middle;
    }
    return 0.5 * (left + right);
  });
}

void zeros_(const Tensor& t) { constant_(t, 0); }
void ones_(const Tensor& t) { constant_(t, 1); }

void constant_(const Tensor& t, double value) {
  fill("constant_", t, [&](int64_t) { return value; });
}

void xavier_uniform_(const Tensor& t, double gain, AnyGenerator generator) {
  const Fan f = fan("xavier_uniform_", t);
  const double bound = gain * std::sqrt(6 / (f.in + f.out));
  uniform_(t, -bound, bound, generator);
}

void kaiming_uniform_(const Tensor& t, double slope, AnyGenerator generator) {
  const double bound = std::sqrt(6 / ((1 + slope * slope) * fan("kaiming_uniform_", t).in));
  uniform_(t, -bound, bound, generator);
}

void xavier_normal_(const Tensor& t, double gain, AnyGenerator generator) {
  const Fan f = fan("xavier_normal_", t);
  normal_(t, 0, gain * std::sqrt(2 / (f.in + f.out)), generator);
}

void kaiming_normal_(const Tensor& t, double slope, AnyGenerator generator) {
  normal_(t, 0, std::sqrt(2 / ((1 + slope * slope) * fan("kaiming_normal_", t).in)), generator);
}

void orthogonal_(const Tensor& t, double gain, AnyGenerator generator) {
  fan("orthogonal_", t);  // for the check
  if (t.numel() == 0) return;
  const size_t out = static_cast<size_t>(t.size(0)), rest = static_cast<size_t>(t.numel()) / out;
  const size_t rows = std::min(out, rest), columns = std::max(out, rest);
  std::vector<double> m(rows * columns);
  for (double& x : m) x = generator.normal();
  orthonormalize(m, rows, columns);
  fill("orthogonal_", t, [&](int64_t i) {
    const size_t r = static_cast<size_t>(i) / rest, c = static_cast<size_t>(i) % rest;
    return gain * (out <= rest ? m[r * columns + c] : m[c * columns + r]);
  });
}

void splitmix_(const Tensor& t, uint64_t parameter, double scale) {
  fill("splitmix_", t, [&](int64_t i) {
    const double u =
        static_cast<double>(splitmix64((parameter << 32) + static_cast<uint64_t>(i)) >> 11) * 0x1p-53;
    return scale * (2 * u - 1);
  });
}

}  // namespace troupe::nn::init
