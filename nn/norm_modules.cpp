// The table of modules that normalize.
#include "nn/instance_norm.h"
#include "nn/module_tables.h"
#include "nn/norm.h"
#include "nn/norm_layer.h"

namespace troupe::nn::internal {
namespace {

void add_row_norms(Table& t) {
  const LayerNormOptions layer;
  static_assert(kComplete<LayerNormOptions, 4>);
  t.push_back(maker<Made>(
      "layer_norm",
      [](Shape shape, double eps, bool elementwise_affine, bool bias, DType dtype) {
        return made<LayerNorm>(shape, LayerNormOptions{eps, elementwise_affine, bias, dtype});
      },
      {{"shape"},
       with("eps", layer.eps),
       with("elementwise_affine", layer.elementwise_affine),
       with("bias", layer.bias),
       with("dtype", layer.dtype)},
      "Normalizes over the last dimensions, which have this shape, or this width."));
  const RMSNormOptions rms;
  static_assert(kComplete<RMSNormOptions, 3>);
  t.push_back(maker<Made>(
      "rms_norm",
      [](Shape shape, std::optional<double> eps, bool elementwise_affine, DType dtype) {
        return made<RMSNorm>(shape, RMSNormOptions{eps, elementwise_affine, dtype});
      },
      {{"shape"},
       with("eps", rms.eps),
       with("elementwise_affine", rms.elementwise_affine),
       with("dtype", rms.dtype)},
      "Divides by the root mean square over the last dimensions, which have this shape, or this width."));
  const GroupNormOptions group;
  static_assert(kComplete<GroupNormOptions, 4>);
  t.push_back(maker<Made>(
      "group_norm",
      [](int64_t groups, int64_t channels, double eps, bool affine, bool bias, DType dtype) {
        return made<GroupNorm>(groups, channels, GroupNormOptions{eps, affine, bias, dtype});
      },
      {{"groups"},
       {"channels"},
       with("eps", group.eps),
       with("affine", group.affine),
       with("bias", group.bias),
       with("dtype", group.dtype)},
      "Normalizes x [N, channels, ..] over each group of channels."));
}

void add_batch_norms(Table& t) {
  const BatchNorm2dOptions batch;
  static_assert(kComplete<BatchNorm2dOptions, 6>);
  const auto batches = []<class Norm>(Norm*) {
    return [](int64_t channels, double eps, std::optional<double> momentum, bool affine,
              bool track_running_stats, bool bias, DType dtype) {
      return made<Norm>(channels,
                        BatchNorm2dOptions{eps, momentum, affine, bias, track_running_stats, dtype});
    };
  };
  const std::vector<Parameter> options{{"channels"},
                                       with("eps", batch.eps),
                                       with("momentum", batch.momentum),
                                       with("affine", batch.affine),
                                       with("track_running_stats", batch.track_running_stats),
                                       with("bias", batch.bias),
                                       with("dtype", batch.dtype)};
  t.push_back(maker<Made>(
      "batch_norm2d", batches(static_cast<BatchNorm2d*>(nullptr)), options,
      "Normalizes each channel of x [N, channels, H, W] over the batch, or by running statistics in use."));
  t.push_back(maker<Made>("batch_norm1d", batches(static_cast<BatchNorm1d*>(nullptr)), options,
                          "The same of x [N, channels] or [N, channels, L]."));
  t.push_back(maker<Made>("batch_norm3d", batches(static_cast<BatchNorm3d*>(nullptr)), options,
                          "The same of x [N, channels, D, H, W]."));
}

void add_instance_norms(Table& t) {
  const InstanceNormOptions o;
  static_assert(kComplete<InstanceNormOptions, 6>);
  const auto instances = []<class Norm>(Norm*) {
    return [](int64_t channels, double eps, std::optional<double> momentum, bool affine,
              bool track_running_stats, bool bias, DType dtype) {
      return made<Norm>(channels,
                        InstanceNormOptions{eps, momentum, affine, bias, track_running_stats, dtype});
    };
  };
  const std::vector<Parameter> options{{"channels"},
                                       with("eps", o.eps),
                                       with("momentum", o.momentum),
                                       with("affine", o.affine),
                                       with("track_running_stats", o.track_running_stats),
                                       with("bias", o.bias),
                                       with("dtype", o.dtype)};
  t.push_back(maker<Made>("instance_norm1d", instances(static_cast<InstanceNorm1d*>(nullptr)), options,
                          "Normalizes each channel of each sample of x [N, channels, L]."));
  t.push_back(maker<Made>("instance_norm2d", instances(static_cast<InstanceNorm2d*>(nullptr)), options,
                          "The same of x [N, channels, H, W]."));
  t.push_back(maker<Made>("instance_norm3d", instances(static_cast<InstanceNorm3d*>(nullptr)), options,
                          "The same of x [N, channels, D, H, W]."));
}

}  // namespace

void add_norms(Table& t) {
  add_row_norms(t);
  add_batch_norms(t);
  add_instance_norms(t);
}

}  // namespace troupe::nn::internal
