#include "ops/linalg.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/arrange.h"
#include "ops/cpu/lapack/factorizations.h"
#include "ops/dispatch/cast_call.h"
#include "ops/dispatch/check.h"
#include "ops/index.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/reshape_ops.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

// ---- what all of them check, and how they reach LAPACK

void require_matrices(const char* name, const Tensor& a, bool square) {
  if (!a.defined()) throw_invalid(fmt::format("[{}] got an undefined tensor", name));
  if (a.dim() < 2) throw_invalid(fmt::format("[{}] needs matrices [.., m, n], got {}", name, a.summary()));
  if (a.dtype() != float32 && a.dtype() != float64)
    throw_invalid(fmt::format("[{}] needs float32 or float64, got {}; use .to(float32)", name, a.summary()));
  if (square && a.size(-1) != a.size(-2))
    throw_invalid(fmt::format("[{}] needs square matrices, got {}", name, a.summary()));
}

Tensor for_lapack(const Tensor& a) { return a.detach().to(cpu).contiguous_data(); }
Tensor back_on(const Tensor& x, const Tensor& like) { return x.defined() ? x.to(like.device()) : x; }

// ---- what gradients are made of

Tensor transposed(const Tensor& a) { return transpose(a, -2, -1); }
Tensor times(const Tensor& a, const Tensor& b) { return matmul(a, b); }
Tensor times(const Tensor& a, const Tensor& b, const Tensor& c) { return matmul(matmul(a, b), c); }
// They make [.., n] to [.., 1, n] and [.., n, 1].
Tensor as_row(const Tensor& s) { return unsqueeze(s, -2); }
Tensor as_column(const Tensor& s) { return unsqueeze(s, -1); }
Tensor diagonal_of(const Tensor& a) { return diagonal(a, 0, -2, -1); }
// A quotient is 0 where x is 0, whatever y is.
Tensor ratio(const Tensor& x, const Tensor& y) {
  const Tensor none = eq(x, 0);
  return where(none, 0.0, div(x, where(none, 1.0, y)));
}
Tensor identity_like(const Tensor& a, int64_t n) { return to(eye(n, TensorOptions(a.device())), a.dtype()); }
Tensor antisymmetric(const Tensor& a) { return sub(a, transposed(a)); }
// At [i, j] is y[j] - y[i], and 1 on the diagonal.
Tensor differences(const Tensor& y) {
  return add(sub(as_row(y), as_column(y)), identity_like(y, y.size(-1)));
}

// ---- inverses and solutions

Tensors inverse(const Call& c) {
  require_matrices(c.name(), c.in[0], true);
  return {back_on(on_cpu::inverse_of(c.name(), for_lapack(c.in[0])), c.in[0])};
}
Tensors inverse_gradient(const Backward& b) {
  const Tensor t = transposed(b.out[0]);
  return {neg(times(t, b.grads[0], t))};
}
const Op kInverse{.name = "linalg_inv",
                  .compose = inverse,
                  .saves_outputs = 1,
                  .gradient = inverse_gradient,
                  .takes_half = true};

Tensors solution(const Call& c) {
  const Tensor &a = c.in[0], &right = c.in[1];
  require_matrices(c.name(), a, true);
  Shape fits = a.shape();
  if (right.dim() == a.dim()) fits.back() = right.shape().back();
  if (right.dtype() != a.dtype() || right.shape() != fits)
    throw_invalid(fmt::format("[{}] A {} and B {} do not fit", c.name(), a.summary(), right.summary()));
  return {back_on(on_cpu::solution_of(c.name(), for_lapack(c.in[0]), for_lapack(c.in[1])), c.in[0])};
}
Tensors solution_gradient(const Backward& b) {
  const Tensor of_b = linalg_solve(transposed(b.in[0]), b.grads[0]);
  return {b.needs(0) ? neg(times(of_b, transposed(b.out[0]))) : Tensor(), of_b};
}
const Op kSolution{.name = "linalg_solve",
                   .inputs = "A B",
                   .compose = solution,
                   .saves_inputs = 1,
                   .saves_outputs = 1,
                   .gradient = solution_gradient,
                   .takes_half = true};

// ---- determinants

