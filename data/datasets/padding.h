// Sequences of different lengths as one batch.
#pragma once
#include <vector>

#include "core/tensor/tensor.h"
#include "data/datasets/sampler.h"

namespace troupe::datasets {

/// Sequences side by side, the shorter ones filled up at their end.
struct Padded {
  Tensor values;   ///< [batch, longest, ...]
  Tensor lengths;  ///< int64 [batch]
  Tensor mask;     ///< bool [batch, longest]: true where there is an element
};

struct PadOptions {
  double value = 0;     ///< what fills up; for int64 a whole number
  int64_t longest = 0;  ///< length of every row; 0: that of the longest sequence
  bool cut = false;     ///< sequences over `longest` lose their end, instead of being refused
};

/// Copies sequences [length, ...] into a batch; dtype and sizes behind the length must agree. `invalid`: no
/// sequences, one that does not fit the others, or one over `longest` without `cut`.
Padded pad(const std::vector<Tensor>& sequences, const PadOptions& options = {});
/// The same for those that `rows` names, as a batch of a sampler.
Padded pad_rows(const std::vector<Tensor>& sequences, const Order& rows, const PadOptions& options = {});

/// Their lengths, for length_buckets.
std::vector<int64_t> lengths(const std::vector<Tensor>& sequences);

}  // namespace troupe::datasets
