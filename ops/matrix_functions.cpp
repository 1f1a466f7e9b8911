// Factorizations of matrices by name.
#include "ops/function_table.h"
#include "ops/linalg.h"

namespace troupe::ops::internal {

void add_matrices(Table& t) {
  add(t, "linalg_cholesky", &linalg_cholesky, {{"input"}, with("upper", false)},
      "The lower triangle L of each positive-definite matrix L L^T, or upper: L^T.");
  add(t, "linalg_inv", &linalg_inv, {{"input"}}, "The inverse of each matrix.");
  add(t, "linalg_det", &linalg_det, {{"A"}}, "The determinant of each matrix.");
  add(t, "linalg_svdvals", &linalg_svdvals, {{"A"}},
      "The singular values of each matrix in descending order.");
  add(
      t, "linalg_svd",
      [](Tensor a, bool full_matrices) {
        const SVD d = linalg_svd(a, full_matrices);
        return Tensors{d.u, d.s, d.vh};
      },
      {{"A"}, with("full_matrices", true)},
      "U, singular values S in descending order and Vh with A = U diag(S) Vh.");
  add(t, "linalg_solve", &linalg_solve, {{"A"}, {"B"}, with("left", true)},
      "x with A x = B; x A = B without left.");
  add(
      t, "linalg_qr",
      [](Tensor a, std::string mode) {
        const QR f = linalg_qr(a, mode);
        return f.q.defined() ? Tensors{f.q, f.r} : Tensors{f.r};
      },
      {{"A"}, with("mode", std::string("reduced"))},
      "Orthogonal columns Q and an upper triangle R with A = Q R; mode: \"reduced\", \"complete\", \"r\" (R "
      "alone).");
  add(
      t, "linalg_eigh",
      [](Tensor a, std::string uplo) {
        const ValuesAndVectors e = linalg_eigh(a, uplo);
        return Tensors{e.eigenvalues, e.eigenvectors};
      },
      {{"A"}, with("UPLO", std::string("L"))},
      "Eigenvalues in ascending order and eigenvectors, by columns, of symmetric matrices.");
  add(
      t, "linalg_slogdet",
      [](Tensor a) {
        const SignAndLog d = linalg_slogdet(a);
        return Tensors{d.sign, d.logabsdet};
      },
      {{"A"}}, "The sign of the determinant, and the logarithm of its absolute value.");
  add(
      t, "linalg_eigvalsh", [](Tensor a, std::string uplo) { return linalg_eigvalsh(a, uplo); },
      {{"A"}, with("UPLO", std::string("L"))}, "Eigenvalues of symmetric matrices in ascending order.");
}

}  // namespace troupe::ops::internal