Tensors determinant(const Call& c) {
  require_matrices(c.name(), c.in[0], true);
  return {back_on(on_cpu::determinants_of(c.name(), for_lapack(c.in[0]), false).size, c.in[0])};
}
// The cofactors: of singular matrices from singular values, products of all but one.
Tensor cofactors(const Tensor& a) {
  const SVD d = linalg_svd(a, false);
  const int64_t n = a.size(-1);
  const Tensor all_but_one =
      prod(where(identity_like(a, n).to(boolean), 1.0, expand(as_row(d.s), to_list(a.shape()))), {-1});
  const Tensor sign = as_column(as_column(mul(linalg_det(d.u), linalg_det(d.vh))));
  return mul(sign, times(mul(d.u, as_row(all_but_one)), d.vh));
}
Tensors determinant_gradient(const Backward& b) {
  const Tensor g = as_column(as_column(b.grads[0]));
  if (b.out[0].numel() == 0 || b.in[0].numel() == 0) return {zeros_like(b.in[0])};
  if (eq(b.out[0].detach(), 0).any().item<bool>()) return {mul(g, cofactors(b.in[0]))};
  return {mul(mul(g, as_column(as_column(b.out[0]))), transposed(linalg_inv(b.in[0])))};
}
const Op kDeterminant{.name = "linalg_det",
                      .compose = determinant,
                      .saves_inputs = 1,
                      .saves_outputs = 1,
                      .gradient = determinant_gradient,
                      .takes_half = true};

Tensors sign_and_logarithm(const Call& c) {
  require_matrices(c.name(), c.in[0], true);
  const auto d = on_cpu::determinants_of(c.name(), for_lapack(c.in[0]), true);
  return {back_on(d.sign, c.in[0]), back_on(d.size, c.in[0])};
}
// The sign has a gradient of 0, as PyTorch's.
Tensors logarithm_gradient(const Backward& b) {
  return {mul(as_column(as_column(b.grads[1])), transposed(linalg_inv(b.in[0])))};
}
const Op kSlogdet{.name = "linalg_slogdet",
                  .compose = sign_and_logarithm,
                  .saves_inputs = 1,
                  .gradient = logarithm_gradient,
                  .takes_half = true};

// ---- q r

bool is_complete(const Attrs& a) { return a.text("mode") == "complete"; }
Tensors orthogonal(const Call& c) {
  require_matrices(c.name(), c.in[0], false);
  const std::string_view mode = c.attrs.text("mode");
  if (mode != "reduced" && mode != "complete")
    throw_invalid(
        fmt::format("[{}] mode must be \"reduced\", \"complete\" or \"r\", got \"{}\"", c.name(), mode));
  const auto f = on_cpu::qr_of(c.name(), for_lapack(c.in[0]), mode == "complete", true);
  return {back_on(f.q, c.in[0]), back_on(f.r, c.in[0])};
}
// There are at least as many rows as columns.
Tensor tall_gradient(const Tensor& gq, const Tensor& gr, const Tensor& q, const Tensor& r) {
  const Tensor m = sub(times(r, transposed(gr)), times(transposed(gq), q));
  const Tensor low = tril(m, -1), both = add(add(low, transposed(low)), mul(m, identity_like(m, m.size(-1))));
  const Tensor right = add(gq, times(q, both));  // times R^-T
  return transposed(linalg_solve(r, transposed(right)));
}
Tensors orthogonal_gradient(const Backward& b) {
  const Tensor &q = b.out[0], &r = b.out[1], &gq = b.grads[0], &gr = b.grads[1];
  const int64_t m = b.shape(0)[b.shape(0).rank() - 2], n = b.shape(0).back();
  if (is_complete(b.attrs) && m > n)
    throw_invalid(
        "[linalg_qr] has no gradient with mode \"complete\" where there are more rows than columns: use "
        "\"reduced\"");
  if (m >= n) return {tall_gradient(gq, gr, q, r)};
  const Tensor first = slice(r, -1, 0, m), g_first = slice(gr, -1, 0, m), g_rest = slice(gr, -1, m, n);
  const Tensor rest = times(q, slice(r, -1, m, n));
  return {cat({tall_gradient(add(gq, times(rest, transposed(g_rest))), g_first, q, first), times(q, g_rest)},
              -1)};
}
const Op kOrthogonal{.name = "linalg_qr",
                     .attrs = {{"mode", "reduced"}},
                     .compose = orthogonal,
                     .saves_outputs = 0b11,
                     .gradient = orthogonal_gradient,
                     .takes_half = true};

// ---- singular values

Tensors singular(const Call& c) {
  require_matrices(c.name(), c.in[0], false);
  const auto f = on_cpu::svd_of(c.name(), for_lapack(c.in[0]), c.attrs.flag("full_matrices"), true);
  return {back_on(f.u, c.in[0]), back_on(f.s, c.in[0]), back_on(f.vh, c.in[0])};
}
// What lies outside the columns of u: x - u uᵀ x.
Tensor outside(const Tensor& u, const Tensor& x) { return sub(x, times(u, times(transposed(u), x))); }

