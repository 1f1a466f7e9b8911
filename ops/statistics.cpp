#include "ops/statistics.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/base/error.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/cast_call.h"
#include "ops/dispatch/promote.h"
#include "ops/reduce.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

void require_floating_input(const char* op, const Tensor& x) {
  if (!x.defined()) throw_invalid(fmt::format("[{}] got an undefined tensor", op));
  if (!is_floating(x.dtype()))
    throw_invalid(fmt::format("[{}] needs a floating dtype, got {}; use .to()", op, x.summary()));
}

// Gives x divided by its length; as in PyTorch the gradient is that of the length, even where eps counts.
Tensor of_length_one(const Tensor& x, int64_t dim, double eps) {
  const Tensor length = norm(x, 2, dim, true), at_least = clamp(length.detach(), eps);
  return div(x, add(length, sub(at_least, length.detach())));
}

}  // namespace

static double times_biased(const Tensor& x, const IntList& dim, const Correction& c) {
  double n = 1;
  if (std::vector<int64_t>(dim).empty())
    n = static_cast<double>(x.numel());
  else
    for (const int64_t d : std::vector<int64_t>(dim)) n *= static_cast<double>(x.dim() ? x.size(d) : 1);
  return n / std::max(n - c.value, 0.0);
}
Tensor var(const Tensor& x, const IntList& dim, Correction c, bool keepdim) {
  if (!x.defined() || c.value == 1) return var(x, dim, true, keepdim);
  return rounded_once(x.dtype(), [&](DType wide) {
    return mul(var(to(x, wide), dim, false, keepdim), times_biased(x, dim, c));
  });
}
Tensor std(const Tensor& x, const IntList& dim, Correction c, bool keepdim) {
  if (!x.defined() || c.value == 1) return ops::std(x, dim, true, keepdim);
  return rounded_once(x.dtype(), [&](DType wide) {
    return mul(ops::std(to(x, wide), dim, false, keepdim), ::std::sqrt(times_biased(x, dim, c)));
  });
}
std::pair<Tensor, Tensor> var_mean(const Tensor& x, const IntList& dim, bool unbiased, bool keepdim) {
  return {var(x, dim, unbiased, keepdim), mean(x, dim, keepdim)};
}
std::pair<Tensor, Tensor> std_mean(const Tensor& x, const IntList& dim, bool unbiased, bool keepdim) {
  return {ops::std(x, dim, unbiased, keepdim), mean(x, dim, keepdim)};
}

Tensor normalize(const Tensor& x, double p, const IntList& dim, double eps) {
  require_floating_input("normalize", x);
  if (const auto y =
          under_autocast("normalize", {&x}, [&](const auto& in) { return normalize(in[0], p, dim, eps); }))
    return *y;
  return rounded_once(x.dtype(), [&](DType wide) {
    const Tensor y = to(x, wide);
    return div(y, clamp(norm(y, p, dim, true), eps));
  });
}

Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int64_t dim, double eps) {
  if (const auto y = under_autocast("cosine_similarity", {&x1, &x2}, [&](const auto& in) {
        return cosine_similarity(in[0], in[1], dim, eps);
      }))
    return *y;
  for (const Tensor* x : {&x1, &x2})
    if (!x->defined()) throw_invalid("[cosine_similarity] got an undefined tensor");
  const DType t = result_type(x1, x2);
  if (!is_floating(t))
    throw_invalid(fmt::format("[cosine_similarity] needs a floating dtype, got {} and {}; use .to()",
                              x1.summary(), x2.summary()));
  const Shape shape = broadcast(x1.shape(), x2.shape(), "cosine_similarity");
  const std::vector<int64_t> both(shape.begin(), shape.end());
  return rounded_once(t, [&](DType wide) {
    const Tensor a = expand(to(x1, wide), both), b = expand(to(x2, wide), both);
    return sum(mul(of_length_one(a, dim, eps), of_length_one(b, dim, eps)), dim);
  });
}

}  // namespace troupe::ops
