// Kernels of ops/loss.h: picking the target's log-probability, and its transpose.
#include <fmt/format.h>

#include <cstring>

#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/check.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

// Calls f(element of x, position in target) for every target that counts; returns their number.
template <class F>
int64_t for_each_target(const Call& c, const Shape& x, const Tensor& target, F f) {
  const int64_t ignored = c.attrs.integer("ignore_index");
  const Around a = around(x, x.rank() > 1 ? 1 : 0);
  const int64_t* classes = target.data<int64_t>();
  int64_t counted = 0;
  for (int64_t o = 0, i = 0; o < a.outer; ++o)
    for (int64_t j = 0; j < a.inner; ++j, ++i) {
      const int64_t k = classes[i];
      if (k == ignored) continue;
      if (k < 0 || k >= a.size) reject(c, fmt::format("target {} is out of range for {} classes", k, a.size));
      ++counted;
      f((o * a.size + k) * a.inner + j, i);
    }
  return counted;
}

void nll_loss(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data(), target = c.in[1].contiguous_data();
  const std::string& reduction = c.attrs.text("reduction");
  visit_floating(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>();
    T* to = out[0].data<T>();
    if (reduction == "none") {
      std::memset(out[0].bytes(), 0, out[0].nbytes());
      for_each_target(c, x.shape(), target, [&](int64_t at, int64_t i) { to[i] = -from[at]; });
      return;
    }
    double total = 0;
    const int64_t counted = for_each_target(
        c, x.shape(), target, [&](int64_t at, int64_t) { total -= static_cast<double>(from[at]); });
    *to = static_cast<T>(reduction == "mean" ? total / static_cast<double>(counted) : total);
  });
}

void nll_loss_grad(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), target = c.in[1].contiguous_data();
  const std::string& reduction = c.attrs.text("reduction");
  const Shape& shape = out[0].shape();
  std::memset(out[0].bytes(), 0, out[0].nbytes());
  visit_floating(g.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = g.data<T>();
    T* to = out[0].data<T>();
    const bool each = reduction == "none";
    double divisor = 1;
    if (reduction == "mean")
      divisor = static_cast<double>(for_each_target(c, shape, target, [](int64_t, int64_t) {}));
    for_each_target(c, shape, target, [&](int64_t at, int64_t i) {
      to[at] = each ? -from[i] : static_cast<T>(-static_cast<double>(*from) / divisor);
    });
  });
}

}  // namespace

KernelTable loss_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"nll_loss", nll_loss},
      {"nll_loss_grad", nll_loss_grad},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
