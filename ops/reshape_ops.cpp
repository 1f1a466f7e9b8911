#include "ops/reshape_ops.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

using Ints = std::vector<int64_t>;

[[noreturn]] void refuse(const char* op, const std::string& text) {
  throw_invalid(fmt::format("[{}] {}", op, text));
}

// A dimension of a tensor that has one.
int axis_of(const char* op, const Tensor& x, int64_t dim) {
  if (!x.defined()) refuse(op, "got an undefined tensor");
  if (x.dim() == 0) refuse(op, "needs at least one dimension, got a 0-d tensor");
  return x.shape().axis(dim, op);
}

Tensors pieces(const char* op, const Tensor& x, int64_t size, int64_t dim) {
  const int64_t n = x.shape()[axis_of(op, x, dim)];
  if (size < 1) refuse(op, fmt::format("the size of a piece must be at least 1, got {}", size));
  Ints sizes;
  for (int64_t left = n; left > 0; left -= size) sizes.push_back(std::min(left, size));
  if (sizes.empty()) sizes.push_back(0);
  return split(x, sizes, dim);
}

Tensors rolled(const Call& c) {
  const Ints &shifts = c.attrs.ints("shifts"), &dims = c.attrs.ints("dims");
  if (shifts.size() != dims.size())
    reject(c, fmt::format("{} shifts for {} dims", str(AttrValue(shifts)), str(AttrValue(dims))));
  Tensor x = c.in[0];
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t n = x.shape()[axis_of(c.name(), x, dims[i])];
    if (n == 0) continue;
    const int64_t cut = n - ((shifts[i] % n) + n) % n;
    if (cut < n) x = cat({slice(x, dims[i], cut, n), slice(x, dims[i], 0, cut)}, dims[i]);
  }
  return {x.is_same(c.in[0]) ? clone(x) : x};
}

// [a, b] as [1, a, 1, b], stretched to [r, a, s, b].
Tensors repeated(const Call& c) {
  const Tensor& x = c.in[0];
  const Ints& repeats = c.attrs.ints("repeats");
  const int n = static_cast<int>(repeats.size()), shift = n - x.dim();
  if (shift < 0)
    reject(c, fmt::format("{} are fewer than the dimensions of {}", str(AttrValue(repeats)), x.summary()));
  Tensor y = x;
  // One dimension after the other, so that there is never more than one dimension too many.
  for (int i = n - 1; i >= 0; --i) {
    const int64_t times = repeats[static_cast<size_t>(i)];
    if (times < 0) reject(c, fmt::format("repeats must be at least 0, got {}", str(AttrValue(repeats))));
    if (i < shift) {
      y = unsqueeze(y, 0);
      Ints wide = to_list(y.shape());
      wide[0] = times;
      y = expand(y, wide);
    } else if (times != 1) {
      y = unsqueeze(y, i - shift);
      Ints wide = to_list(y.shape());
      wide[static_cast<size_t>(i - shift)] = times;
      Ints joined = wide;
      int64_t& size = joined[static_cast<size_t>(i - shift)];
      if (__builtin_mul_overflow(size, joined[static_cast<size_t>(i - shift) + 1], &size))
        reject(c, fmt::format("{} times {} has too many elements", x.shape().str(), str(AttrValue(repeats))));
      joined.erase(joined.begin() + (i - shift) + 1);
      y = reshape(expand(y, wide), joined);
    }
  }
  return {y.storage() == x.storage() || !y.is_contiguous() ? clone(y) : y};
}

}  // namespace

const Op kRoll{
    .name = "roll",
    .text = "Moves elements by shifts along dims; what leaves at the end comes in at the beginning.",
    .attrs = {{"shifts", Ints{}}, {"dims", Ints{}}},
    .compose = rolled,
    .takes_half = true,
    .function = [](std::span<const Tensor> in, const Attrs& a) -> Tensors {
      return {roll(in[0], a.ints("shifts"), a.ints("dims"))};
    },
    .samples = []() -> std::vector<Sample> {
      return {{{sample({3, 4})}, {{"shifts", Ints{1, -2}}, {"dims", Ints{0, -1}}}},
              {{sample({5})}, {{"shifts", Ints{12}}, {"dims", Ints{0}}}},
              {{sample({0, 2})}, {{"shifts", Ints{3}}, {"dims", Ints{0}}}}};
    }};

const Op kRepeat{.name = "repeat",
                 .text = "The tensor, repeats times along each dimension.",
                 .attrs = {{"repeats", Ints{}}},
                 .compose = repeated,
                 .takes_half = true,
                 .samples = []() -> std::vector<Sample> {
                   return {{{sample({2, 3})}, {{"repeats", Ints{2, 1, 3}}}},
                           {{sample({})}, {{"repeats", Ints{3}}}},
                           {{sample({2, 2})}, {{"repeats", Ints{0, 2}}}}};
                 }};

