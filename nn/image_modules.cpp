// The table of modules of lines, images and volumes.
#include "nn/conv.h"
#include "nn/conv3d.h"
#include "nn/module_tables.h"

namespace troupe::nn::internal {
namespace {

void add_conv2d(Table& t) {
  const Conv2dOptions conv;
  static_assert(kComplete<Conv2dOptions, 7>);
  t.push_back(maker<Made>(
      "conv2d",
      [](int64_t in, int64_t out, Sides kernel, Sides stride, Sides padding, Sides dilation, int64_t groups,
         bool bias, std::string padding_mode, DType dtype) {
        return made<Conv2d>(in, out, kernel.value,
                            Conv2dOptions{stride, padding, dilation, groups, bias, padding_mode, dtype});
      },
      {{"in"},
       {"out"},
       {"kernel"},
       with("stride", conv.stride),
       with("padding", conv.padding),
       with("dilation", conv.dilation),
       with("groups", conv.groups),
       with("bias", conv.bias),
       with("padding_mode", conv.padding_mode),
       with("dtype", conv.dtype)},
      "Convolution of images: x [N, in, H, W] -> [N, out, H', W']."));
}

void add_lines_and_transposed(Table& t) {
  const Conv1dOptions line;
  static_assert(kComplete<Conv1dOptions, 7>);
  t.push_back(maker<Made>(
      "conv1d",
      [](int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
         int64_t groups, bool bias, std::string padding_mode, DType dtype) {
        return made<Conv1d>(in, out, kernel,
                            Conv1dOptions{stride, padding, dilation, groups, bias, padding_mode, dtype});
      },
      {{"in"},
       {"out"},
       {"kernel"},
       with("stride", line.stride),
       with("padding", line.padding),
       with("dilation", line.dilation),
       with("groups", line.groups),
       with("bias", line.bias),
       with("padding_mode", line.padding_mode),
       with("dtype", line.dtype)},
      "Convolution of lines: x [N, in, L] -> [N, out, L']."));
  const ConvTranspose2dOptions back;
  static_assert(kComplete<ConvTranspose2dOptions, 7>);
  t.push_back(maker<Made>(
      "conv_transpose2d",
      [](int64_t in, int64_t out, Sides kernel, Sides stride, Sides padding, Sides output_padding,
         int64_t groups, bool bias, Sides dilation, DType dtype) {
        return made<ConvTranspose2d>(
            in, out, kernel.value,
            ConvTranspose2dOptions{stride, padding, output_padding, groups, bias, dilation, dtype});
      },
      {{"in"},
       {"out"},
       {"kernel"},
       with("stride", back.stride),
       with("padding", back.padding),
       with("output_padding", back.output_padding),
       with("groups", back.groups),
       with("bias", back.bias),
       with("dilation", back.dilation),
       with("dtype", back.dtype)},
      "Transposed convolution of images: x [N, in, H, W] -> [N, out, H', W']."));
}

void add_transposed_lines(Table& t) {
  const ConvTranspose1dOptions line;
  static_assert(kComplete<ConvTranspose1dOptions, 7>);
  t.push_back(maker<Made>(
      "conv_transpose1d",
      [](int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding, int64_t output_padding,
         int64_t groups, bool bias, int64_t dilation, DType dtype) {
        return made<ConvTranspose1d>(
            in, out, kernel,
            ConvTranspose1dOptions{stride, padding, output_padding, groups, bias, dilation, dtype});
      },
      {{"in"},
       {"out"},
       {"kernel"},
       with("stride", line.stride),
       with("padding", line.padding),
       with("output_padding", line.output_padding),
       with("groups", line.groups),
       with("bias", line.bias),
       with("dilation", line.dilation),
       with("dtype", line.dtype)},
      "Transposed convolution of lines: x [N, in, L] -> [N, out, L']."));
}

void add_volumes(Table& t) {
  const Conv3dOptions conv;
  static_assert(kComplete<Conv3dOptions, 7>);
  t.push_back(maker<Made>(
      "conv3d",
      [](int64_t in, int64_t out, Edges kernel, Edges stride, Edges padding, Edges dilation, int64_t groups,
         bool bias, std::string padding_mode, DType dtype) {
        return made<Conv3d>(in, out, kernel.value,
                            Conv3dOptions{stride, padding, dilation, groups, bias, padding_mode, dtype});
      },
      {{"in"},
       {"out"},
       {"kernel"},
       with("stride", conv.stride),
       with("padding", conv.padding),
       with("dilation", conv.dilation),
       with("groups", conv.groups),
       with("bias", conv.bias),
       with("padding_mode", conv.padding_mode),
       with("dtype", conv.dtype)},
      "Convolution of volumes: x [N, in, D, H, W] -> [N, out, D', H', W']."));
}

void add_windowed_pools(Table& t) {
  const ops::AvgPoolForm mean;
  static_assert(kComplete<ops::MaxPoolForm, 2> && kComplete<ops::AvgPoolForm, 3>);
  const auto step = [](const std::optional<Sides>& stride) {
    return stride ? std::optional(stride->value) : std::nullopt;
  };
  t.push_back(maker<Made>(
      "max_pool2d",
      [step](Sides kernel, std::optional<Sides> stride, Sides padding, Sides dilation, bool ceil_mode) {
        return made<MaxPool2d>(kernel.value, step(stride), padding.value,
                               ops::MaxPoolForm{dilation, ceil_mode});
      },
      {{"kernel"},
       with("stride", std::optional<Sides>()),
       with("padding", Sides{}),
       with("dilation", ops::Pair{1, 1}),
       with("ceil_mode", false)},
      "The largest element of each window; a stride left out is the kernel's size."));
  t.push_back(maker<Made>(
      "avg_pool2d",
      [step](Sides kernel, std::optional<Sides> stride, Sides padding, bool ceil_mode, bool count_include_pad,
             std::optional<int64_t> divisor_override) {
        return made<AvgPool2d>(kernel.value, step(stride), padding.value,
                               ops::AvgPoolForm{ceil_mode, count_include_pad, divisor_override});
      },
      {{"kernel"},
       with("stride", std::optional<Sides>()),
       with("padding", Sides{}),
       with("ceil_mode", mean.ceil_mode),
       with("count_include_pad", mean.count_include_pad),
       with("divisor_override", mean.divisor_override)},
      "The mean of each window; a stride left out is the kernel's size."));
}

void add_pools(Table& t) {
  t.push_back(maker<Made>(
      "adaptive_avg_pool2d", [](Sides output_size) { return made<AdaptiveAvgPool2d>(output_size.value); },
      {{"output_size"}}, "Means of as many windows as it says."));
  t.push_back(maker<Made>(
      "adaptive_max_pool2d", [](Sides output_size) { return made<AdaptiveMaxPool2d>(output_size.value); },
      {{"output_size"}}, "The largest elements of as many windows as it says."));
  t.push_back(maker<Made>(
      "pixel_shuffle", [](int64_t upscale_factor) { return made<PixelShuffle>(upscale_factor); },
      {{"upscale_factor"}}, "Channels as pixels between the others."));
  t.push_back(maker<Made>(
      "identity", [] { return made<Identity>(); }, {}, "x as it is."));
  t.push_back(maker<Made>(
      "flatten", [](int64_t start_dim, int64_t end_dim) { return made<Flatten>(start_dim, end_dim); },
      {with("start_dim", int64_t{1}), with("end_dim", int64_t{-1})},
      "The dimensions from start_dim to end_dim as one: x [N, ..] -> [N, product of the rest]."));
}

}  // namespace

void add_images(Table& t) {
  add_conv2d(t);
  add_lines_and_transposed(t);
  add_transposed_lines(t);
  add_volumes(t);
  add_windowed_pools(t);
  add_pools(t);
}

}  // namespace troupe::nn::internal
