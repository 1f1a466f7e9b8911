// Products of matrices as row-major ones: floating ones by cuBLASLt.
#pragma once
#include <cstdint>

#include "core/tensor/tensor.h"

namespace troupe::ops::on_cuda {

/// A matrix of a product, or one for each element of a batch, `step` elements apart (0: the same one). It has
/// rows of `ld` elements; transposed: columns.
struct Factor {
  const void* p = nullptr;
  int64_t ld = 0;
  bool transposed = false;
  int64_t step = 0;
};

/// D [m, n] = A [m, k] B [k, n] + C + bias, all in device memory. D and C are dense, the matrices of a batch
/// lie one after the other. No size is 0.
struct Gemm {
  DType in = float32;   ///< of A and B
  DType out = float32;  ///< of C, D and the vectors: that of A and B, or float32 for halves
  int64_t m = 0, n = 0, k = 0, batch = 1;
  Factor a, b;
  const void* c = nullptr;  ///< null: nothing is added; D: it is added to
  void* d = nullptr;
  const void* bias = nullptr;  ///< [n]; not for float64
  /// [m]: takes the sums of A's rows; not for float64, without bias and batch.
  void* row_sums = nullptr;
};

/// On the stream of the device; halves are summed in float32. False, and nothing happens, if cuBLASLt has no
/// algorithm for it with bias or row_sums. Other failures throw `failed`, with the operator's name and the
/// sizes.
bool gemm(const char* name, Device device, const Gemm& g);

/// out = a b, all int64: [.., m, k] and [.., k, n] of any strides, whose leading dimensions broadcast to
/// `batch`.
void integer_gemm(const char* name, const Tensor& a, const Tensor& b, const Shape& batch, const Tensor& out);

/// The dimensions before the last two.
inline Shape leading(Shape s) {
  s.erase(s.rank() - 1);
  s.erase(s.rank() - 1);
  return s;
}
/// The first element of each matrix of t.
inline Tensor batch_of(const Tensor& t) {
  return t.alias(leading(t.shape()), leading(t.strides()), t.storage_offset());
}

}  // namespace troupe::ops::on_cuda
