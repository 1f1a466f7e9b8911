// The elements that a rank has of an operation, in tensors where they lie.
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "collective/schedule/problem.h"
#include "core/tensor/tensor.h"

namespace troupe::internal::collective {

/// Not synchronized. Written without begin_write(): parts that wait to be sent show the same bytes, and
/// schedules say when those are written (see renew()).
class Elements {
 public:
  explicit Elements(DType dtype = DType::float32) : dtype_(dtype) {}
  DType dtype() const { return dtype_; }
  /// `t` is contiguous, of that dtype, of the CPU unless its elements only go from device to device; no two
  /// have the same elements.
  void add(Range range, Tensor t);
  /// Those of a range, of one dimension: a view, or a copy if it goes over several tensors.
  Tensor read(Range range) const;
  void write(Range range, const Tensor& elements) const;
  /// New tensors for those that lie in the range, in place of the old ones, which parts on their way keep.
  void renew(Range range);
  /// Calls f(first byte, elements, which of the range is the first) for each tensor with some of it.
  template <class F>
  void over(Range range, F f) const {
    for (const auto& [has, t] : tensors_) {
      const size_t from = std::max(has.from, range.from), to = std::min(has.end(), range.end());
      if (from < to) f(t.bytes() + (from - has.from) * t.element_size(), to - from, from - range.from);
    }
  }
  template <class F>
  void each(F f) const {
    for (const auto& [range, t] : tensors_) f(range, t);
  }
  Tensors tensors() const;

 private:
  DType dtype_;
  std::vector<std::pair<Range, Tensor>> tensors_;
};

}  // namespace troupe::internal::collective
