// A labelled data set in memory, and its two halves.
#pragma once
#include <cstdint>

#include "core/tensor.h"

namespace troupe::data {

/// Samples and their labels. A value; copies share the elements.
struct Dataset {
  Tensor x;  ///< float32 [n, features]
  Tensor y;  ///< int64 [n], classes from 0

  int64_t size() const { return y.defined() ? y.size(0) : 0; }
};

/// What a model learns from, and what it is judged by.
struct Split {
  Dataset train, test;
};

/// Rows [from, from + count) of a set, as views that share its elements. `invalid` outside [0, size].
Dataset rows(const Dataset& set, int64_t from, int64_t count);

}  // namespace troupe::data
