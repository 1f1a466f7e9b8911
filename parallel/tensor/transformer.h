// Attention and the layer of transformers, cut over the ranks of a group.
#pragma once
#include "actors/cell/task.h"
#include "nn/transformer.h"
#include "parallel/tensor/linear.h"

namespace troupe::tp {

/// nn::MultiheadAttention of which each rank has some heads, as evenly as they go: 4 heads on 3 ranks are 2,
/// 1 and 1, and a rank may have none. Its result is a summand. Parameters have the same names, of which each
/// rank has a part.
class Attention final : public nn::Module, public CutModule {
 public:
  using Options = nn::MultiheadAttentionOptions;
  Attention(Group group, int64_t width, int64_t heads, const Options& options = {});
  /// Cuts a whole one, which has those options.
  Attention(Group group, nn::MultiheadAttention& whole, int64_t heads, const Options& options);

  /// Of x, which is whole, to itself: x [batch, time, width] -> a summand.
  Part operator()(const Tensor& x);
  /// It does the same with x that is repeated, as gather() gives it.
  Part of_repeated(const Tensor& x);
  /// Its two ends, around what mixes the own heads: of x, which is whole, their queries, keys and values
  /// [batch, time, 3 * some of width]; and of the mix [batch, time, some of width] a summand is out_proj().
  Tensor projected(const Tensor& x) const;
  int64_t own_heads() const { return sizes_[rank_]; }
  /// Has its part of that one's elements from now on.
  void take(nn::MultiheadAttention& whole);
  void members(nn::Members& m) override;
  void reset(Generator& generator) override;
  std::string str() const override;
  Placements placements() const override;

  Tensor in_proj_weight;  ///< [3 * some of width, width]: of queries, keys and values
  Tensor in_proj_bias;    ///< [3 * some of width]; undefined without
  RowLinear out_proj;

 private:
  const Tensor& checked(const Tensor& x) const;
  Part of_projected(const Tensor& projected);

  Group group_;
  size_t rank_;
  int64_t width_, heads_;
  Options options_;
  std::vector<int64_t> sizes_;  // heads of the ranks
  nn::Dropout dropout_;
};

/// nn::TransformerEncoderLayer, as Megatron cuts it (Shoeybi et al. 2019): the heads of attention and what
/// lies between the two linear layers. The ranks sum twice forward and twice back. Parameters have the
/// same names; initial values are those of one process.
///
///   x = co_await block(x);
///
/// Dropout of what is whole has the same masks on all ranks, those of one process; of what is cut, each rank
/// has its own.
class TransformerEncoderLayer : public nn::Module {
 public:
  using Options = nn::TransformerEncoderLayerOptions;
  TransformerEncoderLayer(Group group, int64_t width, int64_t heads, const Options& options = {});

  /// x [batch, time, width], whole -> whole.
  Task<Tensor> operator()(Tensor x);
  /// Sequence parallel (Korthikanti et al. 2022): x [batch, some of time, width] is cut along the time, of
  /// which each rank has `times`, and so is the result. Norms, dropout and what they keep are divided over
  /// the ranks; these gather and scatter where they summed, and send as much. Cut before the first block,
  /// join behind the last one:
  ///
  ///   x = tp::cut(x, group, 1, times);
  ///   x = co_await block.of_pieces(x, times);
  ///   x = co_await tp::join(x, group, 1, times);
  Task<Tensor> of_pieces(Tensor x, std::vector<int64_t> times);
  /// Its halves, each of which ends where the ranks sum; and what then comes of x and the sum.
  Part attend(const Tensor& x);
  Tensor attended(const Tensor& x, const Tensor& sum);
  Part feed(const Tensor& x);
  Tensor fed(const Tensor& x, const Tensor& sum);
  bool norm_first() const { return options_.norm_first; }
  void members(nn::Members& m) override;
  void reset(Generator& generator) override;
  std::string str() const override;

  Attention self_attn;
  ColumnLinear linear1;
  RowLinear linear2;
  nn::LayerNorm norm1, norm2;
  nn::Dropout dropout, dropout1, dropout2;

 private:
  TransformerEncoderLayer(Group group, nn::TransformerEncoderLayer whole, int64_t width, int64_t heads,
                          const Options& options);

  Tensor normed(const nn::LayerNorm& norm, const char* name, const Tensor& piece) const;
  Tensor thinned(nn::Dropout& layer, const Tensor& piece, const std::vector<int64_t>& times) const;
  Tensor activated(const Tensor& wide) const;

  Group group_;
  int64_t width_, heads_;
  Options options_;
};

}  // namespace troupe::tp
