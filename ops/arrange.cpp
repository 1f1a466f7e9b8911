#include "ops/arrange.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"
#include "ops/logic.h"
#include "ops/reduce.h"
#include "ops/reshape_ops.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

using Sizes = std::vector<int64_t>;

[[noreturn]] void refuse_arrangement(const char* op, const std::string& text) {
  throw_invalid(fmt::format("[{}] {}", op, text));
}
void require_defined(const char* op, const Tensor& x) {
  if (!x.defined()) refuse_arrangement(op, "got an undefined tensor");
}

// The two dimensions of a diagonal.
std::pair<int, int> planes(const Call& c, const Shape& shape) {
  const int a = shape.axis(c.attrs.integer("dim1"), c.name()),
            b = shape.axis(c.attrs.integer("dim2"), c.name());
  if (a == b) reject(c, fmt::format("dim1 and dim2 must differ, got {} twice for {}", a, shape.str()));
  return {a, b};
}

int64_t diagonal_length(int64_t rows, int64_t columns, int64_t offset) {
  if (offset >= columns || offset <= -rows) return 0;  // before they are subtracted: any offset is right
  return std::min(offset < 0 ? rows + offset : rows, offset < 0 ? columns : columns - offset);
}

Tensors diagonal_view(const Call& c) {
  const Tensor& x = c.in[0];
  if (x.dim() < 2) reject(c, "needs at least two dimensions, got " + x.summary());
  const auto [a, b] = planes(c, x.shape());
  const int64_t offset = c.attrs.integer("offset");
  const int64_t n = diagonal_length(x.shape()[a], x.shape()[b], offset);
  Shape shape = x.shape(), strides = x.strides();
  const int64_t start = n == 0 ? 0 : offset < 0 ? -offset * strides[a] : offset * strides[b];
  shape.push_back(n);
  strides.push_back(strides[a] + strides[b]);
  for (const int dim : {std::max(a, b), std::min(a, b)}) shape.erase(dim), strides.erase(dim);
  return {x.alias(shape, strides, x.storage_offset() + start)};
}

// Zeros [rows, columns] in dimensions dim1 and dim2 with x on the diagonal: x in the columns or the rows
// where it is, and 0 in those places that are not on the diagonal.
Tensor on_diagonal(const Tensor& x, int64_t rows, int64_t columns, int64_t offset, int64_t dim1,
                   int64_t dim2) {
  const int64_t n = x.size(-1), before = std::max<int64_t>(offset, 0);
  const Tensor wide = n == 0 ? zeros({columns}, x.options())
                             : unsqueeze(pad(x, {before, columns - before - n}), -2);  // [.., 1, columns]
  Sizes full = to_list(x.shape());
  full.back() = rows;
  full.push_back(columns);
  const auto line = [&](int64_t size, const Sizes& shape) {
    return reshape(arange(0, size, 1, {int64, x.device()}), shape);
  };
  const Tensor hit = eq(line(columns, {1, columns}), add(line(rows, {rows, 1}), offset));
  const Tensor y = where(hit, expand(wide, full), tensor(0, x.options()));
  const int64_t rank = y.dim();
  return movedim(y, IntList{rank - 2, rank - 1}, IntList{dim1, dim2});
}

Tensors embedded(const Call& c) {
  const Tensor& x = c.in[0];
  if (x.dim() == 0) reject(c, "needs at least one dimension, got a 0-d tensor");
  const auto [a, b] = planes(c, Shape::filled(x.dim() + 1, 1));
  const int64_t offset = c.attrs.integer("offset");
  int64_t side = 0, away = offset;
  if ((offset < 0 && __builtin_sub_overflow(int64_t{0}, offset, &away)) ||
      __builtin_add_overflow(x.size(-1), away, &side))
    reject(c, fmt::format("offset {} is too large", offset));
  return {on_diagonal(x, side, side, offset, a, b)};
}

