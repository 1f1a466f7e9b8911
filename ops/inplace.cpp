// A write in place is the operator out of place, whose result `a` takes over: elements and history. Where
// nothing is recorded and the tensors are alike, kernels that optimizers use do it without the result.
#include "ops/inplace.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/inplace_write.h"
#include "core/graph/view_history.h"
#include "core/tensor/elements.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/kernel_table.h"
#include "ops/dispatch/recorded.h"
#include "ops/index.h"
#include "ops/logic.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

// Updates: the result is the tensor that is written.
constexpr auto update_op = [](const char* name) { return Op{.name = name}; };
const Op kAddInto = update_op("add_"), kAffine = update_op("affine_"), kAddcmul = update_op("addcmul_"),
         kAddcdiv = update_op("addcdiv_"), kLerp = update_op("lerp_"), kMaximumInto = update_op("maximum_"),
         kSqrtInto = update_op("sqrt_");

// Whether a step's gradient rule may read what the tensor was before the write.
enum class Old { forgotten, read };

bool castable(DType from, DType to) {
  if (is_floating(from)) return is_floating(to);
  return from == boolean || to != boolean;
}

void check_castable(const char* name, const Tensor& a, DType result) {
  if (!castable(result, a.dtype()))
    throw_invalid(
        fmt::format("[{}] result type {} can't be cast to {}: convert the tensor ({}) with .to() first", name,
                    troupe::name(result), troupe::name(a.dtype()), a.summary()));
}

void check_fits(const char* name, const Tensor& a, const Tensor& result) {
  check_castable(name, a, result.dtype());
  if (result.shape() != a.shape())
    throw_invalid(
        fmt::format("[{}] the result has shape {}, which does not fit {}: only the other tensors "
                    "broadcast",
                    name, result.shape().str(), a.summary()));
}

// `a` takes over a result of its shape. `overwritten`: the result does not depend on what it was.
void adopt(const char* name, const Tensor& a, const Tensor& result, bool recorded, bool overwritten) {
  const Tensor value = result.dtype() == a.dtype() || !recorded ? result : to(result, a.dtype());
  const Edge made = recorded ? value.gradient_edge() : Edge();
  copy_elements(a, value);
  a.bump_version(name);
  if (!recorded) return;
  if (made && !overwritten) result_is_now_in(made, a);
  rebase_history(a, made, overwritten || !made);
}

// a = f(a).
template <class F>
void update(const char* name, const Tensor& a, std::initializer_list<const Tensor*> others, Old old, F&& f) {
  const bool recorded = troupe::internal::begin_recorded_write(a, name, others);
  Tensor before = a;
  if (recorded && old == Old::read) {
    before = a.clone_data();
    before.set_grad_fn(a.gradient_edge());
  }
  const Tensor result = f(before);
  check_fits(name, a, result);
  adopt(name, a, result, recorded, false);
}

// Whether a kernel may write to `a` while it reads the others.
bool alike(const Tensor& a, std::initializer_list<const Tensor*> others) {
  if (!is_floating(a.dtype())) return false;
  for (const Tensor* t : others) {
    if (t->dtype() != a.dtype() || t->shape() != a.shape() || t->device() != a.device()) return false;
    if (t->storage() == a.storage() &&
        (t->storage_offset() != a.storage_offset() || t->strides() != a.strides()))
      return false;
  }
  return true;
}

// The same, by the kernel of `op` where nothing is recorded, the tensors are alike and their device has it.
template <class F>
void update(const char* name, const Tensor& a, std::initializer_list<const Tensor*> others, Old old,
            const Op& op, Attrs attrs, F&& f) {
  if (troupe::internal::begin_recorded_write(a, name, others) || !alike(a, others) ||
      !has_kernel(op, a.device()))
    return update(name, a, others, old, std::forward<F>(f));
  SmallVector<Tensor, 2> in;
  for (const Tensor* t : others) in.push_back(*t);
  Tensors out{a};
  apply_into(op, in, out, attrs);
  a.bump_version(name);
}

template <class F>
void unary(const char* name, const Tensor& a, Old old, F&& f) {
  update(name, a, {}, old, std::forward<F>(f));
}

Old read_for(const Tensor& other) {
  return other.defined() && other.requires_grad() ? Old::read : Old::forgotten;
}

void check_scalar(const char* name, const Tensor& value) {
  if (value.defined() && value.dim() != 0)
    throw_invalid(fmt::format("[{}] the value must be a 0-d tensor, got {}", name, value.summary()));
}

}  // namespace

