#include "nn/rnn.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "nn/init.h"
#include "ops/activation.h"
#include "ops/cpu/gemm/packed_weights.h"
#include "ops/dispatch/cast_call.h"
#include "ops/dropout.h"
#include "ops/index.h"
#include "ops/matmul.h"
#include "ops/rnn.h"
#include "ops/view.h"

namespace troupe::nn {
namespace {

constexpr int64_t kMostLayers = 10000;  // a number from afar must not fill the memory

// Slice i of dimension 0, without that dimension.
Tensor at(const Tensor& x, int64_t i) { return ops::squeeze(ops::slice(x, 0, i, i + 1), 0); }

}  // namespace

Recurrent::Recurrent(const char* name, int64_t gates, int64_t states, int64_t input, int64_t hidden,
                     const Options& o)
    : name_(name),
      states_(states),
      input_(input),
      hidden_(hidden),
      batch_first_(o.batch_first),
      bidirectional_(o.bidirectional),
      dropout_(o.dropout) {
  if (!(dropout_ >= 0 && dropout_ < 1))
    throw_invalid(fmt::format("[{}] dropout must be in [0, 1), got {}", name, dropout_));
  if (input < 1 || hidden < 1 || o.layers < 1)
    throw_invalid(fmt::format("[{}] sizes must be at least 1, got input {}, hidden {}, layers {}", name,
                              input, hidden, o.layers));
  if (o.layers > kMostLayers || hidden > std::numeric_limits<int64_t>::max() / gates)
    throw_invalid(fmt::format("[{}] more than can be made: hidden {}, layers {}; at most {} layers", name,
                              hidden, o.layers, kMostLayers));
  const auto parameter = [&](const Shape& shape) { return empty(shape, o.dtype).requires_grad_(); };
  const int64_t ways = o.bidirectional ? 2 : 1;
  for (int64_t k = 0; k < o.layers * ways; ++k) {
    Cell cell{parameter({gates * hidden, k < ways ? input : ways * hidden}),
              parameter({gates * hidden, hidden}),
              {},
              {}};
    if (o.bias) cell.b_ih = parameter({gates * hidden}), cell.b_hh = parameter({gates * hidden});
    cells.push_back(std::move(cell));
  }
  start();
}

Tensor Recurrent::forward(const Tensor& x) { return run(x, {})[0]; }

Tensors Recurrent::run(const Tensor& x, const Tensors& states) {
  if (!x.defined() || x.dim() != 3 || x.size(2) != input_)
    throw_invalid(fmt::format("[{}] the input is {}, expected [{}, {}]", name_, x.summary(),
                              batch_first_ ? "batch, time" : "time, batch", input_));
  const Tensor steps = batch_first_ ? ops::transpose(x, 0, 1) : x;
  const int64_t time = steps.size(0), layers = static_cast<int64_t>(cells.size());
  if (time < 1) throw_invalid(fmt::format("[{}] needs at least 1 step, got {}", name_, x.summary()));
  const Shape wanted{layers, steps.size(1), hidden_};
  for (const Tensor& s : states)
    if (!s.defined() || s.shape() != wanted)
      throw_invalid(fmt::format("[{}] a state is {}, expected {}", name_, s.summary(), wanted.str()));
  Tensors row;
  for (int64_t t = 0; t < time; ++t) row.push_back(at(steps, t));
  const size_t ways = bidirectional_ ? 2 : 1;
  std::vector<Tensors> last(static_cast<size_t>(states_));
  for (size_t k = 0; k < cells.size(); k += ways) {
    if (k && dropout_ > 0 && training())
      for (Tensor& y : row) y = ops::dropout(y, dropout_);
    Tensors there = row, back = row;
    for (size_t way = 0; way < ways; ++way) {
      const Tensors after = steps_of(k + way, way ? back : there, states, way == 1);
      for (size_t s = 0; s < after.size(); ++s) last[s].push_back(after[s]);
    }
    for (size_t t = 0; t < row.size(); ++t)
      row[t] = bidirectional_ ? ops::cat({there[t], back[t]}, -1) : there[t];
  }
  Tensors out{ops::stack(row, batch_first_ ? 1 : 0)};
  for (const Tensors& of_layers : last) out.push_back(ops::stack(of_layers, 0));
  return out;
}

// The steps of one layer in one direction: each of row becomes its output; the last states.
Tensors Recurrent::steps_of(size_t number, Tensors& row, const Tensors& states, bool back) const {
  ops::PackedWeights packed;
  const ops::PackedWeights::Use use(packed);
  Cell cell = cells[number];
  for (Tensor* b : {&cell.b_ih, &cell.b_hh})  // cells have both
    if (!b->defined()) *b = zeros({cell.w_hh.size(0)}, cell.w_hh.options());
  Tensors state;
  for (int64_t s = 0; s < states_; ++s)
    state.push_back(states.empty() ? zeros({row[0].size(0), hidden_}, row[0].options())
                                   : at(states[static_cast<size_t>(s)], static_cast<int64_t>(number)));
  for (size_t t = 0; t < row.size(); ++t) {
    Tensor& y = row[back ? row.size() - 1 - t : t];
    state = step(cell, y, state);
    y = state[0];
  }
  return state;
}

void Recurrent::members(Members& m) {
  for (size_t k = 0; k < cells.size(); ++k) {
    Cell& c = cells[k];
    const std::string layer =
        bidirectional_ ? fmt::format("l{}{}", k / 2, k % 2 ? "_reverse" : "") : fmt::format("l{}", k);
    m("weight_ih_" + layer, c.w_ih), m("weight_hh_" + layer, c.w_hh);
    m("bias_ih_" + layer, c.b_ih), m("bias_hh_" + layer, c.b_hh);
  }
}

void Recurrent::reset(Generator& generator) {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden_));
  for (const Cell& c : cells)
    for (const Tensor& t : {c.w_ih, c.w_hh, c.b_ih, c.b_hh})
      if (t.defined()) init::uniform_(t, -bound, bound, generator);
}

