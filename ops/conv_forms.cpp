#include "ops/conv_forms.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/arrange.h"
#include "ops/conv.h"
#include "ops/dispatch/cast_call.h"
#include "ops/dispatch/check.h"
#include "ops/dispatch/promote.h"
#include "ops/index.h"
#include "ops/reshape_ops.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

using Lengths = std::vector<int64_t>;

[[noreturn]] void refuse_form(const char* op, const std::string& text) {
  throw_invalid(fmt::format("[{}] {}", op, text));
}
void require_rank(const char* op, const char* what, const Tensor& x, int rank, const char* shape) {
  if (!x.defined()) refuse_form(op, fmt::format("{} is an undefined tensor", what));
  if (x.dim() != rank) refuse_form(op, fmt::format("{} must be {}, got {}", what, shape, x.summary()));
}
void require_at_least(const char* op, const char* what, const Pair& values, int64_t least) {
  for (const int64_t v : values)
    if (v < least) refuse_form(op, fmt::format("{} must be at least {}, got {}", what, least, v));
}

Lengths pair_list(const Pair& p) { return {p[0], p[1]}; }

// How many windows there are along a dimension of that size.
int64_t windows(const char* op, int64_t size, int64_t kernel, int64_t dilation, int64_t padding,
                int64_t stride) {
  int64_t span = 0, padded = 0;
  if (__builtin_mul_overflow(dilation, kernel - 1, &span) || __builtin_mul_overflow(padding, 2, &padded) ||
      __builtin_add_overflow(padded, size, &padded) || padded < span + 1)
    refuse_form(op, fmt::format("a window of {} with dilation {} does not fit into size {} with padding {}",
                                kernel, dilation, size, padding));
  return (padded - span - 1) / stride + 1;
}

// Finds of the windows [rows, columns] the elements i, j of each: a slice of both dimensions.
struct Grid {
  Pair kernel, dilation, padding, stride, count;

  int64_t start(size_t d, int64_t i) const { return i * dilation[d]; }
  int64_t stop(size_t d, int64_t i) const { return start(d, i) + (count[d] - 1) * stride[d] + 1; }
};

Grid grid_of(const char* op, int64_t rows, int64_t columns, const Pair& kernel, const Pair& dilation,
             const Pair& padding, const Pair& stride) {
  require_at_least(op, "kernel_size", kernel, 1);
  require_at_least(op, "dilation", dilation, 1);
  require_at_least(op, "padding", padding, 0);
  require_at_least(op, "stride", stride, 1);
  Grid g{kernel, dilation, padding, stride, {}};
  const int64_t sizes[] = {rows, columns};
  for (size_t d = 0; d < 2; ++d)
    g.count[d] = windows(op, sizes[d], kernel[d], dilation[d], padding[d], stride[d]);
  return g;
}

Tensor placed(const Tensor& part, int dim, int64_t start, int64_t stop, int64_t step, int64_t size) {
  Lengths shape = to_list(part.shape());
  shape[static_cast<size_t>(dim)] = size;
  return apply1(kSliceGrad, {part},
                {{"dim", dim}, {"start", start}, {"stop", stop}, {"step", step}, {"shape", shape}});
}

Tensor with_bias(const char* op, const Tensor& y, const Tensor& bias) {
  if (!bias.defined()) return y;
  if (bias.shape() != Shape{y.size(1)})
    refuse_form(op, fmt::format("bias must be [{}], one for each channel of the result, got {}", y.size(1),
                                bias.summary()));
  return add(y, reshape(bias, {y.size(1), 1, 1}));
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t stride, int64_t padding,
              int64_t dilation, int64_t groups) {
  if (x.defined() && x.dim() == 2)
    return squeeze(conv1d(unsqueeze(x, 0), weight, bias, stride, padding, dilation, groups), 0);
  require_rank("conv1d", "input", x, 3, "[N, C, L] or [C, L]");
  require_rank("conv1d", "weight", weight, 3, "[O, C / groups, k]");
  return squeeze(
      conv2d(unsqueeze(x, 2), unsqueeze(weight, 2), bias, {1, stride}, {0, padding}, {1, dilation}, groups),
      2);
}