Tensors unflattened(const Call& c) {
  const Tensor& x = c.in[0];
  const int dim = x.shape().axis(c.attrs.integer("dim"), c.name());
  if (x.dim() == 0) reject(c, "needs at least one dimension, got a 0-d tensor");
  Sizes sizes = c.attrs.ints("sizes"), shape;
  if (sizes.empty()) reject(c, "needs sizes, got []");
  int64_t known = 1;
  for (const int64_t s : sizes)
    if (s < -1 || (s >= 0 && __builtin_mul_overflow(known, s, &known)))
      reject(c, fmt::format("sizes must be at least 0, one of them -1: got {}", str(AttrValue(sizes))));
  const int64_t n = x.shape()[dim];
  const auto open = std::ranges::find(sizes, -1);
  if (open != sizes.end() && known > 0 && n % known == 0) *open = n / known;
  const bool fits =
      std::ranges::find(sizes, -1) == sizes.end() && (open == sizes.end() ? known == n : known > 0);
  if (!fits)
    reject(c, fmt::format("sizes {} do not fill dimension {} of {}", str(AttrValue(c.attrs.ints("sizes"))),
                          dim, x.summary()));
  for (int i = 0; i < x.dim(); ++i) {
    if (i != dim)
      shape.push_back(x.shape()[i]);
    else
      shape.insert(shape.end(), sizes.begin(), sizes.end());
  }
  return {reshape(x, shape)};
}

// Gives x with at least n dimensions, as NumPy adds them: in front, but the third one behind.
Tensor at_least(const char* op, const Tensor& x, int n) {
  require_defined(op, x);
  if (x.dim() >= n) return x;
  if (n == 3 && x.dim() == 2) return unsqueeze(x, 2);
  if (n == 3) return reshape(x, {1, x.numel(), 1});
  return n == 1 ? reshape(x, {1}) : reshape(x, {1, x.numel()});
}

Tensor stacked_along(const char* op, const Tensors& tensors, int least, int64_t dim) {
  if (tensors.empty()) refuse_arrangement(op, "needs at least one tensor");
  Tensors all;
  for (const Tensor& t : tensors) all.push_back(at_least(op, t, least));
  return cat(all, all[0].dim() <= dim ? 0 : dim);
}

}  // namespace

const Op kDiagonal{
    .name = "diagonal",
    .text = "The elements i, i + offset of dimensions dim1 and dim2, as the last one. A view.",
    .attrs = {{"offset", 0}, {"dim1", 0}, {"dim2", 1}},
    .view = diagonal_view,
    .gradient = [](const Backward& b) -> Tensors {
      const auto [a, c] = planes({b.op, {}, b.attrs}, b.shape(0));
      return {on_diagonal(b.grads[0], b.shape(0)[a], b.shape(0)[c], b.attrs.integer("offset"), a, c)};
    },
    .samples = []() -> std::vector<Sample> {
      return {{{sample({3, 4})}},
              {{sample({4, 2, 3})}, {{"offset", -1}, {"dim1", 0}, {"dim2", 2}}},
              {{sample({3, 2, 5})}, {{"offset", 2}, {"dim1", 2}, {"dim2", 0}}},
              {{sample({2, 2})}, {{"offset", 7}}}};
    }};

const Op kDiagEmbed{.name = "diag_embed",
                    .text = "The last dimension on the diagonal of two new ones; zeros elsewhere.",
                    .attrs = {{"offset", 0}, {"dim1", -2}, {"dim2", -1}},
                    .compose = embedded,
                    .takes_half = true,
                    .samples = []() -> std::vector<Sample> {
                      return {{{sample({2, 3})}},
                              {{sample({3, 2})}, {{"offset", 1}, {"dim1", 0}, {"dim2", 2}}},
                              {{sample({3})}, {{"offset", -2}}}};
                    }};

