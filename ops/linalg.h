// Factorizations of matrices, with gradients: torch.linalg's. By LAPACK, on a GPU by way of the host; float32
// and float64; halves are refused, as in PyTorch.
#pragma once
#include <string>
#include <string_view>

#include "ops/dispatch/op.h"

namespace troupe::ops {

/// They take batches [.., n, n]; other shapes and dtypes are `invalid`, and a machine without LAPACK is
/// `unimplemented`.

/// The lower triangle L, a = L Lᵀ, of which one triangle is read; `upper` gives Lᵀ. `invalid` unless a is
/// positive-definite.
Tensor linalg_cholesky(const Tensor& a, bool upper = false);
/// `invalid` for singular matrices.
Tensor linalg_inv(const Tensor& a);
/// Gives x with a x = b (or x a = b without `left`): b [.., n, k], or [n] or [.., n] as the batch of a.
/// Batches broadcast.
Tensor linalg_solve(const Tensor& a, const Tensor& b, bool left = true);
Tensor linalg_det(const Tensor& a);
/// The sign, 0 of singular ones, and the logarithm of the absolute value.
struct SignAndLog {
  Tensor sign, logabsdet;
};
SignAndLog linalg_slogdet(const Tensor& a);

/// Gives q and r with a [.., m, n] = q r. mode: "reduced" (k, the smaller of m and n, columns of q),
/// "complete" (m), "r" (q is undefined).
struct QR {
  Tensor q, r;
};
QR linalg_qr(const Tensor& a, std::string_view mode = "reduced");

/// Gives a [.., m, n] = u diag(s) vh, s descending; full_matrices: u [.., m, m] and vh [.., n, n], of whose
/// columns and rows behind the first min(m, n) gradients are not known, as in PyTorch.
struct SVD {
  Tensor u, s, vh;
};
SVD linalg_svd(const Tensor& a, bool full_matrices = true);
Tensor linalg_svdvals(const Tensor& a);

struct ValuesAndVectors {
  Tensor eigenvalues, eigenvectors;
};
/// The matrices are symmetric, and the triangle UPLO, "L" or "U", is read; eigenvalues come in ascending
/// order, vectors by columns.
ValuesAndVectors linalg_eigh(const Tensor& a, std::string_view UPLO = "L");
Tensor linalg_eigvalsh(const Tensor& a, std::string_view UPLO = "L");

}  // namespace troupe::ops
