// Layers of image networks: convolution, pooling, flattening.
#pragma once
#include <optional>

#include "nn/module.h"
#include "ops/dispatch/window.h"
#include "ops/pool_forms.h"

namespace troupe::nn {

struct Conv2dOptions {
  ops::Pair stride{1, 1}, padding{0, 0}, dilation{1, 1};
  int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";  ///< or "reflect", "replicate", "circular"
  DType dtype = float32;
};

/// x [N, in, H, W] -> [N, out, H', W'] (ops::conv2d). Weight and bias start uniform in +-1/sqrt(inputs of an
/// output).
class Conv2d : public Layer {
 public:
  using Options = Conv2dOptions;
  /// Initial values as Linear's. `invalid` if a size is below 1 or groups do not divide in and out.
  Conv2d(int64_t in, int64_t out, ops::Pair kernel, const Options& options = {});

  Tensor forward(const Tensor& x) override;
  void members(Members& m) override { m("weight", weight), m("bias", bias); }
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor weight;  ///< [out, in / groups, kernel height, kernel width]
  Tensor bias;    ///< [out]; undefined without

 private:
  Conv2dOptions options_;
};

struct Conv1dOptions {
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";
  DType dtype = float32;
};

/// Convolution of lines: x [N, in, L] -> [N, out, L'] (ops::conv1d), as Conv2d.
class Conv1d : public Layer {
 public:
  using Options = Conv1dOptions;
  Conv1d(int64_t in, int64_t out, int64_t kernel, const Options& options = {});

  Tensor forward(const Tensor& x) override;
  void members(Members& m) override { m("weight", weight), m("bias", bias); }
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor weight;  ///< [out, in / groups, kernel]
  Tensor bias;    ///< [out]; undefined without

 private:
  Conv1dOptions options_;
};

struct ConvTranspose2dOptions {
  ops::Pair stride{1, 1}, padding{0, 0}, output_padding{0, 0};
  int64_t groups = 1;
  bool bias = true;
  ops::Pair dilation{1, 1};
  DType dtype = float32;
};

/// Transposed convolution: x [N, in, H, W] -> [N, out, H', W'] (ops::conv_transpose2d). Weight and bias start
/// uniform in +-1/sqrt(out / groups times the kernel's size), as in PyTorch.
class ConvTranspose2d : public Layer {
 public:
  using Options = ConvTranspose2dOptions;
  ConvTranspose2d(int64_t in, int64_t out, ops::Pair kernel, const Options& options = {});

  Tensor forward(const Tensor& x) override;
  void members(Members& m) override { m("weight", weight), m("bias", bias); }
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor weight;  ///< [in, out / groups, kernel height, kernel width]
  Tensor bias;    ///< [out]; undefined without

 private:
  ConvTranspose2dOptions options_;
};

struct ConvTranspose1dOptions {
  int64_t stride = 1, padding = 0, output_padding = 0, groups = 1;
  bool bias = true;
  int64_t dilation = 1;
  DType dtype = float32;
};

/// Transposed convolution of lines: x [N, in, L] -> [N, out, L'] (ops::conv_transpose1d), as ConvTranspose2d.
class ConvTranspose1d : public Layer {
 public:
  using Options = ConvTranspose1dOptions;
  ConvTranspose1d(int64_t in, int64_t out, int64_t kernel, const Options& options = {});

  Tensor forward(const Tensor& x) override;
  void members(Members& m) override { m("weight", weight), m("bias", bias); }
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor weight;  ///< [in, out / groups, kernel]
  Tensor bias;    ///< [out]; undefined without

 private:
  ConvTranspose1dOptions options_;
};

/// Of windows: x [N, C, H, W] -> [N, C, H', W']. A stride left out is the window's size.
class Pool2d : public Layer {
 public:
  explicit Pool2d(ops::Pair kernel, std::optional<ops::Pair> stride = {}, ops::Pair padding = {0, 0})
      : kernel_(kernel), padding_(padding), stride_(stride) {}

 protected:
  ops::Pair kernel_, padding_;
  std::optional<ops::Pair> stride_;
};
/// The largest of each window.
class MaxPool2d : public Pool2d {
 public:
  explicit MaxPool2d(ops::Pair kernel, std::optional<ops::Pair> stride = {}, ops::Pair padding = {0, 0},
                     const ops::MaxPoolForm& form = {})
      : Pool2d(kernel, stride, padding), form_(form) {}
  Tensor forward(const Tensor& x) override;

 private:
  ops::MaxPoolForm form_;
};
/// The mean of each window.
class AvgPool2d : public Pool2d {
 public:
  explicit AvgPool2d(ops::Pair kernel, std::optional<ops::Pair> stride = {}, ops::Pair padding = {0, 0},
                     const ops::AvgPoolForm& form = {})
      : Pool2d(kernel, stride, padding), form_(form) {}
  Tensor forward(const Tensor& x) override;

 private:
  ops::AvgPoolForm form_;
};

/// Means (the largest) of as many windows as it says: x [N, C, H, W] -> [N, C, output_size]; -1 keeps a size.
class AdaptiveAvgPool2d : public Layer {
 public:
  explicit AdaptiveAvgPool2d(ops::Pair output_size) : output_size_(output_size) {}
  Tensor forward(const Tensor& x) override;

 private:
  ops::Pair output_size_;
};
class AdaptiveMaxPool2d : public Layer {
 public:
  explicit AdaptiveMaxPool2d(ops::Pair output_size) : output_size_(output_size) {}
  Tensor forward(const Tensor& x) override;

 private:
  ops::Pair output_size_;
};

/// [.., C r r, H, W] -> [.., C, H r, W r].
class PixelShuffle : public Layer {
 public:
  explicit PixelShuffle(int64_t upscale_factor) : factor_(upscale_factor) {}
  Tensor forward(const Tensor& x) override;

 private:
  int64_t factor_;
};

/// Gives x as it is.
class Identity : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return x; }
};

/// The dimensions start_dim to end_dim as one: [N, ..] -> [N, product of the rest].
class Flatten : public Layer {
 public:
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1) : start_dim_(start_dim), end_dim_(end_dim) {}
  Tensor forward(const Tensor& x) override;

 private:
  int64_t start_dim_, end_dim_;
};

}  // namespace troupe::nn
