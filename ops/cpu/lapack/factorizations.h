// Factorizations of batches of matrices by LAPACK: contiguous tensors of the CPU, float32 or float64, by
// rows.
#pragma once
#include "core/tensor/tensor.h"

namespace troupe::ops::on_cpu {

/// Lower triangles L of a = L Lᵀ, of which the lower triangle is read. `invalid` with [name] in front unless
/// a is positive-definite.
Tensor cholesky_of(const char* name, const Tensor& a);
/// `invalid` for a singular one.
Tensor inverse_of(const char* name, const Tensor& a);
/// Takes a [.., n, n] and b [.., n, k], and gives x with a x = b. `invalid` for a singular one.
Tensor solution_of(const char* name, const Tensor& a, const Tensor& b);
/// The sign (0: singular) and the logarithm of the absolute value, or the sign and the value itself.
struct Determinants {
  Tensor sign, size;
};
Determinants determinants_of(const char* name, const Tensor& a, bool logarithms);
/// Gives a [.., m, n] = q [.., m, k] r [.., k, n]; k the smaller one of m and n, or m for `complete`. Without
/// q: q is undefined.
struct OrthogonalTriangular {
  Tensor q, r;
};
OrthogonalTriangular qr_of(const char* name, const Tensor& a, bool complete, bool with_q);
/// Gives a [.., m, n] = u [.., m, k] diag(s) vh [.., k, n]; `full`: u [.., m, m], vh [.., n, n]. Without
/// vectors: s alone. `invalid` unless a is finite.
struct SingularValues {
  Tensor u, s, vh;
};
SingularValues svd_of(const char* name, const Tensor& a, bool full, bool vectors);
/// The matrices are symmetric, and one triangle is read; gives eigenvalues in order, and vectors by columns.
struct Eigenvalues {
  Tensor values, vectors;
};
Eigenvalues eigh_of(const char* name, const Tensor& a, bool upper, bool vectors);

}  // namespace troupe::ops::on_cpu