void copy_(const Tensor& a, const Tensor& b) {
  const bool recorded = troupe::internal::begin_recorded_write(a, "copy_", {&b});
  if (a.is_same(b)) return a.bump_version("copy_");  // a write, as in PyTorch
  Tensor value = b;
  if (b.shape() != a.shape()) {
    if (broadcast(a.shape(), b.shape(), "copy_") != a.shape())
      throw_invalid(fmt::format("[copy_] shapes differ: {} from {}", a.shape().str(), b.shape().str()));
    value = expand(b, {a.shape().begin(), a.shape().end()});
  }
  adopt("copy_", a, value, recorded, true);
}

void fill_(const Tensor& a, Scalar value) {
  const bool recorded = troupe::internal::begin_recorded_write(a, "fill_", {}, RepeatedElements::harmless);
  require_fits(value, a.dtype(), "fill_");
  fill_elements(a, value);
  a.bump_version("fill_");
  if (recorded) rebase_history(a, {}, true);
}

void fill_(const Tensor& a, const Tensor& value) {
  const bool recorded =
      troupe::internal::begin_recorded_write(a, "fill_", {&value}, RepeatedElements::harmless);
  check_scalar("fill_", value);
  adopt("fill_", a, expand(value, {a.shape().begin(), a.shape().end()}), recorded, true);
}

void add_(const Tensor& a, const Tensor& b, Scalar alpha) {
  update("add_", a, {&b}, Old::forgotten, kAddInto, {{"alpha", alpha.to<double>()}},
         [&](const Tensor& x) { return add(x, b, alpha); });
}
void add_(const Tensor& a, Scalar s) {
  update("add_", a, {}, Old::forgotten, kAffine, {{"scale", 1.0}, {"shift", s.to<double>()}},
         [&](const Tensor& x) { return add(x, s); });
}
void sub_(const Tensor& a, const Tensor& b, Scalar alpha) {
  update("sub_", a, {&b}, Old::forgotten, kAddInto, {{"alpha", -alpha.to<double>()}},
         [&](const Tensor& x) { return sub(x, b, alpha); });
}
void sub_(const Tensor& a, Scalar s) {
  update("sub_", a, {}, Old::forgotten, kAffine, {{"scale", 1.0}, {"shift", -s.to<double>()}},
         [&](const Tensor& x) { return sub(x, s); });
}
void mul_(const Tensor& a, const Tensor& b) {
  update("mul_", a, {&b}, read_for(b), [&](const Tensor& x) { return mul(x, b); });
}
void mul_(const Tensor& a, Scalar s) {
  update("mul_", a, {}, Old::forgotten, kAffine, {{"scale", s.to<double>()}, {"shift", 0.0}},
         [&](const Tensor& x) { return mul(x, s); });
}
void div_(const Tensor& a, const Tensor& b) {
  update("div_", a, {&b}, read_for(b), [&](const Tensor& x) { return div(x, b); });
}
void div_(const Tensor& a, Scalar s) {
  unary("div_", a, Old::forgotten, [&](const Tensor& x) { return div(x, s); });
}
void remainder_(const Tensor& a, const Tensor& b) {
  update("remainder_", a, {&b}, read_for(b), [&](const Tensor& x) { return remainder(x, b); });
}
void remainder_(const Tensor& a, Scalar s) {
  unary("remainder_", a, Old::forgotten, [&](const Tensor& x) { return remainder(x, s); });
}
void pow_(const Tensor& a, const Tensor& exponent) {
  update("pow_", a, {&exponent}, Old::read, [&](const Tensor& x) { return pow(x, exponent); });
}
void pow_(const Tensor& a, Scalar exponent) {
  unary("pow_", a, Old::read, [&](const Tensor& x) { return pow(x, exponent); });
}
void clamp_(const Tensor& a, std::optional<Scalar> min, std::optional<Scalar> max) {
  unary("clamp_", a, Old::read, [&](const Tensor& x) { return clamp(x, min, max); });
}
void clamp_(const Tensor& a, const Tensor& min, const Tensor& max) {
  const auto limit = [&](const Tensor& x) { return clamp(x, min, max); };
  if (!max.defined()) return update("clamp_", a, {&min}, Old::read, limit);
  if (!min.defined()) return update("clamp_", a, {&max}, Old::read, limit);
  update("clamp_", a, {&min, &max}, Old::read, limit);
}
void div_(const Tensor& a, const Tensor& b, const std::string& rounding_mode) {
  update("div_", a, {&b}, Old::read, [&](const Tensor& x) { return div(x, b, rounding_mode); });
}
void div_(const Tensor& a, Scalar b, const std::string& rounding_mode) {
  unary("div_", a, Old::read, [&](const Tensor& x) { return div(x, b, rounding_mode); });
}
void maximum_(const Tensor& a, const Tensor& b) {
  update("maximum_", a, {&b}, Old::read, kMaximumInto, {}, [&](const Tensor& x) { return maximum(x, b); });
}
void minimum_(const Tensor& a, const Tensor& b) {
  update("minimum_", a, {&b}, Old::read, [&](const Tensor& x) { return minimum(x, b); });
}

