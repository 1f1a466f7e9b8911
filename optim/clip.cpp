#include "optim/clip.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "ops/arithmetic.h"
#include "ops/unary.h"
#include "ops/view.h"
#include "optim/gradient_norm.h"

namespace troupe::optim {
namespace {

void check(const char* name, const char* what, double limit) {
  if (limit >= 0) return;
  throw_invalid(fmt::format("[{}] {} must be at least 0, got {}", name, what, limit));
}

// In the dtype that it is computed in.
Tensor as_computed(const Tensor& grad) { return ops::to(grad.detach(), compute_dtype(grad.dtype())); }

Tensors grads_of(const Tensors& params) {
  Tensors grads;
  for (const Tensor& p : params) grads.push_back(p.grad());
  return grads;
}

void set_grads(const Tensors& params, const Tensors& grads) {
  for (size_t i = 0; i < params.size(); ++i)
    if (!params[i].grad().is_same(grads[i])) params[i].set_grad(grads[i]);
}

}  // namespace

Tensor scaled(const Tensor& grad, double by) {
  NoGradGuard off;
  return ops::mul(as_computed(grad), by);
}

std::vector<double> gradient_sizes(const Tensors& grads, bool most) {
  return sizes_of(grads, most ? Size::largest : Size::squares);
}

double norm_of_sizes(const std::vector<double>& sizes, bool most) {
  double sum = 0, top = 0;
  for (const double size : sizes) {
    sum += size;
    if (!(size <= top) && !std::isnan(top)) top = size;
  }
  return most ? top : std::sqrt(sum);
}

double total_norm(const Tensors& grads, bool most) {
  return norm_of_sizes(gradient_sizes(grads, most), most);
}

double clip_factor(double norm, double max_norm, const ClipOptions& options) {
  check("clip_norm", "max_norm", max_norm);
  if (!std::isfinite(norm)) {
    if (options.error_if_nonfinite)
      throw_error(ErrorKind::failed, fmt::format("[clip_norm] the norm of the gradients is {}", norm));
    return 1;
  }
  return std::min(1.0, max_norm / (norm + 1e-6));
}

Tensor clipped(Tensor grad, double factor) {
  if (is_half(grad.dtype()) || !grad.is_exclusive()) return ops::to(scaled(grad, factor), grad.dtype());
  NoGradGuard off;
  return grad.mul_(factor);
}

double clip_norm_(Tensors& grads, double max_norm, const ClipOptions& options) {
  check("clip_norm", "max_norm", max_norm);
  const double norm = total_norm(grads, options.largest);
  const double factor = clip_factor(norm, max_norm, options);
  if (factor < 1)
    for (Tensor& g : grads)
      if (g.defined()) g = ops::to(scaled(g, factor), g.dtype());
  return norm;
}

void clip_value_(Tensors& grads, double limit) {
  check("clip_value", "the limit", limit);
  NoGradGuard off;
  for (Tensor& g : grads)
    if (g.defined()) g = ops::clamp(as_computed(g), -limit, limit).to(g.dtype());
}

double clip_grad_norm_(const Tensors& params, double max_norm, const ClipOptions& options) {
  Tensors grads = grads_of(params);
  const double norm = clip_norm_(grads, max_norm, options);
  set_grads(params, grads);
  return norm;
}

void clip_grad_value_(const Tensors& params, double limit) {
  Tensors grads = grads_of(params);
  clip_value_(grads, limit);
  set_grads(params, grads);
}

}  // namespace troupe::optim
