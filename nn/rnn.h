// Recurrent layers: LSTM and GRU.
#pragma once
#include <vector>

#include "nn/module.h"

namespace troupe::nn {

struct RecurrentOptions {
  int64_t layers = 1;
  bool bias = true;
  bool batch_first = false;    ///< input and output [batch, time, ..] in place of [time, batch, ..]
  double dropout = 0;          ///< of what each layer but the last gives, while training
  bool bidirectional = false;  ///< also from the last step to the first, side by side in the output
  DType dtype = float32;
};

/// What LSTM and GRU share: layers of cells, stepped over time. Parameters of layer k are named weight_ih_lk
/// [gates * hidden, input or hidden], weight_hh_lk [gates * hidden, hidden], bias_ih_lk and bias_hh_lk
/// [gates * hidden]; all start uniform in +-1/sqrt(hidden). Those of the way back end with _reverse; where
/// shapes say hidden and layers, outputs have then 2 hidden, and states 2 layers: there, back, there, ..
class Recurrent : public Layer {
 public:
  using Options = RecurrentOptions;
  struct Cell {
    Tensor w_ih, w_hh, b_ih, b_hh;
  };

  /// The output alone, from a state of zeros.
  Tensor forward(const Tensor& x) override;
  void members(Members& m) override;
  void reset(Generator& generator) override;
  std::string str() const override;

  std::vector<Cell> cells;  ///< of each layer, there and back

 protected:
  /// Initial values as Linear's. `invalid` if a size is below 1.
  Recurrent(const char* name, int64_t gates, int64_t states, int64_t input, int64_t hidden,
            const Options& options);
  /// One step of one layer: x [batch, input], and the states [batch, hidden] before -> the states after, the
  /// output first.
  virtual Tensors step(const Cell& cell, const Tensor& x, const Tensors& state) const = 0;
  /// x and states [layers, batch, hidden] (empty: zeros) -> output [time, batch, hidden] (or batch first),
  /// then the last states, shaped as the first ones.
  Tensors run(const Tensor& x, const Tensors& states);

 private:
  Tensors steps_of(size_t cell, Tensors& row, const Tensors& states, bool back) const;

  const char* name_;
  int64_t states_, input_, hidden_;
  bool batch_first_, bidirectional_;
  double dropout_;
};

/// x [time, batch, input] -> hidden states of the last layer [time, batch, hidden] (Hochreiter, Schmidhuber
/// 1997; gates in the order i, f, g, o).
class LSTM : public Recurrent {
 public:
  struct Result {
    Tensor output;  ///< [time, batch, hidden]
    Tensor h, c;    ///< after the last step, [layers, batch, hidden]
  };
  LSTM(int64_t input, int64_t hidden, const Options& options = {})
      : Recurrent("lstm", 4, 2, input, hidden, options) {}

  /// From the states h and c [layers, batch, hidden]; both undefined: zeros. `invalid` on other shapes.
  Result run(const Tensor& x, const Tensor& h = {}, const Tensor& c = {});

 private:
  Tensors step(const Cell& cell, const Tensor& x, const Tensors& state) const override;
};

/// x [time, batch, input] -> hidden states of the last layer [time, batch, hidden] (Cho et al. 2014; gates in
/// the order r, z, n).
class GRU : public Recurrent {
 public:
  struct Result {
    Tensor output;  ///< [time, batch, hidden]
    Tensor h;       ///< after the last step, [layers, batch, hidden]
  };
  GRU(int64_t input, int64_t hidden, const Options& options = {})
      : Recurrent("gru", 3, 1, input, hidden, options) {}

  /// From the state h [layers, batch, hidden]; undefined: zeros. `invalid` on other shapes.
  Result run(const Tensor& x, const Tensor& h = {});

 private:
  Tensors step(const Cell& cell, const Tensor& x, const Tensors& state) const override;
};

/// Elman's network: x [time, batch, input] -> tanh (or relu) of weight_ih x + bias_ih + weight_hh h +
/// bias_hh, step by step (Elman 1990).
class RNN : public Recurrent {
 public:
  struct Result {
    Tensor output;  ///< [time, batch, hidden]
    Tensor h;       ///< after the last step, [layers, batch, hidden]
  };
  /// `invalid` on another nonlinearity than "tanh" and "relu".
  RNN(int64_t input, int64_t hidden, const Options& options = {}, const std::string& nonlinearity = "tanh");

  /// From the state h [layers, batch, hidden]; undefined: zeros. `invalid` on other shapes.
  Result run(const Tensor& x, const Tensor& h = {});

 private:
  Tensors step(const Cell& cell, const Tensor& x, const Tensors& state) const override;
  bool relu_;
};

}  // namespace troupe::nn
