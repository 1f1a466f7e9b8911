#include "ops/pool_forms.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/promote.h"
#include "ops/index.h"
#include "ops/min_max.h"
#include "ops/pooling.h"
#include "ops/reduce.h"
#include "ops/reshape_ops.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

// Windows over images, how many there are, and how far they reach beyond the image and its padding.
struct PoolGrid {
  const char* op;
  Window window;
  Pair image{}, count{}, beyond{};

  int64_t start(size_t d, int64_t i) const { return i * window.stride[d] - window.padding[d]; }
};

[[noreturn]] void refuse_pool(const char* op, const std::string& text) {
  throw_invalid(fmt::format("[{}] {}", op, text));
}

void count_windows(PoolGrid& g, size_t d, bool ceil_mode) {
  const Window& w = g.window;
  constexpr int64_t kMost = int64_t{1} << 31;
  for (const int64_t v : {w.kernel[d], w.stride[d], w.dilation[d]})
    if (v < 1 || v >= kMost)
      refuse_pool(g.op, fmt::format("kernel_size, stride and dilation must be at least 1, got {}", v));
  const int64_t span = w.dilation[d] * (w.kernel[d] - 1) + 1, size = g.image[d], p = w.padding[d];
  if (p < 0 || 2 * p > span)
    refuse_pool(g.op, fmt::format("padding {} must be in [0, half of the window's {}]", p, span));
  const int64_t room = size + 2 * p - span + (ceil_mode ? w.stride[d] - 1 : 0);
  if (size == 0 || room < 0)
    refuse_pool(g.op, fmt::format("a window of {} does not fit into size {} with padding {}", span, size, p));
  g.count[d] = room / w.stride[d] + 1;
  if (ceil_mode && (g.count[d] - 1) * w.stride[d] >= size + p) --g.count[d];
  g.beyond[d] = std::max<int64_t>(0, (g.count[d] - 1) * w.stride[d] + span - (size + 2 * p));
}

PoolGrid pool_grid(const char* op, const Tensor& x, const Window& window, bool ceil_mode) {
  if (!x.defined() || x.dim() != 4 || !is_floating(x.dtype()))
    refuse_pool(op, "input must be floating, [N, C, H, W] or [C, H, W], got " + x.summary());
  PoolGrid g{op, window, {x.size(2), x.size(3)}};
  for (const size_t d : {size_t{0}, size_t{1}}) count_windows(g, d, ceil_mode);
  return g;
}

// [N, C, elements of a window, H', W'].
Tensor pool_windows(const Tensor& x, const PoolGrid& g, Scalar outside) {
  const Pair &p = g.window.padding, &s = g.window.stride;
  const Tensor wide = pad(x, {p[1], p[1] + g.beyond[1], p[0], p[0] + g.beyond[0]}, "constant", outside);
  const auto along = [&](const Tensor& t, size_t d, int64_t i) {
    const int64_t from = i * g.window.dilation[d];
    return slice(t, static_cast<int64_t>(d) + 2, from, from + (g.count[d] - 1) * s[d] + 1, s[d]);
  };
  Tensors parts;
  for (int64_t i = 0; i < g.window.kernel[0]; ++i)
    for (int64_t j = 0; j < g.window.kernel[1]; ++j) parts.push_back(along(along(wide, 0, i), 1, j));
  return stack(parts, 2);
}

// The elements `at` of the windows are there in the image.
Tensor places_in_image(const Tensor& at, const PoolGrid& g) {
  const TensorOptions whole{int64, at.device()};
  const auto starts = [&](size_t d) {
    return sub(mul(arange(0, g.count[d], 1, whole), g.window.stride[d]), g.window.padding[d]);
  };
  const Tensor i = div(at, g.window.kernel[1], "floor"), j = sub(at, mul(i, g.window.kernel[1]));
  const Tensor row = add(unsqueeze(starts(0), 1), mul(i, g.window.dilation[0])),
               column = add(starts(1), mul(j, g.window.dilation[1]));
  return add(mul(row, g.image[1]), column);
}

// Each sum is divided by these: [H', W'].
Tensor counts_of(const PoolGrid& g, bool count_include_pad, const TensorOptions& options) {
  const auto along = [&](size_t d) {
    std::vector<double> counts;
    const int64_t p = count_include_pad ? g.window.padding[d] : 0;
    for (int64_t i = 0; i < g.count[d]; ++i) {
      const int64_t from = std::max(g.start(d, i), -p),
                    to = std::min(g.start(d, i) + g.window.kernel[d], g.image[d] + p);
      counts.push_back(static_cast<double>(std::max<int64_t>(to - from, 0)));
    }
    return tensor(counts, options);
  };
  return mul(unsqueeze(along(0), 1), along(1));
}

}  // namespace

ValuesAndIndices max_pool2d_with_indices(const Tensor& x, Pair kernel_size, std::optional<Pair> stride,
                                         Pair padding, Pair dilation, bool ceil_mode) {
  if (x.defined() && x.dim() == 3) {
    const auto one =
        max_pool2d_with_indices(unsqueeze(x, 0), kernel_size, stride, padding, dilation, ceil_mode);
    return {squeeze(one.values, 0), squeeze(one.indices, 0)};
  }
  const PoolGrid g =
      pool_grid("max_pool2d", x, {kernel_size, stride.value_or(kernel_size), padding, dilation}, ceil_mode);
  const ValuesAndIndices found = max(pool_windows(x, g, -HUGE_VAL), 2);
  return {found.values, places_in_image(found.indices, g)};
}

Tensor max_pool2d(const Tensor& x, Pair kernel_size, std::optional<Pair> stride, Pair padding,
                  const MaxPoolForm& form) {
  if (x.defined() && x.dim() == 3)
    return squeeze(max_pool2d(unsqueeze(x, 0), kernel_size, stride, padding, form), 0);
  if (form.dilation == Pair{1, 1} && !form.ceil_mode) return max_pool2d(x, kernel_size, stride, padding);
  return max_pool2d_with_indices(x, kernel_size, stride, padding, form.dilation, form.ceil_mode).values;
}

Tensor avg_pool2d(const Tensor& x, Pair kernel_size, std::optional<Pair> stride, Pair padding,
                  const AvgPoolForm& form) {
  if (x.defined() && x.dim() == 3)
    return squeeze(avg_pool2d(unsqueeze(x, 0), kernel_size, stride, padding, form), 0);
  const bool plain = (form.count_include_pad || padding == Pair{0, 0}) && !form.ceil_mode;
  if (plain && !form.divisor_override) return avg_pool2d(x, kernel_size, stride, padding);
  if (form.divisor_override == 0) refuse_pool("avg_pool2d", "divisor_override must not be 0");
  const PoolGrid g =
      pool_grid("avg_pool2d", x, {kernel_size, stride.value_or(kernel_size), padding}, form.ceil_mode);
  return rounded_once(x.dtype(), [&](DType t) {
    const Tensor sums = sum(pool_windows(to(x, t), g, 0), {2});
    return form.divisor_override ? div(sums, *form.divisor_override)
                                 : div(sums, counts_of(g, form.count_include_pad, {t, x.device()}));
  });
}

}  // namespace troupe::ops