Tensors singular_gradient(const Backward& b) {
  const int64_t k = b.out[1].size(-1);
  if (k == 0) return {zeros(b.shape(0), {b.in_specs[0].dtype, b.device()})};
  const Tensor u = slice(b.out[0], -1, 0, k), s = b.out[1], v = transposed(slice(b.out[2], -2, 0, k));
  const Tensor gu = slice(b.grads[0], -1, 0, k), gs = b.grads[1],
               gv = transposed(slice(b.grads[2], -2, 0, k));
  const Tensor e = differences(square(s));
  const Tensor of_u = ratio(antisymmetric(times(transposed(u), gu)), e),
               of_v = ratio(antisymmetric(times(transposed(v), gv)), e);
  const Tensor inner =
      add(add(mul(of_u, as_row(s)), mul(as_column(s), of_v)), mul(as_row(gs), identity_like(s, k)));
  Tensor all = times(u, inner, transposed(v));
  if (u.size(-2) > k) all = add(all, times(ratio(outside(u, gu), as_row(s)), transposed(v)));
  if (v.size(-2) > k) all = add(all, times(u, transposed(ratio(outside(v, gv), as_row(s)))));
  return {all};
}
const Op kSingular{.name = "linalg_svd",
                   .attrs = {{"full_matrices", true}},
                   .compose = singular,
                   .saves_outputs = 0b111,
                   .gradient = singular_gradient,
                   .takes_half = true};

Tensors singular_values(const Call& c) {
  require_matrices(c.name(), c.in[0], false);
  return {back_on(on_cpu::svd_of(c.name(), for_lapack(c.in[0]), false, false).s, c.in[0])};
}
Tensors singular_values_gradient(const Backward& b) {
  const SVD d = linalg_svd(b.in[0], false);
  return {times(mul(d.u, as_row(b.grads[0])), d.vh)};
}
const Op kSingularValues{.name = "linalg_svdvals",
                         .compose = singular_values,
                         .saves_inputs = 1,
                         .gradient = singular_values_gradient,
                         .takes_half = true};

// ---- of symmetric matrices: one triangle is read, and the gradient is symmetric, as PyTorch's

Tensors triangle(const Call& c) {
  require_matrices(c.name(), c.in[0], true);
  return {back_on(on_cpu::cholesky_of(c.name(), for_lapack(c.in[0])), c.in[0])};
}
Tensors triangle_gradient(const Backward& b) {
  const Tensor &l = b.out[0], inner = times(transposed(l), b.grads[0]), low = tril(inner);
  const Tensor phi =
      mul(sub(add(low, transposed(low)), mul(inner, identity_like(inner, inner.size(-1)))), 0.5);
  const Tensor half = linalg_solve(transposed(l), phi);  // L^-T phi L^-1
  return {transposed(linalg_solve(transposed(l), transposed(half)))};
}
const Op kCholesky{
    .name = "linalg_cholesky", .compose = triangle, .saves_outputs = 1, .gradient = triangle_gradient};

bool reads_upper(const char* name, std::string_view uplo) {
  if (uplo == "L" || uplo == "l") return false;
  if (uplo == "U" || uplo == "u") return true;
  throw_invalid(fmt::format("[{}] UPLO must be \"L\" or \"U\", got \"{}\"", name, uplo));
}
Tensors eigen(const Call& c) {
  require_matrices(c.name(), c.in[0], true);
  const auto e = on_cpu::eigh_of(c.name(), for_lapack(c.in[0]), c.attrs.flag("upper"), true);
  return {back_on(e.values, c.in[0]), back_on(e.vectors, c.in[0])};
}
Tensors eigen_gradient(const Backward& b) {
  const Tensor &w = b.out[0], &v = b.out[1];
  const Tensor inner = times(transposed(v), b.grads[1]);
  const Tensor off = sub(inner, mul(inner, identity_like(inner, inner.size(-1))));
  return {
      times(v, add(ratio(off, differences(w)), mul(as_row(b.grads[0]), identity_like(inner, inner.size(-1)))),
            transposed(v))};
}
const Op kEigh{.name = "linalg_eigh",
               .attrs = {{"upper", false}},
               .compose = eigen,
               .saves_outputs = 0b11,
               .gradient = eigen_gradient,
               .takes_half = true};

