// Elements around a tensor: numbers, or those that are there.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/index.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

// The elements that are in a dimension afterwards.
IntList around(int64_t size, int64_t before, int64_t after, const std::string& mode) {
  const int64_t most = mode == "reflect" ? size - 1 : mode == "circular" ? size : INT64_MAX;
  if (size == 0 || before > most || after > most)
    throw_invalid(
        fmt::format("[pad] mode \"{}\" cannot put {} and {} elements around {}", mode, before, after, size));
  IntList at;
  for (int64_t i = -before; i < size + after; ++i)
    at.push_back(mode == "replicate"  ? std::clamp<int64_t>(i, 0, size - 1)
                 : mode == "circular" ? (i + size) % size
                 : i < 0              ? -i
                 : i < size           ? i
                                      : 2 * (size - 1) - i);
  return at;
}

// Without the elements that widths below 0 take away, of which no more than there are.
Tensor cut_off(const Tensor& x, int64_t dim, int64_t before, int64_t after) {
  const int64_t size = x.size(dim), from = std::max<int64_t>(-before, 0),
                to = size - std::max<int64_t>(-after, 0);
  if (from > size || to < from)
    throw_invalid(fmt::format("[pad] widths {} and {} take more away than the {} elements there are", before,
                              after, size));
  return slice(x, dim, from, to);
}

Tensor padded_or_cut(Tensor x, IntList widths, Scalar value) {
  const auto rank = static_cast<int64_t>(widths.size() / 2);
  if (!x.defined() || widths.size() % 2 || rank > x.dim())
    throw_invalid(fmt::format("[pad] got {} widths for {}", widths.size(), x.summary()));
  for (int64_t k = 0; k < rank; ++k) {
    int64_t &before = widths[static_cast<size_t>(2 * k)], &after = widths[static_cast<size_t>(2 * k + 1)];
    if (before < 0 || after < 0) x = cut_off(x, x.dim() - 1 - k, before, after);
    before = std::max<int64_t>(before, 0), after = std::max<int64_t>(after, 0);
  }
  return apply1(kPad, {x}, {{"pad", widths}, {"value", value}});
}

Tensor repeated_around(Tensor x, const IntList& widths, const std::string& mode) {
  if (mode != "reflect" && mode != "replicate" && mode != "circular")
    throw_invalid(fmt::format(
        "[pad] mode must be \"constant\", \"reflect\", \"replicate\" or \"circular\", got \"{}\"", mode));
  const auto rank = static_cast<int>(widths.size() / 2);
  if (!x.defined() || widths.size() % 2 || rank < 1 || rank > 3 ||
      (x.dim() != rank + 1 && x.dim() != rank + 2))
    throw_invalid(
        fmt::format("[pad] mode \"{}\" is for [N, C, ..] or [C, ..] with two widths of each of the last 1 to "
                    "3 dimensions, "
                    "got {} widths for {}",
                    mode, widths.size(), x.summary()));
  bool copied = false;
  for (int k = 0; k < rank; ++k) {
    const auto at = static_cast<size_t>(2 * k);
    const int dim = x.dim() - 1 - k;
    int64_t before = widths[at], after = widths[at + 1];
    if (mode == "circular" && (before < 0 || after < 0)) {  // what is cut off does not come round
      x = cut_off(x, dim, before, after);
      before = std::max<int64_t>(before, 0), after = std::max<int64_t>(after, 0);
    }
    if (before == 0 && after == 0) continue;
    const IntList places = around(x.size(dim), before, after, mode);
    if (places.empty()) throw_invalid("[pad] nothing is left of " + x.summary());
    x = index_select(x, dim, tensor(places, x.device()));
    copied = true;
  }
  return copied ? x : clone(x);
}

}  // namespace

Tensor pad(const Tensor& x, const IntList& widths, const std::string& mode, Scalar value) {
  if (mode != "constant") return repeated_around(x, widths, mode);
  if (std::ranges::any_of(widths, [](int64_t w) { return w < 0; })) return padded_or_cut(x, widths, value);
  return apply1(kPad, {x}, {{"pad", widths}, {"value", value}});
}

}  // namespace troupe::ops