std::string Recurrent::str() const {
  return fmt::format("{}({}, {}, {} layers{})", Layer::str(), input_, hidden_,
                     cells.size() / (bidirectional_ ? 2 : 1), bidirectional_ ? ", both ways" : "");
}

LSTM::Result LSTM::run(const Tensor& x, const Tensor& h, const Tensor& c) {
  Tensors out = Recurrent::run(x, h.defined() || c.defined() ? Tensors{h, c} : Tensors{});
  return {seen(out[0]), out[1], out[2]};
}

Tensors LSTM::step(const Cell& cell, const Tensor& x, const Tensors& state) const {
  Tensors in{x, state[0], state[1], cell.w_ih, cell.w_hh, cell.b_ih, cell.b_hh};
  if (autocast_mode() != Autocast::off)
    ops::cast_listed("lstm", in);  // PyTorch's cells alone keep their states
  const auto [h, c] = ops::lstm_cell(in[0], in[1], in[2], in[3], in[4], in[5], in[6]);
  return {h, c};
}

GRU::Result GRU::run(const Tensor& x, const Tensor& h) {
  Tensors out = Recurrent::run(x, h.defined() ? Tensors{h} : Tensors{});
  return {seen(out[0]), out[1]};
}

Tensors GRU::step(const Cell& cell, const Tensor& x, const Tensors& state) const {
  return {ops::gru_cell(x, state[0], cell.w_ih, cell.w_hh, cell.b_ih, cell.b_hh)};
}

RNN::RNN(int64_t input, int64_t hidden, const Options& options, const std::string& nonlinearity)
    : Recurrent("rnn", 1, 1, input, hidden, options), relu_(nonlinearity == "relu") {
  if (!relu_ && nonlinearity != "tanh")
    throw_invalid(fmt::format("[rnn] nonlinearity must be \"tanh\" or \"relu\", got \"{}\"", nonlinearity));
}

RNN::Result RNN::run(const Tensor& x, const Tensor& h) {
  Tensors out = Recurrent::run(x, h.defined() ? Tensors{h} : Tensors{});
  return {seen(out[0]), out[1]};
}

Tensors RNN::step(const Cell& cell, const Tensor& x, const Tensors& state) const {
  const Tensor y = ops::linear_add(x, cell.w_ih, cell.b_ih, ops::linear(state[0], cell.w_hh, cell.b_hh));
  return {relu_ ? ops::relu(y) : ops::tanh(y)};
}

}  // namespace troupe::nn
