// Normalization of each channel of each sample. Weights start at 1, biases at 0; reset() puts them back.
#pragma once
#include <optional>

#include "nn/norm.h"

namespace troupe::nn {

struct InstanceNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  ///< empty: the running statistics stay
  bool affine = false;                   ///< with weight, and bias unless told otherwise
  bool bias = true;
  bool track_running_stats = false;  ///< in use, channels are normalized by running statistics
  DType dtype = float32;
};

/// Input x [N, channels, H, W] or [channels, H, W] (ops::instance_norm).
class InstanceNorm2d : public Layer, public RunningNorm {
 public:
  using Options = InstanceNormOptions;
  /// `invalid` as BatchNorm2d.
  explicit InstanceNorm2d(int64_t channels, const Options& options = {});

  Tensor forward(const Tensor& x) override;
  void members(Members& m) override;
  void reset(Generator& generator) override;
  std::string str() const override;
  void set_statistics(Statistics what) override { statistics_ = what; }
  void settle(bool keep = true) override;

  Tensor weight, bias;               ///< [channels]; undefined if not affine
  Tensor running_mean, running_var;  ///< [channels], buffers; they start at 0 and 1; undefined if not tracked
  Tensor num_batches_tracked;        ///< int64 [], a buffer that stays 0, as PyTorch's; likewise

 protected:
  /// How many dimensions a channel of a sample has.
  virtual int inner() const { return 2; }
  int64_t channels() const { return channels_; }

 private:
  /// Parts of a batch: how many samples, and the sums of their statistics.
  struct Gathered {
    int64_t samples = 0;
    Tensor mean, var;
  };
  Tensor normalized(const Tensor& x);
  Tensor gather(const Tensor& x);
  Tensor by(const Tensor& x, const Tensor& mean, const Tensor& var, bool of_input, double momentum) const;

  int64_t channels_;
  double eps_, momentum_;
  Statistics statistics_ = Statistics::move;
  Gathered gathered_;
};

/// Does the same for x [N, channels, L] or [channels, L].
class InstanceNorm1d : public InstanceNorm2d {
 public:
  using InstanceNorm2d::InstanceNorm2d;
  std::string str() const override;

 protected:
  int inner() const override { return 1; }
};

/// Does the same for x [N, channels, D, H, W] or [channels, D, H, W].
class InstanceNorm3d : public InstanceNorm2d {
 public:
  using InstanceNorm2d::InstanceNorm2d;
  std::string str() const override;

 protected:
  int inner() const override { return 3; }
};

}  // namespace troupe::nn
