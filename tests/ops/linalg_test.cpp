// Factorizations beside what they have to multiply to; gradients of symmetric matrices; what is refused.
#include "ops/linalg.h"

#include <catch2/catch.hpp>

#include "autograd/autograd.h"
#include "autograd/gradcheck.h"
#include "ops/dispatch/check.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;
using Catch::Contains;
using testing::text_of;

namespace {

Tensor some(const Shape& shape, uint64_t seed = 1) { return ops::randn(shape, Generator(seed), float64); }
Tensor transposed(const Tensor& a) { return ops::transpose(a, -2, -1); }
Tensor symmetric(const Tensor& a) { return ops::add(a, transposed(a)); }
Tensor positive(const Tensor& a) {
  return ops::add(ops::matmul(a, transposed(a)), ops::mul(eye(a.size(-1), float64), 0.5));
}

void near(const Tensor& a, const Tensor& b) { CHECK(testing::difference(a, b, 1e-11, 1e-11) == ""); }

TEST_CASE("factors multiply to the matrix, of batches, strides and both dtypes") {
  for (const Shape& shape :
       {Shape{4, 4}, Shape{2, 1, 5, 3}, Shape{3, 3, 6}, Shape{0, 2, 2}, Shape{2, 3, 0}}) {
    INFO(shape.str());
    const Tensor a = some(shape);
    for (const bool full : {false, true}) {
      const ops::SVD d = ops::linalg_svd(a, full);
      const int64_t k = d.s.size(-1);
      near(ops::matmul(ops::mul(d.u.slice(-1, 0, k), d.s.unsqueeze(-2)), d.vh.slice(-2, 0, k)), a);
      near(ops::matmul(transposed(d.u), d.u),
           ops::expand(eye(d.u.size(-1), float64), ops::to_list(ops::matmul(transposed(d.u), d.u).shape())));
      near(ops::linalg_svdvals(a), d.s);
      const ops::QR f = ops::linalg_qr(a, full ? "complete" : "reduced");
      near(ops::matmul(f.q, f.r), a);
      near(ops::triu(f.r), f.r);
    }
    near(ops::linalg_qr(a, "r").r, ops::linalg_qr(a).r);
  }
  const Tensor a = some({2, 4, 4}), p = positive(a);
  near(ops::matmul(ops::linalg_cholesky(p), transposed(ops::linalg_cholesky(p))), p);
  near(ops::linalg_cholesky(p, true), transposed(ops::linalg_cholesky(p)));
  near(ops::matmul(ops::linalg_inv(transposed(a)), transposed(a)), ops::expand(eye(4, float64), {2, 4, 4}));
  const ops::ValuesAndVectors e = ops::linalg_eigh(symmetric(a));
  near(ops::matmul(symmetric(a), e.eigenvectors), ops::mul(e.eigenvectors, e.eigenvalues.unsqueeze(-2)));
  near(ops::linalg_eigvalsh(ops::triu(symmetric(a)), "U"), e.eigenvalues);
  CHECK(ops::linalg_inv(a.to(float32)).dtype() == float32);
  CHECK(testing::difference(ops::linalg_inv(a.to(float32)).to(float64), ops::linalg_inv(a), 1e-3, 1e-3) ==
        "");
}

TEST_CASE(
    "gradients are those of finite differences, the second ones, too, and of symmetric matrices they are "
    "symmetric") {
  const auto check = [](auto f, const Tensor& x) {
    CHECK(autograd::gradcheck([f](const Tensors& in) { return f(in[0]); }, {x}).ok);
    CHECK(autograd::gradgradcheck([f](const Tensors& in) { return f(in[0]); }, {x}).ok);
  };
  const auto beside = [](const Tensor& a, const Tensor& b) {
    return ops::cat({ops::flatten(a), ops::flatten(b)}, 0);
  };
  const Tensor a = some({2, 3, 3}).requires_grad_();
  const Tensor b = some({2, 3, 2}, 2);
  check([](const Tensor& x) { return ops::linalg_inv(x); }, a);
  check([&](const Tensor& x) { return ops::linalg_solve(x, b); }, a);
  check([&](const Tensor& x) { return ops::linalg_solve(a.detach(), x, true); },
        some({3, 2}, 2).requires_grad_());
  check([&](const Tensor& x) { return ops::linalg_solve(x, transposed(b), false); }, a);
  check([](const Tensor& x) { return ops::linalg_det(x); }, a);
  check([](const Tensor& x) { return ops::linalg_slogdet(x).logabsdet; }, a);
  check([](const Tensor& x) { return ops::linalg_svdvals(x); }, a);
  for (const Shape& shape : {Shape{3, 3}, Shape{4, 2}, Shape{2, 4}}) {
    const Tensor x = some(shape, 4).requires_grad_();
    check([&](const Tensor& in) { return beside(ops::linalg_qr(in).q, ops::linalg_qr(in).r); }, x);
    check(
        [&](const Tensor& in) {
          return beside(ops::square(ops::linalg_svd(in, false).u), ops::linalg_svdvals(in));
        },
        x);
  }
  check([](const Tensor& x) { return ops::linalg_cholesky(positive(x)); }, a);
  check([](const Tensor& x) { return ops::linalg_cholesky(positive(x), true); }, a);
  check([](const Tensor& x) { return ops::linalg_eigvalsh(symmetric(x)); }, a);
  check(
      [&](const Tensor& x) {
        const auto e = ops::linalg_eigh(symmetric(x));
        return beside(e.eigenvalues, ops::square(e.eigenvectors));
      },
      a);
  check(
      [&](const Tensor& x) {
        return beside(ops::linalg_svd(x, true).s, ops::square(ops::linalg_svd(x, false).vh));
      },
      some({2, 4}, 3).requires_grad_());
}

TEST_CASE("singular values that are equal, and determinants of singular matrices, have gradients") {
  const Tensor a = eye(3, float64).requires_grad_();
  autograd::backward(ops::sum(ops::linalg_svd(a).s));
  near(a.grad(), eye(3, float64));
  const Tensor one = tensor({{1., 2.}, {2., 4.}}, float64).requires_grad_();
  autograd::backward(ops::linalg_det(one));
  near(one.grad(), tensor({{4., -2.}, {-2., 1.}}, float64));
  const ops::SignAndLog d = ops::linalg_slogdet(one.detach());
  CHECK((d.sign.item() == 0 && d.logabsdet.item() == -HUGE_VAL));
}

TEST_CASE("what has no factors is refused by name") {
  const auto refused = [](auto f) { return text_of(f); };
  const Tensor zero = zeros({2, 2}), batch = ops::stack({eye(2), zero}, 0);
  CHECK_THAT(refused([&] { ops::linalg_inv(batch); }),
             Contains("[linalg_inv] the matrix (batch element 1) is singular"));
  CHECK_THAT(refused([&] { ops::linalg_solve(zero, ones({2})); }),
             Contains("[linalg_solve] the matrix is singular"));
  CHECK_THAT(refused([&] { ops::linalg_cholesky(zero); }),
             Contains("not positive-definite: the leading minor of order 1"));
  CHECK_THAT(refused([&] {
               ops::linalg_inv(ones({2, 3}));
             }),
             Contains("needs square matrices, got float32 [2, 3]"));
  CHECK_THAT(refused([&] { ops::linalg_det(ones({2, 2}, int64)); }), Contains("needs float32 or float64"));
  CHECK_THAT(refused([&] { ops::linalg_svd(full({2, 2}, NAN)); }), Contains("not finite"));
  CHECK_THAT(refused([&] { ops::linalg_eigh(ones({2, 2}), "X"); }), Contains("UPLO must be"));
  CHECK_THAT(refused([&] { ops::linalg_qr(ones({2, 2}), "full"); }), Contains("mode must be"));
  CHECK_THAT(refused([&] {
               ops::linalg_qr(ones({2, 2}).requires_grad_(), "r");
             }),
             Contains("no gradient with mode"));
  CHECK_THAT(refused([&] {
               ops::linalg_solve(ones({2, 2}), ones({3, 2}));
             }),
             Contains("expected B [.., 2, k]"));
  const Tensor tall = ones({3, 2}, float64).requires_grad_();
  const ops::QR f = ops::linalg_qr(tall, "complete");
  CHECK_THAT(refused([&] { autograd::backward(ops::sum(f.r)); }),
             Contains("no gradient with mode \"complete\""));
}

}  // namespace
