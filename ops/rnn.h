// One step of recurrent cells.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

struct LstmState {
  Tensor h, c;
};

/// x [N, in], h and c [N, hidden], w_ih [4 hidden, in], w_hh [4 hidden, hidden], b_ih and b_hh [4 hidden],
/// the gates in the order input, forget, cell, output:
///   c' = sigmoid(f) c + sigmoid(i) tanh(g),  h' = sigmoid(o) tanh(c')     (Hochreiter, Schmidhuber 1997)
LstmState lstm_cell(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& w_ih, const Tensor& w_hh,
                    const Tensor& b_ih, const Tensor& b_hh);

/// x [N, in], h [N, hidden], w_ih [3 hidden, in], w_hh [3 hidden, hidden], b_ih and b_hh [3 hidden], the
/// gates in the order reset, update, new; n = tanh(x's part + sigmoid(r) h's part), as in PyTorch and cuDNN:
///   h' = (1 - sigmoid(z)) n + sigmoid(z) h                                  (Cho et al. 2014)
Tensor gru_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                const Tensor& b_hh);

extern const Op kLstmCell, kGruCell;

}  // namespace troupe::ops
