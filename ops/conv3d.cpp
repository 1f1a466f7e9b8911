#include "ops/conv3d.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "ops/arrange.h"
#include "ops/conv.h"
#include "ops/dispatch/cast_call.h"
#include "ops/dispatch/promote.h"
#include "ops/index.h"
#include "ops/reshape_ops.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

[[noreturn]] void refuse_volume(const std::string& text) { throw_invalid("[conv3d] " + text); }

void require_volumes(const char* what, const Tensor& x, const char* shape) {
  if (!x.defined() || x.dim() != 5)
    refuse_volume(fmt::format("{} must be {}, got {}", what, shape, x.summary()));
}
void require_volume_inputs(const Tensor& x, const Tensor& weight) {
  require_volumes("input", x, "[N, C, D, H, W] or [C, D, H, W]");
  require_volumes("weight", weight, "[O, C / groups, d, h, w]");
  if (!is_floating(x.dtype()) || weight.dtype() != x.dtype())
    refuse_volume(fmt::format("input and weight must be of one floating dtype, got {} and {}; use .to()",
                              x.summary(), weight.summary()));
}
void require_steps(const char* what, const Triple& values, int64_t least) {
  for (const int64_t v : values)
    if (v < least || v >= int64_t{1} << 31)
      refuse_volume(fmt::format("{} must be at least {}, got {}", what, least, v));
}

Tensor with_zeros_around(const Tensor& x, const Triple& before, const Triple& behind) {
  std::vector<int64_t> widths;
  for (const size_t d : {2, 1, 0}) widths.insert(widths.end(), {before[d], behind[d]});
  return before == Triple{} && behind == Triple{} ? x : pad(x, widths);
}

// [N D', C kd, H, W]: the slices along the depth that make each slice of the result, as channels.
Tensor slices_as_channels(const Tensor& x, int64_t kernel, int64_t dilation, int64_t stride, int64_t count) {
  Tensors parts;
  for (int64_t k = 0; k < kernel; ++k) {
    const int64_t from = k * dilation;
    parts.push_back(slice(x, 2, from, from + (count - 1) * stride + 1, stride));
  }
  const Tensor all = permute(stack(parts, 2), {0, 3, 1, 2, 4, 5});  // [N, D', C, kd, H, W]
  return reshape(all, {x.size(0) * count, x.size(1) * kernel, x.size(3), x.size(4)});
}

}  // namespace

Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias, Triple stride, Triple padding,
              Triple dilation, int64_t groups) {
  if (const auto y = under_autocast("conv3d", {&x, &weight, &bias}, [&](const auto& in) {
        return conv3d(in[0], in[1], in[2], stride, padding, dilation, groups);
      }))
    return *y;
  if (x.defined() && x.dim() == 4)
    return squeeze(conv3d(unsqueeze(x, 0), weight, bias, stride, padding, dilation, groups), 0);
  require_volume_inputs(x, weight);
  if (groups < 1 || weight.size(1) * groups != x.size(1) || weight.size(0) % groups)
    refuse_volume(fmt::format("weight is for {} channels, and input has {}: weight {}, input {}, groups {}",
                              weight.size(1) * groups, x.size(1), weight.summary(), x.summary(), groups));
  if (bias.defined() && (bias.shape() != Shape{weight.size(0)} || bias.dtype() != x.dtype()))
    refuse_volume(
        fmt::format("bias must be {} [{}], got {}", name(x.dtype()), weight.size(0), bias.summary()));
  require_steps("stride", stride, 1);
  require_steps("padding", padding, 0);
  require_steps("dilation", dilation, 1);
  const int64_t kernel = weight.size(2), span = dilation[0] * (kernel - 1) + 1;
  const int64_t depth = x.size(2) + 2 * padding[0];
  if (kernel < 1 || depth < span)
    refuse_volume(fmt::format("a window of depth {} does not fit into depth {} with padding {}", span,
                              x.size(2), padding[0]));
  const int64_t count = (depth - span) / stride[0] + 1;
  const std::vector<int64_t> images{weight.size(0), weight.size(1) * kernel, weight.size(3), weight.size(4)};
  return rounded_once(x.dtype(), [&](DType t) {  // so that the gradients of a slice are added in float32, too
    const Tensor deep = with_zeros_around(to(x, t), {padding[0], 0, 0}, {padding[0], 0, 0});
    const Tensor y =
        conv2d(slices_as_channels(deep, kernel, dilation[0], stride[0], count),
               reshape(to(weight, t), images), bias.defined() ? to(bias, t) : bias, {stride[1], stride[2]},
               {padding[1], padding[2]}, {dilation[1], dilation[2]}, groups);
    return clone(movedim(reshape(y, {x.size(0), count, y.size(1), y.size(2), y.size(3)}), 1, 2));
  });
}

Tensor conv3d_same(const Tensor& x, const Tensor& weight, const Tensor& bias, Triple dilation,
                   int64_t groups) {
  if (x.defined() && x.dim() == 4)
    return squeeze(conv3d_same(unsqueeze(x, 0), weight, bias, dilation, groups), 0);
  require_volume_inputs(x, weight);
  require_steps("dilation", dilation, 1);
  Triple half{}, more{};  // the larger half is behind
  for (size_t d = 0; d < 3; ++d) {
    const int64_t all = dilation[d] * (weight.size(static_cast<int64_t>(d) + 2) - 1);
    half[d] = all / 2;
    more[d] = all % 2;
  }
  return conv3d(with_zeros_around(x, {}, more), weight, bias, {1, 1, 1}, half, dilation, groups);
}

}  // namespace troupe::ops
