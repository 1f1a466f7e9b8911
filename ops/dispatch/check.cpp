#include "ops/dispatch/check.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/generator.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace troupe::ops {

void reject(const Call& c, const std::string& text) { throw_invalid(fmt::format("[{}] {}", c.name(), text)); }

void require_floating(const Call& c, const Tensor& t) {
  if (!is_floating(t.dtype())) reject(c, fmt::format("needs a floating dtype, got {}; use .to()", t.str()));
}

void require_int64(const Call& c, const Tensor& t, const char* what) {
  if (t.dtype() != int64) reject(c, fmt::format("{} must be int64, got {}; use .to(int64)", what, t.str()));
}

void require_same_dtype(const Call& c, size_t first) {
  for (size_t i = first + 1; i < c.in.size(); ++i)
    if (c.in[i].dtype() != c.in[first].dtype())
      reject(c, fmt::format("inputs differ in dtype: {} and {}; use .to() on one of them", c.in[first].str(),
                            c.in[i].str()));
}

void require_same_shape(const Call& c, const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape())
    reject(c, fmt::format("shapes differ: {} and {}", a.shape().str(), b.shape().str()));
}

void require_shape(const Call& c, size_t input, const Shape& wanted) {
  if (c.in[input].shape() != wanted)
    reject(c,
           fmt::format("input {} has shape {}, expected {}", input, c.in[input].shape().str(), wanted.str()));
}

void require_reduction(const Call& c, const char* more) {
  const std::string& r = c.attrs.text("reduction");
  if (r == "mean" || r == "sum" || r == "none" || (more && r == more)) return;
  reject(c, fmt::format("reduction is \"{}\", expected mean, sum{} or none", r,
                        more ? std::string(", ") + more : ""));
}

std::array<bool, kMaxDims> dim_flags(const Call& c, const Shape& shape, const std::vector<int64_t>& dims) {
  std::array<bool, kMaxDims> flags{};
  if (dims.empty()) flags.fill(true);
  for (int64_t d : dims) {
    bool& flag = flags[shape.axis(d, c.name())];
    if (flag) reject(c, fmt::format("dimension {} is named twice for shape {}", d, shape.str()));
    flag = true;
  }
  return flags;
}

Shape keep_reduced(const Shape& shape, const std::array<bool, kMaxDims>& reduced) {
  Shape out = shape;
  for (int i = 0; i < out.rank(); ++i)
    if (reduced[i]) out[i] = 1;
  return out;
}

Specs same_spec(const Call& c) { return {{c.in[0].shape(), c.in[0].dtype()}}; }

Specs floating_unary(const Call& c) {
  require_floating(c, c.in[0]);
  return same_spec(c);
}

Specs numeric_unary(const Call& c) {
  if (c.in[0].dtype() == boolean) reject(c, fmt::format("is not for {}; use .to()", c.in[0].str()));
  return same_spec(c);
}

namespace {
Specs binary_spec(const Call& c, DType result) {
  require_same_dtype(c);
  if (c.in[0].shape() == c.in[1].shape()) return {{c.in[0].shape(), result}};
  return {{broadcast(c.in[0].shape(), c.in[1].shape(), c.name()), result}};
}
}  // namespace

Specs numeric_binary(const Call& c) { return binary_spec(c, c.in[0].dtype()); }

Specs floating_binary(const Call& c) {
  require_floating(c, c.in[0]);
  return binary_spec(c, c.in[0].dtype());
}

Specs comparison(const Call& c) { return binary_spec(c, boolean); }

Tensor sum_to(const Tensor& g, const Shape& shape) {
  if (g.shape() == shape) return g;
  const int shift = g.dim() - shape.rank();
  std::vector<int64_t> dims;
  for (int i = 0; i < g.dim(); ++i)
    if (i < shift || (shape[i - shift] == 1 && g.shape()[i] != 1)) dims.push_back(i);
  const Tensor summed = dims.empty() ? g : sum(g, dims, true);
  return shift ? reshape(summed, to_list(shape)) : summed;
}

Tensor restore_dims(const Tensor& x, const Shape& full, const std::array<bool, kMaxDims>& reduced) {
  const Shape kept = keep_reduced(full, reduced);
  return x.shape() == kept ? x : reshape(x, to_list(kept));
}

Tensor spread_over(const Tensor& g, const Shape& full, const std::array<bool, kMaxDims>& reduced) {
  if (grad_enabled() && g.requires_grad())
    return expand(g.dim() == 0 ? g : restore_dims(g, full, reduced), to_list(full));
  // Not recorded: the same view, without two operators.
  Shape strides = full;
  const bool kept = g.dim() == full.rank();
  for (int i = 0, at = 0; i < full.rank(); ++i) {
    strides[i] = reduced[i] ? 0 : g.strides()[at];
    if (kept || !reduced[i]) ++at;
  }
  return g.alias(full, strides, g.storage_offset());
}

std::vector<int64_t> to_list(const Shape& shape) { return {shape.begin(), shape.end()}; }

Tensor sample(const Shape& shape, double low, double high, uint64_t seed) {
  Tensor t = Tensor::empty(shape, float64);
  Generator g(seed + 17);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<double>()[i] = g.uniform(low, high);
  return t;
}

}  // namespace troupe::ops
