// Kernels of ops/view.h that copy.
#include <cstring>

#include "core/tensor/elements.h"
#include "core/tensor/transposed_copy.h"
#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

// kept(column - row, diagonal) says which elements stay.
template <class F>
void keep_triangle(const Call& c, Tensors& out, F kept) {
  const Tensor x = c.in[0].contiguous_data();
  const int r = x.dim();
  const int64_t rows = x.shape()[r - 2], columns = x.shape()[r - 1], diagonal = c.attrs.integer("diagonal");
  const int64_t matrix = rows * columns;
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* in = x.data<T>();
    T* to = out[0].data<T>();
    for (int64_t at = 0, n = x.numel(); at < n; at += matrix)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          to[at + i * columns + j] = kept(j - i, diagonal) ? in[at + i * columns + j] : T{0};
  });
}

void clone(const Call& c, Tensors& out) {
  visit_dtype(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor& x = c.in[0];
    const Transposed strips(x);
    if (strips.strips() == 0) return map1<T, T>(x, out[0], [](T v) { return v; });
    parallel_for(strips.strips(), static_cast<double>(x.numel() / strips.strips()), [&](int64_t strip) {
      vectorized([&, strip ]()
                     __attribute__((always_inline)) { strips.write(strip, x.data<T>(), out[0].data<T>()); });
    });
  });
}

// Reads x backwards along the flipped dimensions: a view with negative strides.
void flip(const Call& c, Tensors& out) {
  const Tensor& x = c.in[0];
  if (x.numel() == 0) return;
  Shape strides = x.strides();
  int64_t offset = x.storage_offset();
  for (int64_t dim : c.attrs.ints("dims")) {
    const int d = x.shape().axis(dim, c.name());
    if (x.dim() == 0) break;
    offset += (x.shape()[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  const Tensor backwards = x.alias(x.shape(), strides, offset);
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    map1<T, T>(backwards, out[0], [](T v) { return v; });
  });
}

void tril(const Call& c, Tensors& out) {
  keep_triangle(c, out, [](int64_t above, int64_t diagonal) { return above <= diagonal; });
}
void triu(const Call& c, Tensors& out) {
  keep_triangle(c, out, [](int64_t above, int64_t diagonal) { return above >= diagonal; });
}

void slice_grad(const Call& c, Tensors& out) {
  const Tensor& to = out[0];
  std::memset(to.bytes(), 0, to.nbytes());
  if (c.in[0].numel() == 0) return;
  const int dim = to.shape().axis(c.attrs.integer("dim"), c.name());
  const int64_t size = to.shape()[dim], given = c.attrs.integer("start");
  const int64_t start = std::max<int64_t>(given < 0 ? given + size : given, 0);
  Shape strides = to.strides();
  const int64_t offset = start * strides[dim];
  if (c.in[0].shape()[dim] > 1) strides[dim] *= c.attrs.integer("step");
  copy_elements(to.alias(c.in[0].shape(), strides, offset), c.in[0]);
}

}  // namespace

KernelTable view_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"clone", clone}, {"flip", flip}, {"tril", tril}, {"triu", triu}, {"slice_grad", slice_grad},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
