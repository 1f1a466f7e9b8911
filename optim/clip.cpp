#include "optim/clip.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "optim/norm.h"
#include "optim/pass.h"

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
        out, source, {}, [=](T & to, T from) __attribute__((always_inline)) { to = f(from); });
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

double total_norm(const Tensors& grads, bool most) {
  double sum = 0, top = 0;
  for (const Tensor& g : grads) {
    if (!g.defined()) continue;
    if (!most) {
      sum += sum_of_squares(g);
    } else if (const double size = largest(g); !(size <= top) && !std::isnan(top)) {
      top = size;
    }
  }
  return most ? top : std::sqrt(sum);
}

double clip_norm_(Tensors& grads, double max_norm, const ClipOptions& options) {
  check("clip_norm", "max_norm", max_norm);
  const double norm = total_norm(grads, options.largest);
  if (!std::isfinite(norm)) {
    if (options.error_if_nonfinite)
      throw_error(ErrorKind::failed, fmt::format("[clip_norm] the norm of the gradients is {}", norm));
    return norm;
  }
  const double scale = max_norm / (norm + 1e-6);
  if (scale >= 1) return norm;
  for (Tensor& g : grads)
    if (g.defined()) g = ops::to(scaled(g, scale), g.dtype());
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
