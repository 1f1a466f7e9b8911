// Shapes and views as kernels of all devices see them.
#pragma once
#include "core/tensor/tensor.h"

namespace troupe::ops {

/// Strides of t as if expanded to `shape` (0 where it repeats).
inline Shape broadcast_strides(const Tensor& t, const Shape& shape) {
  Shape s = Shape::filled(shape.rank(), 0);
  const int shift = shape.rank() - t.dim();
  for (int i = 0; i < t.dim(); ++i)
    if (t.shape()[i] != 1) s[i + shift] = t.strides()[i];
  return s;
}

/// A shape as [outer, size, inner] around one dimension.
struct Around {
  int64_t outer = 1, size = 1, inner = 1;
};
inline Around around(const Shape& shape, int dim) {
  Around a;
  for (int i = 0; i < dim; ++i) a.outer *= shape[i];
  if (dim < shape.rank()) a.size = shape[dim];
  for (int i = dim + 1; i < shape.rank(); ++i) a.inner *= shape[i];
  return a;
}

/// Part `part` of `parts` of [batch, time, parts * heads * width] as [batch, heads, time, width].
inline Tensor part_of(const Tensor& x, int64_t part, int64_t parts, int64_t heads) {
  const int64_t width = x.shape()[2] / parts / heads, step = x.strides()[2];
  return x.alias({x.shape()[0], heads, x.shape()[1], width},
                 {x.strides()[0], width * step, x.strides()[1], step},
                 x.storage_offset() + (x.numel() ? part * heads * width * step : 0));
}

}  // namespace troupe::ops