Tensor conv2d_same(const Tensor& x, const Tensor& weight, const Tensor& bias, Pair dilation, int64_t groups) {
  if (x.defined() && x.dim() == 3)
    return squeeze(conv2d_same(unsqueeze(x, 0), weight, bias, dilation, groups), 0);
  require_rank("conv2d", "input", x, 4, "[N, C, H, W] or [C, H, W]");
  require_rank("conv2d", "weight", weight, 4, "[O, C / groups, h, w]");
  require_at_least("conv2d", "dilation", dilation, 1);
  const int64_t rows = dilation[0] * (weight.size(2) - 1), columns = dilation[1] * (weight.size(3) - 1);
  const bool even = rows % 2 == 0 && columns % 2 == 0;
  const Tensor wide = even ? x : pad(x, {0, columns % 2, 0, rows % 2});  // the larger half is behind
  return conv2d(wide, weight, bias, {1, 1}, {rows / 2, columns / 2}, dilation, groups);
}
Tensor conv1d_same(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t dilation,
                   int64_t groups) {
  if (x.defined() && x.dim() == 2)
    return squeeze(conv1d_same(unsqueeze(x, 0), weight, bias, dilation, groups), 0);
  require_rank("conv1d", "input", x, 3, "[N, C, L] or [C, L]");
  require_rank("conv1d", "weight", weight, 3, "[O, C / groups, k]");
  return squeeze(conv2d_same(unsqueeze(x, 2), unsqueeze(weight, 2), bias, {1, dilation}, groups), 2);
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Pair stride, Pair padding,
                        Pair output_padding, int64_t groups, Pair dilation) {
  if (const auto y = under_autocast("conv_transpose2d", {&x, &weight, &bias}, [&](const auto& in) {
        return conv_transpose2d(in[0], in[1], in[2], stride, padding, output_padding, groups, dilation);
      }))
    return *y;
  constexpr const char* kName = "conv_transpose2d";
  if (x.defined() && x.dim() == 3)
    return squeeze(
        conv_transpose2d(unsqueeze(x, 0), weight, bias, stride, padding, output_padding, groups, dilation),
        0);
  require_rank(kName, "input", x, 4, "[N, C, H, W] or [C, H, W]");
  require_rank(kName, "weight", weight, 4, "[C, O / groups, kh, kw]");
  for (const Tensor* t : {&weight, &bias})
    if (t->defined() && t->dtype() != x.dtype())
      refuse_form(kName, fmt::format("inputs differ in dtype: {} and {}; use .to() on one of them",
                                     x.summary(), t->summary()));
  require_at_least(kName, "stride", stride, 1);
  require_at_least(kName, "padding", padding, 0);
  require_at_least(kName, "output_padding", output_padding, 0);
  require_at_least(kName, "dilation", dilation, 1);
  Lengths image;
  Pair extra{};  // rows and columns of zeros behind the input, where output_padding reaches beyond the stride
  for (size_t d = 0; d < 2; ++d) {
    if (output_padding[d] >= std::max(stride[d], dilation[d]))
      refuse_form(kName, fmt::format("output_padding {} must be below stride {} or dilation {}",
                                     output_padding[d], stride[d], dilation[d]));
    const int i = static_cast<int>(d) + 2;
    const int64_t size = (x.size(i) - 1) * stride[d] - 2 * padding[d] + dilation[d] * (weight.size(i) - 1) +
                         output_padding[d] + 1;
    if (size < 1)
      refuse_form(kName, fmt::format("the result has size {} in dimension {}: padding {} is too large", size,
                                     i, padding[d]));
    image.push_back(size);
    extra[d] = output_padding[d] / stride[d];
  }
  return rounded_once(x.dtype(), [&](DType t) {
    const Tensor y = apply1(kConv2dInputGrad, {pad(to(x, t), {0, extra[1], 0, extra[0]}), to(weight, t)},
                            {{"stride", pair_list(stride)},
                             {"padding", pair_list(padding)},
                             {"dilation", pair_list(dilation)},
                             {"groups", groups},
                             {"input", image}});
    return with_bias(kName, y, bias.defined() ? to(bias, t) : bias);
  });
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t stride,
                        int64_t padding, int64_t output_padding, int64_t groups, int64_t dilation) {
  if (x.defined() && x.dim() == 2)
    return squeeze(
        conv_transpose1d(unsqueeze(x, 0), weight, bias, stride, padding, output_padding, groups, dilation),
        0);
  require_rank("conv_transpose1d", "input", x, 3, "[N, C, L] or [C, L]");
  require_rank("conv_transpose1d", "weight", weight, 3, "[C, O / groups, k]");
  return squeeze(conv_transpose2d(unsqueeze(x, 2), unsqueeze(weight, 2), bias, {1, stride}, {0, padding},
                                  {0, output_padding}, groups, {1, dilation}),
                 2);
}

