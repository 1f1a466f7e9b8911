// The table of modules: names, parameters, defaults.

#include <vector>

#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/make.h"
#include "nn/module_tables.h"
#include "nn/rnn.h"
#include "nn/sequential.h"
#include "nn/transformer.h"

namespace troupe::nn {
namespace {

using namespace internal;

// Lambdas name the types of the parameters.
void add_activations(Table& t) {
  t.push_back(maker<Made>(
      "relu", [] { return made<ReLU>(); }, {}, "The larger of each element and 0."));
  t.push_back(maker<Made>(
      "tanh", [] { return made<Tanh>(); }, {}, "The hyperbolic tangent of each element."));
  t.push_back(maker<Made>(
      "sigmoid", [] { return made<Sigmoid>(); }, {}, "1 / (1 + exp(-x)) of each element."));
  t.push_back(maker<Made>(
      "gelu", [](std::string approximate) { return made<GELU>(approximate); },
      {with("approximate", std::string("none"))},
      "x times the normal distribution function of x, the exact one or approximate \"tanh\"."));
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

void add_tables(Table& t) {
  const EmbeddingBagOptions bag;
  static_assert(kComplete<EmbeddingBagOptions, 4>);
  t.push_back(maker<Made>(
      "embedding",
      [](int64_t count, int64_t width, std::optional<int64_t> padding_idx, DType dtype) {
        return made<Embedding>(count, width, dtype, padding_idx);
      },
      {{"count"}, {"width"}, with("padding_idx", std::optional<int64_t>()), with("dtype", float32)},
      "Rows of a table [count, width] by their numbers, which are int64."));
  t.push_back(maker<Made>(
      "embedding_bag",
      [](int64_t count, int64_t width, std::string mode, bool include_last_offset,
         std::optional<int64_t> padding_idx, DType dtype) {
        return made<EmbeddingBag>(count, width,
                                  EmbeddingBagOptions{mode, include_last_offset, padding_idx, dtype});
      },
      {{"count"},
       {"width"},
       with("mode", bag.mode),
       with("include_last_offset", bag.include_last_offset),
       with("padding_idx", bag.padding_idx),
       with("dtype", bag.dtype)},
      "Sums, means or the largest (mode \"sum\", \"mean\", \"max\") of the rows that each row of ids "
      "names."));
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
  add_tables(t);
  add_norms(t);
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

}  // namespace troupe::nn
