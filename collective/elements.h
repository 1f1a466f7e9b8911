// The elements that a rank has of an operation, in tensors where they lie.
#pragma once
#include <algorithm>
#include <map>
#include <vector>

#include "collective/schedule/problem.h"
#include "core/tensor/tensor.h"

namespace troupe::internal::collective {

/// Not synchronized. Written without begin_write(): parts that wait to be sent show the same bytes, and
/// schedules say when those are written (see renew()). A range is read before any of it is written, or after
/// all of it.
class Elements {
 public:
  explicit Elements(DType dtype = DType::float32) : dtype_(dtype) {}
  DType dtype() const { return dtype_; }
  /// `t` is contiguous, of that dtype, of the CPU unless its elements only go from device to device; no two
  /// have the same elements. What comes is written there.
  void add(Range range, Tensor t);
  /// The same, but `t` stays as it is: what comes is written to a new tensor.
  void add_given(Range range, Tensor t);
  /// Those of a range, of one dimension: a view, or a copy if it goes over several tensors.
  Tensor read(Range range) const;
  /// The same as several tensors, one behind the other: views, and copies of neighbours that are small.
  Tensors parts(Range range) const;
  /// `elements`: of one dimension, one behind the other.
  void write(Range range, const Tensors& elements);
  /// All tensors stay as they are from now on, since parts on their way show them: what comes is written to
  /// new ones.
  void renew();
  /// Calls f(first byte, where its new value goes, elements, which of the range is the first) for each tensor
  /// with some of it.
  template <class F>
  void rewrite(Range range, F f) {
    for (Place& p : places_)
      if (const Range part = common(p.range, range); part.size) {
        const std::byte* const now = first_byte(current(p, part), p, part);
        if (!p.result.defined()) p.result = new_like(p);
        f(now, first_byte(p.result, p, part), part.size, part.from - range.from);
      }
    note_written(range);
  }
  template <class F>
  void each(F f) const {
    for (const Place& p : places_) f(p.range, p.result.defined() ? p.result : p.given);
  }
  Tensors tensors() const;

 private:
  // What was given, and what is written: one tensor where that is done in place.
  struct Place {
    Range range;
    Tensor given, result;
  };
  static Range common(const Range& a, const Range& b) {
    const size_t from = std::max(a.from, b.from), end = std::min(a.end(), b.end());
    return {from, from < end ? end - from : 0};
  }
  static std::byte* first_byte(const Tensor& t, const Place& p, const Range& part) {
    return t.bytes() + (part.from - p.range.from) * t.element_size();
  }
  const Tensor& current(const Place& p, const Range& part) const;
  Tensor new_like(const Place& p) const;
  void note_written(const Range& range);

  DType dtype_;
  std::vector<Place> places_;
  bool all_in_place_ = true;
  std::map<size_t, size_t> written_;  // ends of ranges by where they begin, unless all are in place
};

}  // namespace troupe::internal::collective
