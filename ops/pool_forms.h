// Pools with windows whose elements lie apart, that reach beyond the image, or that say where they found
// what.
#pragma once
#include <optional>

#include "ops/dispatch/window.h"
#include "ops/gradient_rules.h"

namespace troupe::ops {

/// It is max_pool2d(), made of slices; the indices are those of the elements in their image: row * W + column.
/// `ceil_mode`: H' is rounded up, as long as each window begins inside of the image or its first padding. x
/// [N, C, H, W] or [C, H, W].
ValuesAndIndices max_pool2d_with_indices(const Tensor& x, Pair kernel_size, std::optional<Pair> stride = {},
                                         Pair padding = {0, 0}, Pair dilation = {1, 1},
                                         bool ceil_mode = false);

/// Options of pools, as PyTorch's.
struct MaxPoolForm {
  Pair dilation = {1, 1};
  bool ceil_mode = false;
};
struct AvgPoolForm {
  bool ceil_mode = false;
  bool count_include_pad = true;  ///< whether padding counts as zeros; false: it does not count
  std::optional<int64_t> divisor_override = {};  ///< by what sums are divided, else their count
};
/// They are max_pool2d() and avg_pool2d() of ops/pooling.h where the form is that of those, else made of slices.
Tensor max_pool2d(const Tensor& x, Pair kernel_size, std::optional<Pair> stride, Pair padding,
                  const MaxPoolForm& form);
Tensor avg_pool2d(const Tensor& x, Pair kernel_size, std::optional<Pair> stride, Pair padding,
                  const AvgPoolForm& form);

}  // namespace troupe::ops
