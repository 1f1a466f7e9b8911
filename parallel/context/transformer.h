// The layer of transformers over a sequence that is cut over ranks.
#pragma once
#include "nn/transformer.h"
#include "parallel/context/attention.h"

namespace troupe::cp {

/// An nn::TransformerEncoderLayer whose input is cut along the time: each rank has the positions that
/// `sequence` gives it, and nothing of it meets but attention. Parameters have the same names and are copies;
/// the ranks sum their gradients in the backward pass, so these are equal and whole. Initial values are those
/// of one process.
///
///   x = sequence.piece(x, 1, group.rank());  // [batch, some of time, width]
///   x = co_await block(x, sequence);
///
/// Dropout is refused: weights of attention are not thinned here.
class TransformerEncoderLayer final : public nn::Module {
 public:
  using Options = nn::TransformerEncoderLayerOptions;
  TransformerEncoderLayer(Group group, int64_t width, int64_t heads, const Options& options = {.dropout = 0},
                          Way way = Way::heads);

  Task<Tensor> operator()(Tensor x, Sequence sequence);
  void members(nn::Members& m) override { m("", whole_); }
  std::string str() const override;

 private:
  Tensor copy(const Tensor& parameter, const char* name) const;
  Tensor linear(const Tensor& x, const nn::Linear& layer, const char* name) const;
  Tensor normed(const Tensor& x, const nn::LayerNorm& norm, const char* name) const;
  Task<Tensor> attend(Tensor x, Sequence sequence);
  Tensor feed(const Tensor& x) const;

  Group group_;
  int64_t width_, heads_;
  Options options_;
  Way way_;
  nn::TransformerEncoderLayer whole_;
};

}  // namespace troupe::cp
