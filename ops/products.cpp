// Products that are added to something, and tensordot.
#include <fmt/format.h>

#include <numeric>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/cast_call.h"
#include "ops/dispatch/check.h"
#include "ops/dispatch/promote.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

using Product = Tensor(const Tensor&, const Tensor&);

void check_factor(const char* op, const char* what, const Scalar& factor, DType t) {
  if (factor.is_floating() && !is_floating(t))
    throw_invalid(fmt::format("[{}] {} must be an integer for {}, got {}", op, what, name(t), factor.str()));
}

// Gives beta x + alpha product(a, b).
Tensor added_product(const char* op, Product* product, const Tensor& x, const Tensor& a, const Tensor& b,
                     const Scalar& beta, const Scalar& alpha) {
  for (const Tensor* t : {&x, &a, &b}) {
    if (!t->defined()) throw_invalid(fmt::format("[{}] got an undefined tensor", op));
    if (t->dtype() != a.dtype())
      throw_invalid(fmt::format("[{}] inputs differ in dtype: {} and {}; use .to() on one of them", op,
                                t->summary(), a.summary()));
  }
  const DType t = a.dtype();
  if (t == boolean) throw_invalid(fmt::format("[{}] is not for bool; use .to(int64)", op));
  check_factor(op, "beta", beta, t);
  check_factor(op, "alpha", alpha, t);
  return rounded_once(t, [&](DType wide) {
    Tensor y = product(to(a, wide), to(b, wide));
    if (broadcast(x.shape(), y.shape(), op) != y.shape())
      throw_invalid(
          fmt::format("[{}] {} does not broadcast to the product {}", op, x.summary(), y.shape().str()));
    if (alpha != Scalar(1)) y = mul(y, alpha);
    if (beta.to<double>() == 0) {  // a gradient of zeros, whatever x has
      if (!grad_enabled() || !x.requires_grad()) return y;
      return add(where(zeros({}, {boolean, x.device()}), to(x, wide), tensor(0, y.options())), y);
    }
    return add(beta == Scalar(1) ? to(x, wide) : mul(to(x, wide), beta), y);
  });
}

// The other dimensions in front of these, or behind them.
Tensor as_matrix(const Tensor& x, const std::vector<int>& dims, bool behind, Shape& others) {
  std::vector<int64_t> order(dims.begin(), dims.end());
  std::vector<int64_t> rest;
  int64_t summed = 1, kept = 1;
  for (const int d : dims) summed *= x.shape()[d];
  for (int d = 0; d < x.dim(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) != dims.end()) continue;
    rest.push_back(d);
    others.push_back(x.shape()[d]);
    kept *= x.shape()[d];
  }
  order.insert(behind ? order.begin() : order.end(), rest.begin(), rest.end());
  return reshape(permute(x, order), behind ? IntList{kept, summed} : IntList{summed, kept});
}

}  // namespace

Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  if (const auto y = under_autocast("addmm", {&x, &a, &b},
                                    [&](const auto& in) { return addmm(in[0], in[1], in[2], beta, alpha); }))
    return *y;
  return added_product("addmm", mm, x, a, b, beta, alpha);
}
Tensor addmv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  if (const auto y = under_autocast("addmv", {&x, &a, &b},
                                    [&](const auto& in) { return addmv(in[0], in[1], in[2], beta, alpha); }))
    return *y;
  return added_product("addmv", mv, x, a, b, beta, alpha);
}
namespace {
// The sum over the batch is one product with all of it side by side: rounded once, in the dtype of both.
Tensor summed_products(const Tensor& a, const Tensor& b) {
  if (a.dim() != 3 || b.dim() != 3 || a.size(0) != b.size(0) || a.size(2) != b.size(1)) return bmm(a, b);
  const int64_t depth = a.size(0) * a.size(2);
  return matmul(reshape(transpose(a, 0, 1), {a.size(1), depth}), reshape(b, {depth, b.size(2)}));
}
}  // namespace

Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  if (const auto y = under_autocast(
          "baddbmm", {&x, &a, &b}, [&](const auto& in) { return baddbmm(in[0], in[1], in[2], beta, alpha); }))
    return *y;
  return added_product("baddbmm", bmm, x, a, b, beta, alpha);
}
Tensor addbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  if (const auto y = under_autocast("addbmm", {&x, &a, &b},
                                    [&](const auto& in) { return addbmm(in[0], in[1], in[2], beta, alpha); }))
    return *y;
  return added_product("addbmm", summed_products, x, a, b, beta, alpha);
}
Tensor addr(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  if (const auto y = under_autocast("addr", {&x, &a, &b},
                                    [&](const auto& in) { return addr(in[0], in[1], in[2], beta, alpha); }))
    return *y;
  if (!x.defined() || !a.defined() || !b.defined()) return added_product("addr", outer, x, a, b, beta, alpha);
  const DType t = promote_types(x.dtype(), promote_types(a.dtype(), b.dtype()));
  return added_product("addr", outer, to(x, t), to(a, t), to(b, t), beta, alpha);
}

Tensor tensordot(const Tensor& a, const Tensor& b, const IntList& dims_a, const IntList& dims_b) {
  if (const auto y = under_autocast("tensordot", {&a, &b},
                                    [&](const auto& in) { return tensordot(in[0], in[1], dims_a, dims_b); }))
    return *y;
  for (const Tensor* t : {&a, &b})
    if (!t->defined()) throw_invalid("[tensordot] got an undefined tensor");
  if (a.dtype() != b.dtype())
    throw_invalid(fmt::format("[tensordot] inputs differ in dtype: {} and {}; use .to() on one of them",
                              a.summary(), b.summary()));
  if (dims_a.size() != dims_b.size())
    throw_invalid(fmt::format("[tensordot] dims {} and {} are no pairs", str(AttrValue(dims_a)),
                              str(AttrValue(dims_b))));
  std::vector<int> of_a, of_b;
  for (size_t i = 0; i < dims_a.size(); ++i) {
    const int d = a.shape().axis(dims_a[i], "tensordot"), e = b.shape().axis(dims_b[i], "tensordot");
    if (a.shape()[d] != b.shape()[e])
      throw_invalid(fmt::format("[tensordot] dimension {} of {} and {} of {} differ in size", d, a.summary(),
                                e, b.summary()));
    for (const auto& [all, one] : {std::pair(&of_a, d), std::pair(&of_b, e)}) {
      if (std::find(all->begin(), all->end(), one) != all->end())
        throw_invalid(fmt::format("[tensordot] dimension {} stands twice in {} or {}", one,
                                  str(AttrValue(dims_a)), str(AttrValue(dims_b))));
      all->push_back(one);
    }
  }
  Shape shape;
  const Tensor left = as_matrix(a, of_a, true, shape), right = as_matrix(b, of_b, false, shape);
  return reshape(mm(left, right), to_list(shape));
}

Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims) {
  if (!a.defined() || !b.defined()) throw_invalid("[tensordot] got an undefined tensor");
  if (dims < 0 || dims > a.dim() || dims > b.dim())
    throw_invalid(fmt::format("[tensordot] dims must be from 0 to the dimensions of {} and {}, got {}",
                              a.summary(), b.summary(), dims));
  std::vector<int64_t> first(static_cast<size_t>(dims)), last(first.size());
  std::iota(first.begin(), first.end(), 0);
  std::iota(last.begin(), last.end(), a.dim() - dims);
  return tensordot(a, b, last, first);
}

}  // namespace troupe::ops
