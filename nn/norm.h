// Normalization of images by channel. Weights start at 1, biases at 0; reset() puts them back.
#pragma once
#include <optional>

#include "nn/module.h"

namespace troupe::nn {

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;  ///< with weight, and bias unless told otherwise
  bool bias = true;
  DType dtype = float32;
};

/// x [N, channels, ..]: over each group of channels and all that follows them (ops::group_norm).
class GroupNorm : public Layer {
 public:
  using Options = GroupNormOptions;
  /// `invalid` unless groups divide channels, all are at least 1, and eps is a finite number of at least 0.
  GroupNorm(int64_t groups, int64_t channels, const Options& options = {});

  Tensor forward(const Tensor& x) override;
  void members(Members& m) override { m("weight", weight), m("bias", bias); }
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor weight, bias;  ///< [channels]; undefined if not affine

 private:
  int64_t groups_, channels_;
  double eps_;
};

struct BatchNorm2dOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  ///< empty: the running statistics are means over all batches
  bool affine = true;                    ///< with weight, and bias unless told otherwise
  bool bias = true;
  bool track_running_stats = true;  ///< without: by the batch in use, too
  DType dtype = float32;
};

/// What a pass while training does with running statistics.
enum class Statistics {
  move,    ///< they move by the batch
  gather,  ///< it is a part of a batch, by which they move in settle()
  leave,   ///< nothing: a pass that was counted already is made again
};

/// A layer whose running statistics move by the batches that it sees, which may come in parts.
class RunningNorm {
 public:
  /// From now on.
  virtual void set_statistics(Statistics what) = 0;
  /// The running statistics move once, by all that was gathered since the last time, as one batch; or, with
  /// keep false, it is forgotten. Passes move them again.
  virtual void settle(bool keep = true) = 0;

 protected:
  ~RunningNorm() = default;
};

/// x [N, channels, H, W]: while training, each channel by its mean and variance in the batch, which also go
/// into the running ones: running += momentum * (batch - running), with the unbiased variance. In use, by the
/// running ones.
class BatchNorm2d : public Layer, public RunningNorm {
 public:
  using Options = BatchNorm2dOptions;
  /// `invalid` as GroupNorm, and unless momentum is in [0, 1].
  explicit BatchNorm2d(int64_t channels, const Options& options = {});

  /// `invalid` while training if there is one element per channel only.
  Tensor forward(const Tensor& x) override;
  void members(Members& m) override;
  /// Also puts back the running statistics.
  void reset(Generator& generator) override;
  std::string str() const override;

  void set_statistics(Statistics what) override { statistics_ = what; }
  /// Its num_batches_tracked counts what was gathered as one.
  void settle(bool keep = true) override;

  Tensor weight, bias;               ///< [channels]; undefined if not affine
  Tensor running_mean, running_var;  ///< [channels], buffers; they start at 0 and 1; undefined if not tracked
  Tensor num_batches_tracked;        ///< int64 [], a buffer: passes while training; likewise

 protected:
  /// Whether it takes inputs of so many dimensions, and what is expected.
  virtual bool takes(int rank) const { return rank == 4; }
  virtual std::string expected() const;
  int64_t channels() const { return channels_; }

 private:
  /// Of parts of a batch: how many values per channel, their mean, and the sum of squared distances from it.
  struct Gathered {
    int64_t count = 0;
    Tensor mean, squares;
  };
  void gather(int64_t count, const Tensor& mean, const Tensor& var);
  void move(const Tensor& mean, const Tensor& var, double by);

  int64_t channels_;
  double eps_;
  std::optional<double> momentum_;
  Statistics statistics_ = Statistics::move;
  Gathered gathered_;
};

/// Does the same for x [N, channels] or [N, channels, L].
class BatchNorm1d : public BatchNorm2d {
 public:
  using BatchNorm2d::BatchNorm2d;
  std::string str() const override;

 protected:
  bool takes(int rank) const override { return rank == 2 || rank == 3; }
  std::string expected() const override;
};

/// Does the same for x [N, channels, D, H, W].
class BatchNorm3d : public BatchNorm2d {
 public:
  using BatchNorm2d::BatchNorm2d;
  std::string str() const override;

 protected:
  bool takes(int rank) const override { return rank == 5; }
  std::string expected() const override;
};

}  // namespace troupe::nn
