// Windows that slide over images: what convolutions and pools share.
#pragma once
#include <array>
#include <concepts>

#include "ops/dispatch/op.h"

namespace troupe::ops {

/// A value for the height and one for the width; one number is both.
struct Pair : std::array<int64_t, 2> {
  Pair() : array{} {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Pair(T side)
      : Pair(static_cast<int64_t>(side), static_cast<int64_t>(side)) {}
  Pair(int64_t height, int64_t width) : array{height, width} {}
};

/// How a window of kernel[0] x kernel[1] elements slides.
struct Window {
  Pair kernel{}, stride{1, 1}, padding{0, 0}, dilation{1, 1};
};

/// The attribute `name`, one integer or two, as a pair. `invalid` for another count, or a value outside
/// [least, 2^31).
Pair pair_attr(const Call& c, const char* name, int64_t least);
/// stride, padding and, where the operator has it, dilation of a call. An empty stride means the kernel's
/// size.
Window window_of(const Call& c, const Pair& kernel);
/// The window of a pool.
Window pool_window(const Call& c);
/// Number of places of the window in an image [.., H, W], per dimension. `invalid` if the window is larger
/// than the padded image.
Pair places(const Call& c, const Shape& image, const Window& window);
/// `invalid` unless x is floating, [N, C, H, W]; halves are computed in float32.
void require_images(const Call& c, const Tensor& x, const char* what);

/// Sizes of a convolution of x [n, channels, in] with weight [outputs, channels / groups, kernel] to
/// [n, outputs, out].
struct Convolution {
  int64_t n = 0, channels = 0, outputs = 0, groups = 1;
  Pair in{}, out{};
  Window window;

  int64_t in_plane() const { return in[0] * in[1]; }
  int64_t out_plane() const { return out[0] * out[1]; }
  /// Weights of one output channel.
  int64_t depth() const { return groups ? channels / groups * window.kernel[0] * window.kernel[1] : 0; }
};
/// Reads the attributes of conv2d and of its gradients; `invalid` where shapes and groups do not fit.
Convolution convolution_of(const Call& c, const Shape& x, const Shape& weight);
/// The same from the inputs of conv2d, conv2d_input_grad (g, weight) and conv2d_weight_grad (x, g).
Convolution conv2d_sizes(const Call& c);
Convolution conv2d_input_grad_sizes(const Call& c);
Convolution conv2d_weight_grad_sizes(const Call& c);

}  // namespace troupe::ops
