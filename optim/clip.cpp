#include "optim/clip.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "optim/element_loop.h"
#include "optim/gradient_norm.h"

namespace troupe::optim {
namespace {

void check(const char* name, const char* what, double limit) {
  if (limit >= 0) return;
  throw_invalid(fmt::format("[{}] {} must be at least 0, got {}", name, what, limit));
}

// f(element) of every element, as a new tensor of the dtype that it is computed in: gradients may be views,
// or shared by several parameters.
template <class F>
Tensor mapped(const Tensor& grad, F&& f) {
  const Tensor source = widened(grad), out = Tensor::empty(grad.shape(), source.dtype());
  with_type(source, [&]<class T>(T) {
    pass<T, 0>(
        out, {source}, {}, [=](T & to, T from) __attribute__((always_inline)) { to = f(from); });
  });
  return out;
}

Tensors grads_of(const Tensors& params) {
  Tensors grads;
  for (const Tensor& p : params) grads.push_back(p.grad());
  return grads;
}

void set_grads(const Tensors& params, const Tensors& grads) {
  for (size_t i = 0; i < params.size(); ++i)
    if (!params[i].grad().same_as(grads[i])) params[i].set_grad(grads[i]);
}

}  // namespace

Tensor scaled(const Tensor& grad, double by) {
  return mapped(
      grad, [by](auto x) __attribute__((always_inline)) { return x * static_cast<decltype(x)>(by); });
}

std::vector<double> gradient_sizes(const Tensors& grads, bool most) {
  std::vector<double> sizes;
  for (const Tensor& g : grads) sizes.push_back(!g.defined() ? 0 : most ? largest(g) : sum_of_squares(g));
  return sizes;
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
  with_type(grad, [&]<class T>(T) {
    const T by = static_cast<T>(factor);
    pass<T, 0>(
        grad, {grad}, {}, [=](T & g, T) __attribute__((always_inline)) { g *= by; });
  });
  return grad;
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
  for (Tensor& g : grads)
    if (g.defined())
      g = mapped(
              g,
              [limit](auto x) __attribute__((always_inline)) {
                const auto most = static_cast<decltype(x)>(limit);
                return x > most ? most : x < -most ? -most : x;
              })
              .to(g.dtype());
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