void addcmul_(const Tensor& a, const Tensor& b, const Tensor& c, Scalar value) {
  update("addcmul_", a, {&b, &c}, Old::forgotten, kAddcmul, {{"value", value.to<double>()}},
         [&](const Tensor& x) { return addcmul(x, b, c, value); });
}
void addcdiv_(const Tensor& a, const Tensor& b, const Tensor& c, Scalar value) {
  update("addcdiv_", a, {&b, &c}, Old::forgotten, kAddcdiv, {{"value", value.to<double>()}},
         [&](const Tensor& x) { return addcdiv(x, b, c, value); });
}
void lerp_(const Tensor& a, const Tensor& b, double weight) {
  update("lerp_", a, {&b}, Old::forgotten, kLerp, {{"weight", weight}},
         [&](const Tensor& x) { return lerp(x, b, weight); });
}
void lerp_(const Tensor& a, const Tensor& b, const Tensor& weight) {
  update("lerp_", a, {&b, &weight}, Old::forgotten, [&](const Tensor& x) { return lerp(x, b, weight); });
}
void masked_fill_(const Tensor& a, const Tensor& mask, Scalar value) {
  update("masked_fill_", a, {&mask}, Old::forgotten,
         [&](const Tensor& x) { return masked_fill(x, mask, value); });
}
void masked_fill_(const Tensor& a, const Tensor& mask, const Tensor& value) {
  check_scalar("masked_fill_", value);
  update("masked_fill_", a, {&mask, &value}, Old::forgotten, [&](const Tensor& x) {
    check_castable("masked_fill_", x, value.dtype());
    return where(mask, to(value, x.dtype()), x);
  });
}

void index_add_(const Tensor& a, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
  update("index_add_", a, {&index, &source}, Old::forgotten,
         [&](const Tensor& x) { return index_add(x, dim, index, source, alpha); });
}

void neg_(const Tensor& a) { unary("neg_", a, Old::forgotten, neg); }
void abs_(const Tensor& a) { unary("abs_", a, Old::read, abs); }
void square_(const Tensor& a) { unary("square_", a, Old::read, square); }
void floor_(const Tensor& a) { unary("floor_", a, Old::forgotten, floor); }
void ceil_(const Tensor& a) { unary("ceil_", a, Old::forgotten, ceil); }
void round_(const Tensor& a) {
  unary("round_", a, Old::forgotten, [](const Tensor& x) { return round(x); });
}
void round_(const Tensor& a, int64_t decimals) {
  unary("round_", a, Old::forgotten, [&](const Tensor& x) { return round(x, decimals); });
}
void exp_(const Tensor& a) { unary("exp_", a, Old::forgotten, exp); }
void expm1_(const Tensor& a) { unary("expm1_", a, Old::forgotten, expm1); }
void log_(const Tensor& a) { unary("log_", a, Old::read, log); }
void log1p_(const Tensor& a) { unary("log1p_", a, Old::read, log1p); }
void sqrt_(const Tensor& a) {
  update("sqrt_", a, {}, Old::forgotten, kSqrtInto, {}, [](const Tensor& x) { return sqrt(x); });
}
void rsqrt_(const Tensor& a) { unary("rsqrt_", a, Old::forgotten, rsqrt); }
void reciprocal_(const Tensor& a) { unary("reciprocal_", a, Old::forgotten, reciprocal); }
void sin_(const Tensor& a) { unary("sin_", a, Old::read, sin); }
void cos_(const Tensor& a) { unary("cos_", a, Old::read, cos); }
void relu_(const Tensor& a) { unary("relu_", a, Old::forgotten, relu); }
void tanh_(const Tensor& a) { unary("tanh_", a, Old::forgotten, tanh); }
void sigmoid_(const Tensor& a) { unary("sigmoid_", a, Old::forgotten, sigmoid); }

}  // namespace troupe::ops