Tensors eigenvalues(const Call& c) {
  require_matrices(c.name(), c.in[0], true);
  return {
      back_on(on_cpu::eigh_of(c.name(), for_lapack(c.in[0]), c.attrs.flag("upper"), false).values, c.in[0])};
}
Tensors eigenvalues_gradient(const Backward& b) {
  const Tensor v = apply(kEigh, b.in.first(1), b.attrs)[1];
  return {times(mul(v, as_row(b.grads[0])), transposed(v))};
}
const Op kEigvalsh{.name = "linalg_eigvalsh",
                   .attrs = {{"upper", false}},
                   .compose = eigenvalues,
                   .saves_inputs = 1,
                   .gradient = eigenvalues_gradient,
                   .takes_half = true};

}  // namespace

Tensor linalg_inv(const Tensor& a) { return apply1(kInverse, {a}); }
Tensor linalg_det(const Tensor& a) { return apply1(kDeterminant, {a}); }
SignAndLog linalg_slogdet(const Tensor& a) {
  Tensors both = apply(kSlogdet, {&a, 1});
  return {both[0], both[1]};
}
QR linalg_qr(const Tensor& a, std::string_view mode) {
  if (mode == "r") {
    require_matrices("linalg_qr", a, false);
    if (grad_enabled() && a.requires_grad())
      throw_invalid("[linalg_qr] has no gradient with mode \"r\", which makes no q: use \"reduced\"");
    return {Tensor(), back_on(on_cpu::qr_of("linalg_qr", for_lapack(a), false, false).r, a)};
  }
  Tensors both = apply(kOrthogonal, {&a, 1}, {{"mode", std::string(mode)}});
  return {both[0], both[1]};
}
SVD linalg_svd(const Tensor& a, bool full_matrices) {
  Tensors all = apply(kSingular, {&a, 1}, {{"full_matrices", full_matrices}});
  return {all[0], all[1], all[2]};
}
Tensor linalg_svdvals(const Tensor& a) { return apply1(kSingularValues, {a}); }

Tensor linalg_cholesky(const Tensor& a, bool upper) {
  require_matrices("linalg_cholesky", a, true);
  const Tensor l = apply1(kCholesky, {upper ? transposed(a) : a});
  return upper ? transposed(l) : l;
}
ValuesAndVectors linalg_eigh(const Tensor& a, std::string_view uplo) {
  require_matrices("linalg_eigh", a, true);
  Tensors both = apply(kEigh, {&a, 1}, {{"upper", reads_upper("linalg_eigh", uplo)}});
  return {both[0], both[1]};
}
Tensor linalg_eigvalsh(const Tensor& a, std::string_view uplo) {
  require_matrices("linalg_eigvalsh", a, true);
  return apply1(kEigvalsh, {a}, {{"upper", reads_upper("linalg_eigvalsh", uplo)}});
}

Tensor linalg_solve(const Tensor& a, const Tensor& b, bool left) {
  constexpr const char* kName = "linalg_solve";
  require_matrices(kName, a, true);
  if (const auto y =
          under_autocast(kName, {&a, &b}, [&](const auto& in) { return linalg_solve(in[0], in[1], left); }))
    return *y;
  if (!b.defined() || b.dtype() != a.dtype())
    throw_invalid(
        fmt::format("[{}] A and B must have one dtype, got {} and {}", kName, a.summary(), b.summary()));
  const Shape& s = a.shape();
  const Shape columns(std::span(s.begin(), static_cast<size_t>(s.rank() - 1)));
  const bool vector = b.dim() == 1 || b.shape() == columns;
  const Tensor right = vector ? unsqueeze(b, -1) : b;
  if (!left && !vector) return transposed(linalg_solve(transposed(a), transposed(b)));
  if (right.dim() < 2 || right.size(-2) != a.size(-1))
    throw_invalid(fmt::format("[{}] A {} and B {} do not fit: expected B [.., {}, k]", kName, a.summary(),
                              b.summary(), a.size(-1)));
  const auto front = [](const Tensor& t) {
    return Shape(std::span(t.shape().begin(), static_cast<size_t>(t.dim() - 2)));
  };
  const Shape together = broadcast(front(a), front(right), kName);
  const auto wide = [&](const Tensor& t) {
    std::vector<int64_t> sizes = to_list(together);
    sizes.insert(sizes.end(), {t.size(-2), t.size(-1)});
    return expand(t, sizes);
  };
  const Tensor x = apply1(kSolution, {wide(a), wide(right)});
  return vector ? squeeze(x, -1) : x;
}

}  // namespace troupe::ops
