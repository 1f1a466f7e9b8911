// PowerSGD: gradients of matrices travel as factors of low rank.
#include <fmt/format.h>

#include <cmath>

#include "core/base/generator.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/linalg.h"
#include "ops/ops.h"
#include "ops/random.h"
#include "parallel/server/compression/own_compression.h"

namespace troupe::parallel {
namespace {

constexpr const char* kResidual = "residual";
constexpr const char* kFactor = "factor";  // [m, rank], of the last pass

struct Factors {
  int64_t rows = 0, columns = 0, rank = 0;  // rank 0: it travels whole
};

Factors factors_of(const Shape& shape, int64_t rank) {
  if (shape.numel() == 0 || shape.rank() < 2) return {};
  Factors f{.rows = shape[0], .columns = shape.numel() / shape[0]};
  const int64_t r = std::min({f.rows, f.columns, rank});
  if ((f.rows + f.columns) * r * 2 < f.rows * f.columns) f.rank = r;
  return f;
}

// Columns of length 1, at right angles. Of a few columns, on the CPU wherever they are.
Tensor orthogonal(const Tensor& columns) { return ops::linalg_qr(columns.to(cpu)).q.to(columns.device()); }

// All members make the same one.
Tensor first_factor(const Factors& f, size_t parameter, const Tensor& like) {
  return ops::randn({f.columns, f.rank}, Generator(parameter)).to(like.dtype()).to(like.device());
}

struct Matrix {
  size_t gradient;
  Factors f;
  Tensor values;  // with what was left out before
};

Matrix matrix_of(const Bucket& bucket, size_t k, const Factors& f) {
  const Tensor& g = bucket.gradients()[k];
  const Tensor values = g.to(compute_dtype(g.dtype())).reshape({f.rows, f.columns});
  const Tensor& left_out = bucket.kept(k, kResidual);
  return {k, f, left_out.defined() ? ops::add(values, left_out) : values};
}

Tensor start_of(const Bucket& bucket, const Matrix& m) {
  const Tensor& last = bucket.kept(m.gradient, kFactor);
  const bool fits = last.defined() && last.shape() == Shape{m.f.columns, m.f.rank};
  return orthogonal(fits ? last : first_factor(m.f, bucket.parameter(m.gradient), m.values));
}

// What all take of a matrix. The residuals of all members add up to what it lacks.
Tensor product_of(const Bucket& bucket, const Matrix& m, const Tensor& left, const Tensor& right) {
  const Tensor sum = ops::matmul(left, right.transpose(0, 1));
  bucket.kept(m.gradient, kResidual) =
      ops::sub(m.values, ops::mul(sum, 1.0 / static_cast<double>(bucket.members())));
  bucket.kept(m.gradient, kFactor) = right;
  const Tensor& g = bucket.gradients()[m.gradient];
  return sum.reshape(g.shape()).to(g.dtype());
}

Task<Tensors> reduce_by_factors(Bucket bucket, int64_t rank) {
  const Tensors& gradients = bucket.gradients();
  Tensors whole, lefts, rights, sums(gradients.size());
  std::vector<Matrix> matrices;
  std::vector<size_t> others;
  for (size_t k = 0; k < gradients.size(); ++k) {
    if (const Factors f = factors_of(gradients[k].shape(), rank); f.rank > 0) {
      matrices.push_back(matrix_of(bucket, k, f));
      lefts.push_back(ops::matmul(matrices.back().values, start_of(bucket, matrices.back())));
    } else {
      others.push_back(k);
      whole.push_back(gradients[k]);
    }
  }
  Future<Tensors> of_whole, of_factors;
  if (!whole.empty()) of_whole = bucket.all_reduce(std::move(whole));
  if (!matrices.empty()) {
    of_factors = bucket.all_reduce(std::move(lefts));
    lefts = co_await of_factors;
    for (size_t i = 0; i < matrices.size(); ++i) {
      lefts[i] = orthogonal(lefts[i]);
      rights.push_back(ops::matmul(matrices[i].values.transpose(0, 1), lefts[i]));
    }
    of_factors = bucket.all_reduce(std::move(rights));
    rights = co_await of_factors;
    for (size_t i = 0; i < matrices.size(); ++i)
      sums[matrices[i].gradient] = product_of(bucket, matrices[i], lefts[i], rights[i]);
  }
  if (!others.empty()) {
    const Tensors came = co_await of_whole;
    for (size_t i = 0; i < others.size(); ++i) sums[others[i]] = came[i];
  }
  co_return sums;
}

}  // namespace

int64_t power_sgd_rank(const std::string& text) {
  return static_cast<int64_t>(internal::parallel::name_and_number(text, "[compression]").second.value_or(1));
}

int64_t power_sgd_elements(const Shape& shape, int64_t rank) {
  const Factors f = factors_of(shape, rank);
  return f.rank ? (f.rows + f.columns) * f.rank : shape.numel();
}

BucketReduction power_sgd(std::optional<double> number) {
  const double rank = number.value_or(1);
  if (!(rank >= 1 && rank <= 1024) || rank != std::floor(rank))
    throw_invalid(
        fmt::format("[compression] powersgd({}): expected a rank from 1 to 1024, as powersgd(2)", rank));
  return [rank](Bucket bucket) { return reduce_by_factors(std::move(bucket), static_cast<int64_t>(rank)); };
}

}  // namespace troupe::parallel
