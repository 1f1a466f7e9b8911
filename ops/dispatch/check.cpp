#include "ops/dispatch/check.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace troupe::ops {

void reject(const Call& c, const std::string& text) { throw_invalid(fmt::format("[{}] {}", c.name(), text)); }

void require_floating(const Call& c, const Tensor& t) {
  if (!is_floating(t.dtype()))
    reject(c, fmt::format("needs a floating dtype, got {}; use .to()", t.summary()));
}

void require_int64(const Call& c, const Tensor& t, const char* what) {
  if (t.dtype() != int64)
    reject(c, fmt::format("{} must be int64, got {}; use .to(int64)", what, t.summary()));
}

void require_same_dtype(const Call& c, size_t first) {
  for (size_t i = first + 1; i < c.in.size(); ++i)
    if (c.in[i].dtype() != c.in[first].dtype())
      reject(c, fmt::format("inputs differ in dtype: {} and {}; use .to() on one of them",
                            c.in[first].summary(), c.in[i].summary()));
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
  if (c.in[0].dtype() == boolean) reject(c, fmt::format("is not for {}; use .to()", c.in[0].summary()));
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

std::vector<int64_t> to_list(const Shape& shape) { return {shape.begin(), shape.end()}; }

}  // namespace troupe::ops