const Op kUnflatten{.name = "unflatten",
                    .text = "Dimension dim as several of these sizes, one of which may be -1.",
                    .attrs = {{"dim", 0}, {"sizes", Sizes{}}},
                    .compose = unflattened,
                    .takes_half = true,
                    .samples = []() -> std::vector<Sample> {
                      return {{{sample({2, 6})}, {{"dim", 1}, {"sizes", Sizes{3, -1}}}},
                              {{sample({4, 2})}, {{"dim", -2}, {"sizes", Sizes{2, 2}}}}};
                    }};

const Op kTile{
    .name = "tile",
    .text = "The tensor, repeats times along each dimension, counted from the last one.",
    .attrs = {{"dims", Sizes{}}},
    .compose = [](const Call& c) -> Tensors {
      Sizes repeats = c.attrs.ints("dims");
      if (const size_t rank = static_cast<size_t>(c.in[0].dim()); repeats.size() < rank)
        repeats.insert(repeats.begin(), rank - repeats.size(), 1);
      return {repeat(c.in[0], repeats)};
    },
    .takes_half = true,
    .samples = []() -> std::vector<Sample> {
      return {{{sample({2, 3})}, {{"dims", Sizes{2}}}}, {{sample({3})}, {{"dims", Sizes{2, 1, 2}}}}};
    }};

Tensor tile(const Tensor& x, const IntList& repeats) { return apply1(kTile, {x}, {{"dims", repeats}}); }

Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim) {
  require_defined("repeat_interleave", x);
  if (repeats < 0)
    refuse_arrangement("repeat_interleave", fmt::format("repeats must be at least 0, got {}", repeats));
  if (!dim || x.dim() == 0) return repeat_interleave(reshape(x, {x.numel()}), repeats, 0);
  const int d = x.shape().axis(*dim, "repeat_interleave");
  Sizes wide = to_list(x.shape()), joined = wide;
  wide.insert(wide.begin() + d + 1, repeats);
  if (__builtin_mul_overflow(joined[static_cast<size_t>(d)], repeats, &joined[static_cast<size_t>(d)]))
    refuse_arrangement("repeat_interleave",
                       fmt::format("{} times {} has too many elements", x.summary(), repeats));
  return clone(reshape(expand(unsqueeze(x, d + 1), wide), joined));
}

Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim) {
  constexpr const char* kName = "repeat_interleave";
  require_defined(kName, x);
  require_defined(kName, repeats);
  if (repeats.dim() > 1 || (repeats.dtype() != int64 && repeats.dtype() != int32))
    refuse_arrangement(kName, "repeats must be a number or integers [n], got " + repeats.summary());
  if (!dim || x.dim() == 0) return repeat_interleave(reshape(x, {x.numel()}), repeats, dim.value_or(0));
  const int d = x.shape().axis(*dim, kName);
  const Sizes times = to(repeats, int64).to_vector<int64_t>();
  if (const auto less = std::ranges::find_if(times, [](int64_t n) { return n < 0; }); less != times.end())
    refuse_arrangement(kName, fmt::format("repeats must be at least 0, got {}", *less));
  if (times.size() == 1) return repeat_interleave(x, times[0], d);
  if (static_cast<int64_t>(times.size()) != x.shape()[d])
    refuse_arrangement(
        kName, fmt::format("repeats must be [{}], one for each slice along dimension {} of {}, got {}",
                           x.shape()[d], d, x.summary(), repeats.summary()));
  Sizes places;
  for (size_t i = 0; i < times.size(); ++i)
    places.insert(places.end(), static_cast<size_t>(times[i]), static_cast<int64_t>(i));
  return index_select(x, d, tensor(places, x.device()));
}

Tensor broadcast_to(const Tensor& x, const IntList& size) { return expand(x, size); }
Tensor unflatten(const Tensor& x, int64_t dim, const IntList& sizes) {
  return apply1(kUnflatten, {x}, {{"dim", dim}, {"sizes", sizes}});
}
Tensor hstack(const Tensors& tensors) { return stacked_along("hstack", tensors, 1, 1); }
Tensor vstack(const Tensors& tensors) { return stacked_along("vstack", tensors, 2, 0); }
Tensor dstack(const Tensors& tensors) { return stacked_along("dstack", tensors, 3, 2); }

