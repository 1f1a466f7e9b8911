// A labelled data set in memory, and its two halves.
#pragma once
#include <cstdint>

#include "core/tensor/tensor.h"

namespace troupe::datasets {

/// Samples and what is to be learned of them. A value; copies share the elements.
struct Dataset {
  Tensor x;  ///< [n, ...]: float32 [n, features], or int64 [n, context]
  Tensor y;  ///< [n, ...]: classes from 0, int64 [n]; or the numbers that follow, int64 [n, context]

  int64_t size() const { return y.defined() ? y.size(0) : 0; }
};

/// What a model learns from, and what it is judged by.
struct Split {
  Dataset train, test;
};

/// Rows [from, from + count) of a set, as views that share its elements. `invalid` outside [0, size].
Dataset rows(const Dataset& set, int64_t from, int64_t count);

}  // namespace troupe::datasets
