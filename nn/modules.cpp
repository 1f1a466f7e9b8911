// The table of modules: names, parameters, defaults.

#include <vector>

#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/conv.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/make.h"
#include "nn/norm.h"
#include "nn/norm_layer.h"
#include "nn/rnn.h"
#include "nn/sequential.h"
#include "nn/transformer.h"

namespace troupe {
namespace {

/// A height and a width; one number is both.
struct Sides {
  ops::Pair value{};
  operator const ops::Pair&() const { return value; }
};

}  // namespace

template <>
struct Codec<Sides> {
  static std::string name() { return "int64 or list of 2"; }
  static Value to(const Sides& x) {
    if (x.value[0] == x.value[1]) return x.value[0];
    return ValueList{x.value[0], x.value[1]};
  }
  static Sides from(Value v) {
    if (const auto* side = v.get_if<int64_t>()) return {{*side, *side}};
    const auto* list = v.get_if<ValueList>();
    if (!list || list->size() != 2) internal::mismatch(&name, v);
    return {{Codec<int64_t>::from((*list)[0]), Codec<int64_t>::from((*list)[1])}};
  }
};

namespace nn {
namespace {

using Made = std::shared_ptr<Layer>;
using Table = std::vector<Maker<Made>>;

// Defaults are those of the module's options or of its constructor.
using internal::with;
Parameter with(const char* name, const ops::Pair& standard) { return with(name, Sides{standard}); }

template <class Module, class... A>
Made made(const A&... arguments) {
  return std::make_shared<Module>(arguments...);
}

/// Whether the options of a module are these and no others: a new one has to go into the table below.
template <class Options, int fields>
constexpr bool kComplete = internal::field_count<Options>() == fields;

// Lambdas name the types of the parameters.
void add_activations(Table& t) {
  t.push_back(maker<Made>(
      "relu", [] { return made<ReLU>(); }, {}, "The larger of each element and 0."));
  t.push_back(maker<Made>(
      "tanh", [] { return made<Tanh>(); }, {}, "The hyperbolic tangent of each element."));
  t.push_back(maker<Made>(
      "sigmoid", [] { return made<Sigmoid>(); }, {}, "1 / (1 + exp(-x)) of each element."));
  t.push_back(maker<Made>(
      "gelu", [] { return made<GELU>(); }, {},
      "x times the normal distribution function of x, the exact one."));
  t.push_back(maker<Made>(
      "silu", [] { return made<SiLU>(); }, {}, "x sigmoid(x) of each element."));
  t.push_back(maker<Made>(
      "mish", [] { return made<Mish>(); }, {}, "x tanh(softplus(x)) of each element."));
  t.push_back(maker<Made>(
      "hardswish", [] { return made<Hardswish>(); }, {}, "x relu6(x + 3) / 6 of each element."));
  t.push_back(maker<Made>(
      "hardsigmoid", [] { return made<Hardsigmoid>(); }, {}, "relu6(x + 3) / 6 of each element."));
  t.push_back(maker<Made>(
      "relu6", [] { return made<ReLU6>(); }, {}, "Each element, limited to [0, 6]."));
  t.push_back(maker<Made>(
      "selu", [] { return made<SELU>(); }, {}, "1.0507 times elu of alpha 1.6733."));
  t.push_back(maker<Made>(
      "log_sigmoid", [] { return made<LogSigmoid>(); }, {}, "log(sigmoid(x)) of each element."));
  t.push_back(maker<Made>(
      "softsign", [] { return made<Softsign>(); }, {}, "x / (1 + |x|) of each element."));
  t.push_back(maker<Made>(
      "tanhshrink", [] { return made<Tanhshrink>(); }, {}, "x - tanh(x) of each element."));
}

void add_activations_with_options(Table& t) {
  t.push_back(maker<Made>(
      "leaky_relu", [](double negative_slope) { return made<LeakyReLU>(negative_slope); },
      {with("negative_slope", 0.01)}, "x where it is above 0, else negative_slope x."));
  t.push_back(maker<Made>(
      "elu", [](double alpha) { return made<ELU>(alpha); }, {with("alpha", 1.0)},
      "x where it is above 0, else alpha (exp(x) - 1)."));
  t.push_back(maker<Made>(
      "celu", [](double alpha) { return made<CELU>(alpha); }, {with("alpha", 1.0)},
      "x where it is above 0, else alpha (exp(x / alpha) - 1)."));
  t.push_back(maker<Made>(
      "hardtanh", [](double min_val, double max_val) { return made<Hardtanh>(min_val, max_val); },
      {with("min_val", -1.0), with("max_val", 1.0)}, "Each element, limited to [min_val, max_val]."));
  t.push_back(maker<Made>(
      "softplus", [](double beta, double threshold) { return made<Softplus>(beta, threshold); },
      {with("beta", 1.0), with("threshold", 20.0)}, "log(1 + exp(beta x)) / beta of each element."));
  t.push_back(maker<Made>(
      "softshrink", [](double lambd) { return made<Softshrink>(lambd); }, {with("lambd", 0.5)},
      "Each element, moved towards 0 by lambd."));
  t.push_back(maker<Made>(
      "hardshrink", [](double lambd) { return made<Hardshrink>(lambd); }, {with("lambd", 0.5)},
      "0 in [-lambd, lambd], and the elements elsewhere."));
  t.push_back(maker<Made>(
      "threshold", [](double threshold, double value) { return made<Threshold>(threshold, value); },
      {{"threshold"}, {"value"}}, "The elements above the threshold, and value in the place of others."));
  t.push_back(maker<Made>(
      "glu", [](int64_t dim) { return made<GLU>(dim); }, {with("dim", int64_t{-1})},
      "The first half along dim, times the sigmoid of the second one."));
  t.push_back(maker<Made>(
      "softmax", [](int64_t dim) { return made<Softmax>(dim); }, {{"dim"}},
      "exp(x) divided by its sum along dim."));
  t.push_back(maker<Made>(
      "log_softmax", [](int64_t dim) { return made<LogSoftmax>(dim); }, {{"dim"}},
      "The logarithm of softmax along dim."));
  t.push_back(maker<Made>(
      "softmin", [](int64_t dim) { return made<Softmin>(dim); }, {{"dim"}},
      "softmax of the negative elements along dim."));
  t.push_back(maker<Made>(
      "prelu",
      [](int64_t num_parameters, double init, DType dtype) {
        return made<PReLU>(num_parameters, init, dtype);
      },
      {with("num_parameters", int64_t{1}), with("init", 0.25), with("dtype", float32)},
      "x where it is above 0, else weight x; one weight, or one for each channel."));
  t.push_back(maker<Made>(
      "dropout", [](double p) { return made<Dropout>(p); }, {with("p", 0.5)},
      "Zeros with probability p while training, and the rest divided by 1 - p."));
}

void add_images(Table& t) {
  const Conv2dOptions conv;
  static_assert(kComplete<Conv2dOptions, 6>);
  t.push_back(maker<Made>(
      "conv2d",
      [](int64_t in, int64_t out, Sides kernel, Sides stride, Sides padding, Sides dilation, int64_t groups,
         bool bias, DType dtype) {
        return made<Conv2d>(in, out, kernel.value,
                            Conv2dOptions{stride, padding, dilation, groups, bias, dtype});
      },
      {{"in"},
       {"out"},
       {"kernel"},
       with("stride", conv.stride),
       with("padding", conv.padding),
       with("dilation", conv.dilation),
       with("groups", conv.groups),
       with("bias", conv.bias),
       with("dtype", conv.dtype)},
      "Convolution of images: x [N, in, H, W] -> [N, out, H', W']."));
}

void add_lines_and_transposed(Table& t) {
  const Conv1dOptions line;
  static_assert(kComplete<Conv1dOptions, 6>);
  t.push_back(maker<Made>(
      "conv1d",
      [](int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
         int64_t groups, bool bias, DType dtype) {
        return made<Conv1d>(in, out, kernel, Conv1dOptions{stride, padding, dilation, groups, bias, dtype});
      },
      {{"in"},
       {"out"},
       {"kernel"},
       with("stride", line.stride),
       with("padding", line.padding),
       with("dilation", line.dilation),
       with("groups", line.groups),
       with("bias", line.bias),
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
  const auto pool = []<class Pool>(Pool*) {
    return [](Sides kernel, std::optional<Sides> stride, Sides padding) {
      std::optional<ops::Pair> step;
      if (stride) step = stride->value;
      return made<Pool>(kernel.value, step, padding.value);
    };
  };
  const std::vector<Parameter> window{
      {"kernel"}, with("stride", std::optional<Sides>()), with("padding", Sides{})};
  t.push_back(maker<Made>("max_pool2d", pool(static_cast<MaxPool2d*>(nullptr)), window,
                          "The largest element of each window; a stride left out is the kernel's size."));
  t.push_back(maker<Made>("avg_pool2d", pool(static_cast<AvgPool2d*>(nullptr)), window,
                          "The mean of each window; a stride left out is the kernel's size."));
  t.push_back(maker<Made>(
      "flatten", [] { return made<Flatten>(); }, {}, "x [N, ..] -> [N, product of the rest]."));
}

void add_tables(Table& t) {
  t.push_back(maker<Made>(
      "embedding",
      [](int64_t count, int64_t width, std::optional<int64_t> padding_idx, DType dtype) {
        return made<Embedding>(count, width, dtype, padding_idx);
      },
      {{"count"}, {"width"}, with("padding_idx", std::optional<int64_t>()), with("dtype", float32)},
      "Rows of a table [count, width] by their numbers, which are int64."));
  t.push_back(maker<Made>(
      "embedding_bag",
      [](int64_t count, int64_t width, std::string mode, DType dtype) {
        return made<EmbeddingBag>(count, width, mode, dtype);
      },
      {{"count"}, {"width"}, with("mode", std::string("mean")), with("dtype", float32)},
      "Sums or means (mode \"sum\" or \"mean\") of the rows that each row of ids names."));
}

void add_norms(Table& t) {
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
  static_assert(kComplete<GroupNormOptions, 3>);
  t.push_back(maker<Made>(
      "group_norm",
      [](int64_t groups, int64_t channels, double eps, bool affine, DType dtype) {
        return made<GroupNorm>(groups, channels, GroupNormOptions{eps, affine, dtype});
      },
      {{"groups"},
       {"channels"},
       with("eps", group.eps),
       with("affine", group.affine),
       with("dtype", group.dtype)},
      "Normalizes x [N, channels, ..] over each group of channels."));
}

void add_batch_norms(Table& t) {
  const BatchNorm2dOptions batch;
  static_assert(kComplete<BatchNorm2dOptions, 5>);
  const auto batches = []<class Norm>(Norm*) {
    return [](int64_t channels, double eps, std::optional<double> momentum, bool affine,
              bool track_running_stats, DType dtype) {
      return made<Norm>(channels, BatchNorm2dOptions{eps, momentum, affine, track_running_stats, dtype});
    };
  };
  const std::vector<Parameter> options{{"channels"},
                                       with("eps", batch.eps),
                                       with("momentum", batch.momentum),
                                       with("affine", batch.affine),
                                       with("track_running_stats", batch.track_running_stats),
                                       with("dtype", batch.dtype)};
  t.push_back(maker<Made>(
      "batch_norm2d", batches(static_cast<BatchNorm2d*>(nullptr)), options,
      "Normalizes each channel of x [N, channels, H, W] over the batch, or by running statistics in use."));
  t.push_back(maker<Made>("batch_norm1d", batches(static_cast<BatchNorm1d*>(nullptr)), options,
                          "The same of x [N, channels] or [N, channels, L]."));
  t.push_back(maker<Made>("batch_norm3d", batches(static_cast<BatchNorm3d*>(nullptr)), options,
                          "The same of x [N, channels, D, H, W]."));
}

void add_sequences(Table& t) {
  const MultiheadAttentionOptions attention;
  static_assert(kComplete<MultiheadAttentionOptions, 4>);
  t.push_back(maker<Made>(
      "multihead_attention",
      [](int64_t width, int64_t heads, double dropout, bool bias, bool causal, DType dtype) {
        return made<MultiheadAttention>(width, heads,
                                        MultiheadAttentionOptions{dropout, bias, causal, dtype});
      },
      {{"width"},
       {"heads"},
       with("dropout", attention.dropout),
       with("bias", attention.bias),
       with("causal", attention.causal),
       with("dtype", attention.dtype)},
      "Attention of x [batch, time, width] to itself, in several heads."));
  const TransformerEncoderLayerOptions layer;
  static_assert(kComplete<TransformerEncoderLayerOptions, 8>);
  t.push_back(maker<Made>(
      "transformer_encoder_layer",
      [](int64_t width, int64_t heads, int64_t dim_feedforward, double dropout, std::string activation,
         double layer_norm_eps, bool norm_first, bool bias, bool causal, DType dtype) {
        return made<TransformerEncoderLayer>(
            width, heads,
            TransformerEncoderLayerOptions{dim_feedforward, dropout, std::move(activation), layer_norm_eps,
                                           norm_first, bias, causal, dtype});
      },
      {{"width"},
       {"heads"},
       with("dim_feedforward", layer.dim_feedforward),
       with("dropout", layer.dropout),
       with("activation", layer.activation),
       with("layer_norm_eps", layer.layer_norm_eps),
       with("norm_first", layer.norm_first),
       with("bias", layer.bias),
       with("causal", layer.causal),
       with("dtype", layer.dtype)},
      "Attention and two linear layers, each added to its input: x [batch, time, width]."));
}

void add_recurrent(Table& t) {
  const RecurrentOptions recurrent;
  static_assert(kComplete<RecurrentOptions, 6>);
  const auto cells = []<class Cells>(Cells*) {
    return [](int64_t input, int64_t hidden, int64_t layers, bool bias, bool batch_first, double dropout,
              bool bidirectional, DType dtype) {
      return made<Cells>(input, hidden,
                         RecurrentOptions{layers, bias, batch_first, dropout, bidirectional, dtype});
    };
  };
  const std::vector<Parameter> sizes{{"input"},
                                     {"hidden"},
                                     with("layers", recurrent.layers),
                                     with("bias", recurrent.bias),
                                     with("batch_first", recurrent.batch_first),
                                     with("dropout", recurrent.dropout),
                                     with("bidirectional", recurrent.bidirectional),
                                     with("dtype", recurrent.dtype)};
  t.push_back(maker<Made>("lstm", cells(static_cast<LSTM*>(nullptr)), sizes,
                          "Long short-term memory: x [time, batch, input] -> [time, batch, hidden]."));
  t.push_back(maker<Made>("gru", cells(static_cast<GRU*>(nullptr)), sizes,
                          "Gated recurrent units: x [time, batch, input] -> [time, batch, hidden]."));
  t.push_back(maker<Made>(
      "rnn",
      [](int64_t input, int64_t hidden, int64_t layers, std::string nonlinearity, bool bias, bool batch_first,
         double dropout, bool bidirectional, DType dtype) {
        return made<RNN>(input, hidden,
                         RecurrentOptions{layers, bias, batch_first, dropout, bidirectional, dtype},
                         nonlinearity);
      },
      {{"input"},
       {"hidden"},
       with("layers", recurrent.layers),
       with("nonlinearity", std::string("tanh")),
       with("bias", recurrent.bias),
       with("batch_first", recurrent.batch_first),
       with("dropout", recurrent.dropout),
       with("bidirectional", recurrent.bidirectional),
       with("dtype", recurrent.dtype)},
      "Elman's recurrent network: x [time, batch, input] -> [time, batch, hidden]."));
}

Table make_table() {
  Table t;
  t.push_back(maker<Made>(
      "linear",
      [](int64_t in, int64_t out, bool bias, DType dtype) { return made<Linear>(in, out, bias, dtype); },
      {{"in"}, {"out"}, with("bias", true), with("dtype", float32)},
      "x times a weight plus a bias: x [.., in] -> [.., out]."));
  add_activations(t);
  add_activations_with_options(t);
  add_images(t);
  add_lines_and_transposed(t);
  add_pools(t);
  add_tables(t);
  add_norms(t);
  add_batch_norms(t);
  add_sequences(t);
  add_recurrent(t);
  t.push_back(maker<Made>(
      "sequential", [](ValueList layers) { return make(layers); }, {with("layers", ValueList())},
      "Layers one after the other."));
  return t;
}

}  // namespace

std::span<const Maker<std::shared_ptr<Layer>>> modules() {
  static const Table all = make_table();
  return all;
}

}  // namespace nn
}  // namespace troupe
