#include "ops/rnn.h"

#include <fmt/format.h>

#include "core/graph/autocast.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"
#include "ops/matmul.h"

namespace troupe::ops {
namespace {

// The linear parts of a cell of `gates` gates, cut into the gates: from x and from h.
struct Gates {
  Tensors from_x, from_h;
};

void expect(const Call& c, const char* name, const Tensor& t, const Shape& shape) {
  if (t.shape() != shape)
    reject(c, fmt::format("{} must be {} for input {} and h {}, got {}", name, shape.str(),
                          c.in[0].shape().str(), c.in[1].shape().str(), t.shape().str()));
}

// `weights`: number of the first weight among the inputs.
Gates gates_of(const Call& c, int64_t gates, size_t weights) {
  const Tensor &x = c.in[0], &h = c.in[1];
  require_floating(c, x);
  if (autocast_mode() == Autocast::off) require_same_dtype(c);
  if (x.dim() != 2 || h.dim() != 2)
    reject(c, fmt::format("needs input [N, in] and h [N, hidden], got {} and {}", x.shape().str(),
                          h.shape().str()));
  const int64_t n = x.shape()[0], hidden = h.shape()[1];
  expect(c, "h", h, {n, hidden});
  if (weights == 3) expect(c, "c", c.in[2], {n, hidden});
  const Tensor &w_ih = c.in[weights], &w_hh = c.in[weights + 1], &b_ih = c.in[weights + 2],
               &b_hh = c.in[weights + 3];
  expect(c, "w_ih", w_ih, {gates * hidden, x.shape()[1]});
  expect(c, "w_hh", w_hh, {gates * hidden, hidden});
  expect(c, "b_ih", b_ih, {gates * hidden});
  expect(c, "b_hh", b_hh, {gates * hidden});
  const std::vector<int64_t> sizes(static_cast<size_t>(gates), hidden);
  return {split(linear(x, w_ih, b_ih), sizes, 1), split(linear(h, w_hh, b_hh), sizes, 1)};
}

Tensors lstm(const Call& c) {
  const auto [x, h] = gates_of(c, 4, 3);
  const auto gate = [&](size_t i) { return add(x[i], h[i]); };
  const Tensor cell = add(mul(sigmoid(gate(1)), c.in[2]), mul(sigmoid(gate(0)), tanh(gate(2))));
  return {mul(sigmoid(gate(3)), tanh(cell)), cell};
}

Tensors gru(const Call& c) {
  const auto [x, h] = gates_of(c, 3, 2);
  const Tensor reset = sigmoid(add(x[0], h[0])), update = sigmoid(add(x[1], h[1]));
  const Tensor fresh = tanh(add(x[2], mul(reset, h[2])));
  return {add(fresh, mul(update, sub(c.in[1], fresh)))};
}

std::vector<Sample> cells(int64_t gates, bool cell) {
  constexpr int64_t kIn = 3, kHidden = 2;
  std::vector<Sample> all;
  for (const int64_t n : {2, 0}) {
    std::vector<Shape> shapes{{n, kIn}, {n, kHidden}};
    if (cell) shapes.push_back({n, kHidden});
    for (const Shape& s : {Shape{gates * kHidden, kIn}, Shape{gates * kHidden, kHidden},
                           Shape{gates * kHidden}, Shape{gates * kHidden}})
      shapes.push_back(s);
    Sample s;
    for (const Shape& shape : shapes) s.inputs.push_back(sample(shape, -1, 1, s.inputs.size()));
    all.push_back(std::move(s));
  }
  return all;
}

}  // namespace

const Op kLstmCell{.name = "lstm_cell",
                   .inputs = "input hx cx w_ih w_hh b_ih b_hh",
                   .text = "A step of long short-term memory: the states h and c after it.",
                   .compose = lstm,
                   .samples = [] { return cells(4, true); }};

const Op kGruCell{.name = "gru_cell",
                  .inputs = "input hx w_ih w_hh b_ih b_hh",
                  .text = "A step of a gated recurrent unit: the state h after it.",
                  .compose = gru,
                  .samples = [] { return cells(3, false); }};

LstmState lstm_cell(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& w_ih, const Tensor& w_hh,
                    const Tensor& b_ih, const Tensor& b_hh) {
  Tensors both = ops::apply(kLstmCell, std::array{x, h, c, w_ih, w_hh, b_ih, b_hh}, Attrs());
  return {std::move(both[0]), std::move(both[1])};
}
Tensor gru_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                const Tensor& b_hh) {
  return apply1(kGruCell, {x, h, w_ih, w_hh, b_ih, b_hh});
}

}  // namespace troupe::ops
