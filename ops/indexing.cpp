// Numbers, slices, None and Ellipsis make a view. Tensors then pick rows of that view, with the dimensions
// that they stand for in front and as one: an index_select, or an index_copy.
#include "ops/indexing.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "core/graph/inplace_write.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "ops/dispatch/check.h"
#include "ops/index.h"
#include "ops/inplace.h"
#include "ops/reshape_ops.h"
#include "ops/view.h"

namespace troupe {

TensorIndex::TensorIndex(Slice slice) : any_(slice) {}
TensorIndex::TensorIndex(NoneType none) : any_(none) {}
TensorIndex::TensorIndex(EllipsisType all) : any_(all) {}
TensorIndex::TensorIndex(Tensor t) : any_(std::move(t)) {}
TensorIndex::TensorIndex(Number number) : any_(number.at) {}
TensorIndex::TensorIndex(const TensorIndex&) = default;
TensorIndex::TensorIndex(TensorIndex&&) noexcept = default;
TensorIndex& TensorIndex::operator=(const TensorIndex&) = default;
TensorIndex& TensorIndex::operator=(TensorIndex&&) noexcept = default;
TensorIndex::~TensorIndex() = default;
TensorIndex::Any TensorIndex::any() && { return std::move(any_); }

TensorIndex::TensorIndex(const char* text) : any_(Ellipsis) {
  if (std::string_view(text) != "...")
    throw_invalid("[index] the one text that is an index is \"...\", got \"" + std::string(text) + "\"");
}

namespace ops {
namespace {

using Ints = std::vector<int64_t>;
constexpr int64_t kToTheEnd = std::numeric_limits<int64_t>::max();

[[noreturn]] void refuse(const std::string& text) { throw_invalid("[index] " + text); }

// A view, and the int64 tensors that index its dimensions (undefined: none).
struct Basic {
  Tensor view;
  Tensors picks;
};

// How many dimensions of x an index stands for.
int64_t taken(const TensorIndex& index) {
  if (std::holds_alternative<NoneType>(index.any()) || std::holds_alternative<EllipsisType>(index.any()))
    return 0;
  const auto* t = std::get_if<Tensor>(&index.any());
  return t && t->defined() && t->dtype() == boolean ? t->dim() : 1;
}

// The places of the true elements, an int64 tensor for each dimension.
Tensors places(const Tensor& mask) {
  const std::vector<bool> on = mask.to_vector<bool>();
  std::vector<Ints> at(static_cast<size_t>(mask.dim()));
  for (int64_t i = 0; i < mask.numel(); ++i) {
    if (!on[static_cast<size_t>(i)]) continue;
    int64_t rest = i;
    for (int d = mask.dim() - 1; d >= 0; rest /= mask.shape()[d--])
      at[static_cast<size_t>(d)].push_back(rest % mask.shape()[d]);
  }
  Tensors out;
  for (const Ints& one : at) out.push_back(tensor(one));
  return out;
}

// The dimensions of `view` from `dim` on become what the tensor `index` picks.
void pick(const Tensor& index, int64_t dim, Basic& b) {
  if (!index.defined()) refuse("an index is an undefined tensor");
  b.picks.resize(static_cast<size_t>(dim));
  if (index.dtype() == int64 || index.dtype() == int32) return b.picks.push_back(to(index, int64));
  if (index.dtype() != boolean)
    refuse(fmt::format("tensors that index are bool, int64 or int32, got {}; use .to()", index.summary()));
  if (index.dim() == 0)
    refuse("a mask has at least one dimension; use masked_fill() or where() with a 0-d one");
  for (int d = 0; d < index.dim(); ++d)
    if (index.shape()[d] != b.view.size(dim + d))
      refuse(fmt::format("the mask {} does not fit the dimensions from {} on of {}", index.shape().str(), dim,
                         b.view.summary()));
  for (Tensor& t : places(index)) b.picks.push_back(std::move(t));
}

Basic basic(const Tensor& x, const std::vector<TensorIndex>& indices) {
  if (!x.defined()) refuse("the tensor is undefined");
  int64_t left = x.dim();
  bool open = false;
  for (const TensorIndex& index : indices) {
    left -= taken(index);
    if (!std::holds_alternative<EllipsisType>(index.any())) continue;
    if (open) refuse("Ellipsis stands twice");
    open = true;
  }
  if (left < 0)
    refuse(fmt::format("too many indices: they stand for {} dimensions, the tensor is {}", x.dim() - left,
                       x.summary()));
  Basic b{expand(x, to_list(x.shape())), {}};  // x.index({Ellipsis}) is a view, too
  int64_t dim = 0;
  for (const TensorIndex& index : indices) {
    if (const auto* at = std::get_if<int64_t>(&index.any())) {
      b.view = select(b.view, dim, *at);
    } else if (const auto* s = std::get_if<Slice>(&index.any())) {
      b.view = slice(b.view, dim++, s->start.value_or(0), s->stop.value_or(kToTheEnd), s->step.value_or(1));
    } else if (std::holds_alternative<NoneType>(index.any())) {
      b.view = unsqueeze(b.view, dim++);
    } else if (std::holds_alternative<EllipsisType>(index.any())) {
      dim += left;
    } else {
      const Tensor& t = std::get<Tensor>(index.any());
      if (t.defined() && (t.dtype() == int64 || t.dtype() == int32) && t.dim() == 0) {
        b.view = select(b.view, dim, t.to_vector<int64_t>()[0]);
        continue;
      }
      pick(t, dim, b);
      dim = static_cast<int64_t>(b.picks.size());
    }
  }
  return b;
}

// The rows that the tensors of a Basic pick.
struct Picked {
  Tensor rows;  // the view as [indexed dimensions as one, the others]
  Tensor at;    // [number of rows picked]
  Shape shape;  // of the tensors together
  Ints order;   // the view's dimensions, as `rows` has them
  Ints result;  // dimensions of [shape, others], in the order of the result
  Shape others;
};

Picked picked(const Basic& b) {
  Picked p;
  std::vector<size_t> dims;
  for (size_t d = 0; d < b.picks.size(); ++d)
    if (b.picks[d].defined()) dims.push_back(d), p.shape = broadcast(p.shape, b.picks[d].shape(), "index");
  Ints at(static_cast<size_t>(p.shape.numel()), 0);
  for (size_t d : dims) {
    const int64_t size = b.view.shape()[static_cast<int>(d)];
    const Ints one = expand(b.picks[d], to_list(p.shape)).to_vector<int64_t>();
    for (size_t i = 0; i < at.size(); ++i) {
      const int64_t index = one[i] < 0 ? one[i] + size : one[i];
      if (index < 0 || index >= size)
        refuse(fmt::format("index {} is out of range for dimension {} of {}", one[i], d, b.view.summary()));
      at[i] = at[i] * size + index;
    }
    p.order.push_back(static_cast<int64_t>(d));
  }
  p.at = tensor(at, b.view.device());
  for (int64_t d = 0; d < b.view.dim(); ++d) {
    if (static_cast<size_t>(d) < b.picks.size() && b.picks[static_cast<size_t>(d)].defined()) continue;
    p.order.push_back(d);
    p.others.push_back(b.view.shape()[static_cast<int>(d)]);
  }
  // In place of the first of them, if they follow each other.
  const bool together = dims.back() - dims.front() + 1 == dims.size();
  const int64_t before = together ? static_cast<int64_t>(dims.front()) : 0, rank = p.shape.rank();
  for (int64_t i = 0; i < before; ++i) p.result.push_back(rank + i);
  for (int64_t i = 0; i < rank; ++i) p.result.push_back(i);
  for (int64_t i = before; i < p.others.rank(); ++i) p.result.push_back(rank + i);
  return p;
}

// The dimensions of `from`, in order.
Shape ordered(const Shape& from, const Ints& dims) {
  Shape out;
  for (int64_t d : dims) out.push_back(from[static_cast<int>(d)]);
  return out;
}

Ints inverse(const Ints& order) {
  Ints out(order.size());
  for (size_t i = 0; i < order.size(); ++i) out[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return out;
}

Shape joined(const Shape& a, const Shape& b) {
  Shape out = a;
  for (int64_t n : b) out.push_back(n);
  return out;
}

// x with its indexed dimensions in front and as one.
Tensor as_rows(const Tensor& x, const Picked& p) {
  const Tensor moved = permute(x, p.order);
  int64_t rows = 1;
  for (int i = 0; i < moved.dim() - p.others.rank(); ++i) rows *= moved.shape()[i];
  return reshape(moved, to_list(joined({rows}, p.others)));
}

// Leading sizes of 1 that `to` has no place for go, as where PyTorch sets items.
Tensor without_leading_ones(Tensor value, const Shape& to) {
  while (value.dim() > to.rank() && value.shape()[0] == 1) value = squeeze(value, 0);
  return value;
}

// Whether they may share elements.
bool meet(const Tensor& a, const Tensor& b) {
  if (a.storage() != b.storage() || a.numel() == 0 || b.numel() == 0) return false;
  const auto end = [](const Tensor& t) {
    int64_t last = 0;
    for (int d = 0; d < t.dim(); ++d) last += (t.shape()[d] - 1) * t.strides()[d];
    return t.address() + (last + 1) * static_cast<int64_t>(item_size(t.dtype()));
  };
  return a.address() < end(b) && b.address() < end(a);
}

// PyTorch's rule for what is written where tensors say.
void require_apart(const Basic& b, const Tensor& value) {
  bool shared = value.dim() > 0 && meet(b.view, value);
  for (const Tensor& t : b.picks) shared |= t.defined() && meet(b.view, t);
  if (shared)
    throw_invalid(
        fmt::format("[index_put_] the tensor {} shares elements with an index or the value: clone() it",
                    b.view.summary()));
}

// source [number of rows, others] to the rows of the view that p picks.
void write_rows(const Tensor& view, const Picked& p, const Tensor& source) {
  const Tensor moved = permute(view, p.order), from = source.contiguous_data();
  const int picked = moved.dim() - p.others.rank();
  Shape strides;
  for (int d = picked; d < moved.dim(); ++d) strides.push_back(moved.strides()[d]);
  const size_t bytes = static_cast<size_t>(p.others.numel()) * item_size(view.dtype());
  const Ints rows = p.at.to_vector<int64_t>();
  for (size_t i = 0; i < rows.size(); ++i) {
    int64_t offset = moved.storage_offset(), rest = rows[i];
    for (int d = picked - 1; d >= 0; rest /= moved.shape()[d--])
      offset += rest % moved.shape()[d] * moved.strides()[d];
    const Tensor row = moved.alias(p.others, strides, offset);
    if (row.is_contiguous())
      std::memcpy(row.bytes(), from.bytes() + i * bytes, bytes);
    else
      copy_elements(row, from.alias(p.others, p.others.contiguous_strides(),
                                    static_cast<int64_t>(i) * p.others.numel()));
  }
}

void put_rows(const Tensor& view, const Picked& p, const Tensor& value, bool recorded,
              bool accumulate = false) {
  const Shape wanted = ordered(joined(p.shape, p.others), p.result);
  const Tensor fits = without_leading_ones(value, wanted);
  if (broadcast(wanted, fits.shape(), "index_put_") != wanted)
    throw_invalid(fmt::format("[index_put_] the value {} does not broadcast to {}, which is indexed",
                              value.shape().str(), wanted.str()));
  // [shape, others], the rows as one.
  const Tensor source = reshape(permute(expand(fits, to_list(wanted)), inverse(p.result)),
                                to_list(joined({p.at.numel()}, p.others)));
  if (!recorded && !accumulate && view.device().is_cpu()) {
    write_rows(view, p, source.storage() == view.storage() ? source.clone_data() : source);
    return view.bump_version("index_put_");
  }
  const Tensor rows = as_rows(view, p);
  const Tensor changed = accumulate ? index_add(rows, 0, p.at, source) : index_copy(rows, 0, p.at, source);
  // Back to the view's own dimensions.
  copy_(view, permute(reshape(changed, to_list(ordered(view.shape(), p.order))), inverse(p.order)));
}

}  // namespace

Tensor index(const Tensor& x, const std::vector<TensorIndex>& indices) {
  const Basic b = basic(x, indices);
  if (b.picks.empty()) return b.view;
  const Picked p = picked(b);
  const Tensor rows = index_select(as_rows(b.view, p), 0, p.at);
  return permute(reshape(rows, to_list(joined(p.shape, p.others))), p.result);
}

void index_put_(const Tensor& x, const std::vector<TensorIndex>& indices, const Tensor& value,
                bool accumulate) {
  if (!value.defined()) throw_invalid("[index_put_] the value is an undefined tensor");
  const Basic b = basic(x, indices);
  const bool recorded = troupe::internal::begin_recorded_write(b.view, "index_put_", {&value});
  if (b.picks.empty()) {
    const Tensor fits = without_leading_ones(value, b.view.shape());
    return accumulate ? add_(b.view, fits) : copy_(b.view, fits);
  }
  if (value.dtype() != x.dtype())
    throw_invalid(fmt::format("[index_put_] the value is {}, the tensor {}: use .to() on the value",
                              value.summary(), x.summary()));
  require_apart(b, value);
  put_rows(b.view, picked(b), value, recorded, accumulate);
}

void index_put_(const Tensor& x, const std::vector<TensorIndex>& indices, Scalar value) {
  const Basic b = basic(x, indices);
  const bool recorded = troupe::internal::begin_recorded_write(
      b.view, "index_put_", {}, b.picks.empty() ? RepeatedElements::harmless : RepeatedElements::refused);
  if (b.picks.empty()) return fill_(b.view, value);
  const Tensor full = tensor(value, x.options());
  require_apart(b, full);
  put_rows(b.view, picked(b), full, recorded);
}

}  // namespace ops
}  // namespace troupe