Tensor view(const Tensor& x, const IntList& shape) {
  if (!x.defined()) refuse("view", "got an undefined tensor");
  const Tensor y = reshape(x, shape);
  if (y.storage() != x.storage())
    refuse("view", fmt::format("{} with strides {} has no view {}; use reshape()", x.summary(),
                               x.strides().str(), y.shape().str()));
  return y;
}

Tensor flatten(const Tensor& x, int64_t start_dim, int64_t end_dim) {
  if (!x.defined()) refuse("flatten", "got an undefined tensor");
  if (x.dim() == 0) return reshape(x, {1});
  const int start = axis_of("flatten", x, start_dim), end = axis_of("flatten", x, end_dim);
  if (start == end) return x;  // itself, as in PyTorch: no view whose history grad mode may cut
  if (start > end) refuse("flatten", fmt::format("start_dim {} is after end_dim {}", start_dim, end_dim));
  Ints shape;
  for (int i = 0; i < x.dim(); ++i) {
    if (i <= start || i > end)
      shape.push_back(x.shape()[i]);
    else
      shape.back() *= x.shape()[i];
  }
  return reshape(x, shape);
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  const int d = axis_of("select", x, dim);
  const int64_t n = x.shape()[d], at = index < 0 ? index + n : index;
  if (at < 0 || at >= n)
    refuse("select", fmt::format("index {} is out of range for dimension {} of {}", index, dim, x.summary()));
  return squeeze(slice(x, d, at, at + 1), d);
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  const int d = axis_of("narrow", x, dim);
  const int64_t n = x.shape()[d], from = start < 0 ? start + n : start;
  if (start < -n || from > n) refuse("narrow", fmt::format("start {} is out of range for size {}", start, n));
  if (length < 0 || from + length > n)
    refuse("narrow",
           fmt::format("start {} and length {} exceed dimension {} of {}", start, length, dim, x.summary()));
  return slice(x, d, from, from + length);
}

Tensors unbind(const Tensor& x, int64_t dim) {
  const int d = axis_of("unbind", x, dim);
  const ViewOrigin origin = grad_enabled() ? ViewOrigin::one_of_several : ViewOrigin::no_grad;
  Tensors all;
  for (int64_t i = 0; i < x.shape()[d]; ++i) {
    all.push_back(select(x, d, i));
    all.back().set_view_of(x, origin);
  }
  return all;
}

Tensor squeeze(const Tensor& x) {
  if (!x.defined()) refuse("squeeze", "got an undefined tensor");
  Ints kept;
  for (const int64_t size : x.shape())
    if (size != 1) kept.push_back(size);
  return reshape(x, kept);
}

Tensor movedim(const Tensor& x, int64_t source, int64_t destination) {
  if (!x.defined()) refuse("movedim", "got an undefined tensor");
  const int from = x.shape().axis(source, "movedim"), to = x.shape().axis(destination, "movedim");
  Ints order;
  for (int i = 0; i < x.dim(); ++i)
    if (i != from) order.push_back(i);
  if (x.dim()) order.insert(order.begin() + to, from);
  return permute(x, order);
}

Tensor t(const Tensor& x) {
  if (!x.defined()) refuse("t", "got an undefined tensor");
  if (x.dim() > 2)
    refuse("t", fmt::format("needs at most two dimensions, got {}; use transpose", x.summary()));
  return x.dim() == 2 ? transpose(x, 0, 1) : reshape(x, to_list(x.shape()));
}

Tensors split(const Tensor& x, int64_t size, int64_t dim) { return pieces("split", x, size, dim); }

Tensors chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  const int64_t n = x.shape()[axis_of("chunk", x, dim)];
  if (chunks < 1) refuse("chunk", fmt::format("the number of chunks must be at least 1, got {}", chunks));
  return pieces("chunk", x, std::max<int64_t>((n + chunks - 1) / chunks, 1), dim);
}

Tensor roll(const Tensor& x, const IntList& shifts, const IntList& dims) {
  if (shifts.empty()) refuse("roll", "needs shifts, got []");
  if (dims.empty() && shifts.size() == 1 && x.defined())
    return reshape(roll(reshape(x, {x.numel()}), shifts, 0), to_list(x.shape()));
  return apply1(kRoll, {x}, {{"shifts", shifts}, {"dims", dims}});
}
Tensor repeat(const Tensor& x, const IntList& repeats) {
  return apply1(kRepeat, {x}, {{"repeats", repeats}});
}

}  // namespace troupe::ops