Tensors meshgrid(const Tensors& tensors, const std::string& indexing) {
  if (tensors.empty()) refuse_arrangement("meshgrid", "needs at least one tensor");
  if (indexing != "ij" && indexing != "xy")
    refuse_arrangement("meshgrid", fmt::format("indexing must be \"ij\" or \"xy\", got \"{}\"", indexing));
  Sizes grid;
  for (const Tensor& t : tensors) {
    require_defined("meshgrid", t);
    if (t.dim() > 1) refuse_arrangement("meshgrid", "needs vectors and numbers, got " + t.summary());
    if (t.dtype() != tensors[0].dtype() || t.device() != tensors[0].device())
      refuse_arrangement("meshgrid",
                         fmt::format("inputs differ in dtype or device: {} and {}; use .to() on one of them",
                                     tensors[0].summary(), t.summary()));
    grid.push_back(t.numel());
  }
  Tensors out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Sizes lie(tensors.size(), 1);
    lie[i] = grid[i];
    const Tensor all = expand(reshape(tensors[i], lie), grid);
    out.push_back(indexing == "xy" && tensors.size() > 1 ? transpose(all, 0, 1) : all);
  }
  return out;
}

Tensor squeeze(const Tensor& x, const IntList& dim) {
  require_defined("squeeze", x);
  Sizes axes;
  for (const int64_t d : dim) {
    const int64_t at = x.shape().axis(d, "squeeze");
    if (std::ranges::find(axes, at) != axes.end())
      refuse_arrangement("squeeze", fmt::format("dimension {} stands twice in {}", d, str(AttrValue(dim))));
    axes.push_back(at);
  }
  std::ranges::sort(axes, std::greater());
  Tensor y = dim.size() == 1 ? x : reshape(x, to_list(x.shape()));  // a view, even of no dimension
  for (const int64_t at : axes) y = squeeze(y, at);
  return y;
}

Tensor movedim(const Tensor& x, const IntList& source, const IntList& destination) {
  require_defined("movedim", x);
  if (source.size() != destination.size())
    refuse_arrangement("movedim", fmt::format("{} and {} are not as many dimensions", str(AttrValue(source)),
                                              str(AttrValue(destination))));
  constexpr int64_t kOpen = -1;
  const size_t rank = static_cast<size_t>(x.dim());
  Sizes order(rank, kOpen);
  std::vector<bool> moved(rank, false);
  for (size_t i = 0; i < source.size(); ++i) {
    const size_t from = static_cast<size_t>(x.shape().axis(source[i], "movedim")),
                 at = static_cast<size_t>(x.shape().axis(destination[i], "movedim"));
    if (rank == 0) continue;
    if (moved[from] || order[at] != kOpen)
      refuse_arrangement("movedim", fmt::format("a dimension stands twice in {} or {}",
                                                str(AttrValue(source)), str(AttrValue(destination))));
    moved[from] = true;
    order[at] = static_cast<int64_t>(from);
  }
  size_t next = 0;
  for (int64_t& at : order) {
    if (at != kOpen) continue;
    while (moved[next]) ++next;
    at = static_cast<int64_t>(next++);
  }
  return permute(x, order);
}

Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  return apply1(kDiagonal, {x}, {{"offset", offset}, {"dim1", dim1}, {"dim2", dim2}});
}
Tensor diag_embed(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  return apply1(kDiagEmbed, {x}, {{"offset", offset}, {"dim1", dim1}, {"dim2", dim2}});
}
Tensor diag(const Tensor& x, int64_t diagonal) {
  require_defined("diag", x);
  if (x.dim() == 1) return diag_embed(x, diagonal);
  if (x.dim() != 2) refuse_arrangement("diag", "needs a vector or a matrix, got " + x.summary());
  return clone(ops::diagonal(x, diagonal));
}

}  // namespace troupe::ops