Tensor unfold(const Tensor& x, Pair kernel_size, Pair dilation, Pair padding, Pair stride) {
  require_rank("unfold", "input", x, 4, "[N, C, H, W]");
  const Grid g = grid_of("unfold", x.size(2), x.size(3), kernel_size, dilation, padding, stride);
  const bool padded = padding[0] || padding[1];
  const Tensor wide = padded ? pad(x, {padding[1], padding[1], padding[0], padding[0]}) : x;
  Tensors parts;
  for (int64_t i = 0; i < kernel_size[0]; ++i)
    for (int64_t j = 0; j < kernel_size[1]; ++j)
      parts.push_back(slice(slice(wide, 2, g.start(0, i), g.stop(0, i), stride[0]), 3, g.start(1, j),
                            g.stop(1, j), stride[1]));
  return reshape(stack(parts, 2),
                 {x.size(0), x.size(1) * kernel_size[0] * kernel_size[1], g.count[0] * g.count[1]});
}

Tensor fold(const Tensor& x, Pair output_size, Pair kernel_size, Pair dilation, Pair padding, Pair stride) {
  require_rank("fold", "input", x, 3, "[N, C kh kw, windows]");
  require_at_least("fold", "output_size", output_size, 1);
  const Grid g = grid_of("fold", output_size[0], output_size[1], kernel_size, dilation, padding, stride);
  const int64_t window = kernel_size[0] * kernel_size[1], count = g.count[0] * g.count[1];
  if (x.size(1) % window || x.size(2) != count)
    refuse_form("fold", fmt::format("input must be [N, a multiple of {}, {}] for these windows, got {}",
                                    window, count, x.summary()));
  return rounded_once(x.dtype(), [&](DType t) {
    const Tensor parts = reshape(to(x, t), {x.size(0), x.size(1) / window, window, g.count[0], g.count[1]});
    const int64_t rows = output_size[0] + 2 * padding[0], columns = output_size[1] + 2 * padding[1];
    Tensor y;
    for (int64_t i = 0; i < kernel_size[0]; ++i)
      for (int64_t j = 0; j < kernel_size[1]; ++j) {
        const Tensor part = select(parts, 2, i * kernel_size[1] + j);
        const Tensor wide = placed(part, 3, g.start(1, j), g.stop(1, j), stride[1], columns);
        const Tensor all = placed(wide, 2, g.start(0, i), g.stop(0, i), stride[0], rows);
        y = y.defined() ? add(y, all) : all;
      }
    return clone(slice(slice(y, 2, padding[0], padding[0] + output_size[0]), 3, padding[1],
                       padding[1] + output_size[1]));
  });
}

Tensor pixel_shuffle(const Tensor& x, int64_t r) {
  if (!x.defined() || x.dim() < 3 || r < 1 || r > 1 << 20 || x.size(-3) % (r * r))
    refuse_form(
        "pixel_shuffle",
        fmt::format("needs [.., C {} squared, H, W] and a factor of at least 1, got {}", r, x.summary()));
  const Tensor parts = unflatten(x, -3, {x.size(-3) / (r * r), r, r});  // [.., C, r, r, H, W]
  const int64_t rank = parts.dim();
  const Tensor y =
      movedim(parts, IntList{rank - 4, rank - 3}, IntList{rank - 3, rank - 1});  // [.., C, H, r, W, r]
  return clone(flatten(flatten(y, -2, -1), -3, -2));
}

Tensor pixel_unshuffle(const Tensor& x, int64_t r) {
  if (!x.defined() || x.dim() < 3 || r < 1 || x.size(-1) % r || x.size(-2) % r)
    refuse_form("pixel_unshuffle",
                fmt::format("needs [.., C, H, W] with sizes that {} divides, got {}", r, x.summary()));
  const Tensor parts =
      unflatten(unflatten(x, -1, {x.size(-1) / r, r}), -3, {x.size(-2) / r, r});  // C, H, r, W, r
  const int64_t rank = parts.dim();
  const Tensor y = movedim(parts, IntList{rank - 3, rank - 1}, IntList{rank - 4, rank - 3});
  return clone(flatten(y, -5, -3));
}

}  // namespace troupe::ops
