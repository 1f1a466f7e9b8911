// The layer of transformers over a sequence that is cut over ranks, and its attention.
#pragma once
#include "parallel/context/attention.h"
#include "parallel/tensor/transformer.h"

namespace troupe::cp {

/// Who has what of a layer over a sequence that is cut.
struct Ranks {
  Ranks(Group s, Group h = {}, Group r = {})  // NOLINT(google-explicit-constructor): most have no more
      : sequence(std::move(s)), heads(std::move(h)), copies(r.size() ? std::move(r) : sequence) {}
  Group sequence;  ///< each has some positions
  Group heads;   ///< each has a part of the parameters, as in tp::TransformerEncoderLayer; none: all of them
  Group copies;  ///< each has positions, or rows, of its own: mesh.across({"ep", "cp"}); none: `sequence`
};

/// A tp::Attention, or, over no ranks of heads, an nn::MultiheadAttention, to a sequence that is cut:
///
///   x = x + co_await attention(norm(x), sequence);  // x [batch, some of time, width]
///
/// Parameters have the same names, and are copies on the ranks of the sequence, which sum their gradients.
/// Dropout is refused: weights of attention are not thinned here.
class Attention final : public nn::Module {
 public:
  using Options = nn::MultiheadAttentionOptions;
  Attention(Ranks ranks, int64_t width, int64_t heads, const Options& options = {}, Way way = Way::heads);

  /// Whole over the ranks of heads.
  Task<Tensor> operator()(Tensor x, Sequence sequence);
  void members(nn::Members& m) override { m("", whole_); }
  std::string str() const override;

 private:
  Ranks ranks_;
  AttentionOptions options_;
  tp::Attention whole_;
};

/// A tp::TransformerEncoderLayer whose input is cut along the time: each rank has the positions that
/// `sequence` gives it, and nothing of it meets but attention. Parameters have the same names and are copies
/// on the ranks of the sequence; these sum their gradients in the backward pass, so they are equal and whole.
/// Initial values are those of one process.
///
///   cp::TransformerEncoderLayer block({mesh["cp"], mesh["tp"]}, width, heads, options);
///   x = sequence.piece(x, 1, group.rank());  // [batch, some of time, width]
///   x = co_await block(x, sequence);
///
/// Dropout is refused, as of Attention.
class TransformerEncoderLayer final : public nn::Module {
 public:
  using Options = nn::TransformerEncoderLayerOptions;
  TransformerEncoderLayer(Ranks ranks, int64_t width, int64_t heads, const Options& options = {.dropout = 0},
                          Way way = Way::heads);

  Task<Tensor> operator()(Tensor x, Sequence sequence);
  void members(nn::Members& m) override { m("", whole_); }
  std::string str() const override;

 private:
  Ranks ranks_;
  int64_t width_, heads_;
  AttentionOptions options_;
  tp::TransformerEncoderLayer whole_;
};

}  // namespace troupe::cp
