// Tensors that are put together of parts, and elements that are still missing.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe::datasets::detail {

/// Which elements of a tensor somebody has.
class Coverage {
 public:
  explicit Coverage(int64_t elements) : there_(static_cast<size_t>(elements)), missing_(elements) {}
  /// Elements [first, first + count) are there from now on. Calls f(first, count, known) for each run of
  /// those that were there before, or were not.
  template <class F>
  void add(int64_t first, int64_t count, const F& f) {
    const auto begin = there_.begin() + first, end = begin + count;
    for (auto at = begin; at != end;) {
      const bool known = *at;
      const auto next = std::find(at, end, !known);
      f(first + (at - begin), next - at, known);
      if (!known) std::fill(at, next, true), missing_ -= next - at;
      at = next;
    }
  }
  int64_t missing() const { return missing_; }

 private:
  std::vector<bool> there_;
  int64_t missing_;
};

/// A tensor of parts, each element from whoever has it. Parts may overlap if they have the same there.
class Assembly {
 public:
  Assembly(DType dtype, const Shape& shape);
  /// `count` elements of a contiguous part, on the CPU and of that dtype, from element `from` on, are those
  /// of the whole from `to` on. False: some of these are there already, and are others.
  bool add(const Tensor& part, int64_t to, int64_t from, int64_t count);
  int64_t missing() const { return there_.missing(); }
  const Tensor& whole() const& { return whole_; }
  Tensor whole() && { return std::move(whole_); }

 private:
  Tensor whole_;
  Coverage there_;
};

/// Where element i of a contiguous tensor lies.
char* at_element(const Tensor& t, int64_t i);

}  // namespace troupe::datasets::detail
