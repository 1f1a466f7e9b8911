#include "core/graph/inplace_write.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/graph/view_history.h"
#include "core/tensor/strided_runs.h"

namespace troupe {
namespace {

// PyTorch's rule: overlaps that strides above 0 may hide are not looked for.
bool repeats_elements(const Tensor& t) {
  if (t.is_contiguous()) return false;
  for (int i = 0; i < t.dim(); ++i)
    if (t.strides()[i] == 0 && t.shape()[i] > 1) return true;
  return false;
}

// Whether its elements lie side by side, in any order and each once.
bool fills_its_range(const Tensor& t) {
  if (t.is_contiguous()) return true;
  std::pair<int64_t, int64_t> dims[kMaxDims];  // stride and size
  int n = 0;
  for (int i = 0; i < t.dim(); ++i)
    if (t.shape()[i] != 1) dims[n++] = {t.strides()[i], t.shape()[i]};
  std::sort(dims, dims + n);
  int64_t step = 1;
  for (int i = 0; i < n; step *= dims[i++].second)
    if (dims[i].first != step) return false;
  return true;
}

// Elements from the first to the last, gaps included.
int64_t extent(const Tensor& t) {
  int64_t last = 0;
  for (int i = 0; i < t.dim(); ++i) last += (t.shape()[i] - 1) * t.strides()[i];
  return last + 1;
}

// Whether views with gaps have an element in common: they may interleave.
bool meet(const Tensor& a, const Tensor& b) {
  int64_t step = 0;  // both have elements at multiples of it alone
  for (const Tensor* t : {&a, &b})
    for (int i = 0; i < t->dim(); ++i)
      if (t->shape()[i] > 1) step = std::gcd(step, t->strides()[i]);
  const int64_t apart = b.storage_offset() - a.storage_offset(), size = extent(a);
  if (step > 1 && apart % step != 0) return false;
  std::vector<bool> taken(static_cast<size_t>(size));
  for_each_run(a, [&](int64_t at, int64_t count, int64_t by) {
    for (int64_t i = 0; i < count; ++i) taken[static_cast<size_t>(at + i * by)] = true;
  });
  bool found = false;
  for_each_run(b, [&](int64_t at, int64_t count, int64_t by) {
    for (int64_t i = 0, place = apart + at; i < count; ++i, place += by)
      found |= place >= 0 && place < size && taken[static_cast<size_t>(place)];
  });
  return found;
}

// Element by element the same ones.
bool same_places(const Tensor& a, const Tensor& b) {
  if (a.storage_offset() != b.storage_offset() || a.numel() != b.numel()) return false;
  int i = 0, j = 0;
  for (;; ++i, ++j) {
    while (i < a.dim() && a.shape()[i] == 1) ++i;
    while (j < b.dim() && b.shape()[j] == 1) ++j;
    if (i == a.dim() || j == b.dim()) return i == a.dim() && j == b.dim();
    if (a.shape()[i] != b.shape()[j] || a.strides()[i] != b.strides()[j]) return false;
  }
}

// Of tensors with gaps PyTorch does not ask, and the order of the elements decides.
bool overlaps_in_part(const Tensor& a, const Tensor& b) {
  if (a.is_same(b) || a.storage() != b.storage() || a.numel() == 0 || b.numel() == 0) return false;
  const int64_t first = a.storage_offset(), end = first + extent(a), other = b.storage_offset(),
                other_end = other + extent(b);
  if (other >= end || first >= other_end) return false;
  if (fills_its_range(a) && fills_its_range(b))
    return first != other || a.numel() != b.numel() || a.strides() != b.strides();  // PyTorch's rule
  return !same_places(a, b) && meet(a, b);
}

[[noreturn]] void complain(const char* writer, const std::string& text) {
  throw_invalid("[" + std::string(writer) + "] " + text);
}

// What may not be recorded; `t` is floating and grad mode on.
void check_history(const Tensor& t, const char* writer) {
  const TensorImpl& impl = *t.impl();
  if (impl.base && impl.origin != ViewOrigin::plain)
    complain(writer, "the view " + t.summary() + " cannot be written: " + why_not_written(impl.origin));
  if (impl.base && t.requires_grad() && Tensor(impl.base).is_leaf())
    complain(writer,
             "the tensor " + t.summary() +
                 " is a view of a leaf that requires a gradient, which is not written while grad mode is "
                 "on: write under a NoGradGuard, or to a clone()");
  if (t.requires_grad() && t.is_leaf())
    complain(writer, "the leaf " + t.summary() +
                         " requires a gradient and is not written while grad mode is on: write under a "
                         "NoGradGuard, or to a clone()");
}

}  // namespace

void begin_write(const Tensor& t, const char* writer, RepeatedElements repeats) {
  if (!t.defined()) [[unlikely]]
    complain(writer, "the tensor to write to is undefined");
  if (repeats == RepeatedElements::refused && repeats_elements(t)) [[unlikely]]
    complain(
        writer,
        "several elements of the tensor " + t.summary() + " with strides " + t.strides().str() +
            " lie at one place in memory, as in an expanded view: clone() it first and write to the clone");
  t.storage()->own_bytes();
}

bool internal::begin_recorded_write(const Tensor& t, const char* writer,
                                    std::initializer_list<const Tensor*> sources, RepeatedElements repeats) {
  begin_write(t, writer, repeats);
  bool recorded = t.requires_grad();
  for (const Tensor* source : sources) {
    if (!source->defined()) [[unlikely]]
      complain(writer, "got an undefined tensor");
    if (overlaps_in_part(t, *source)) [[unlikely]]
      complain(writer, "the tensor " + t.summary() + " shares some of its elements with an input, " +
                           source->summary() + ", at other places: clone() the input first");
    recorded |= source->requires_grad();
  }
  if (!recorded || !grad_enabled() || !is_floating(t.dtype())) return false;
  TensorImpl& impl = *t.impl();
  if (impl.base && impl.base->storage != impl.storage)
    impl.base = nullptr;  // it was given elements of its own
  check_history(t, writer);
  return true;
}

}  // namespace troupe
