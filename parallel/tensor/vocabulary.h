// The two ends of a language model, whose vocabulary is cut over the ranks of a group.
#pragma once
#include "actors/cell/task.h"
#include "parallel/tensor/linear.h"

namespace troupe::tp {

/// nn::Embedding of which each rank has some rows: what it gives is a summand.
class VocabularyEmbedding final : public nn::Module, public CutModule {
 public:
  VocabularyEmbedding(Group group, int64_t count, int64_t width, const LinearOptions& options = {});

  /// ids int64 [..], the same on all ranks -> a summand [.., width]. `invalid` for an id that is not in the
  /// vocabulary.
  Part operator()(const Tensor& ids);
  void members(nn::Members& m) override { m("weight", weight); }
  void reset(Generator& generator) override;
  std::string str() const override;
  Placements placements() const override;

  Tensor weight;  ///< [some of count, width]

 private:
  Group group_;
  size_t rank_;
  int64_t count_, width_;
  DType dtype_;
  std::vector<int64_t> sizes_;
};

/// The mean over all rows of the negative logarithm of the probability that the logits give the target, as
/// ops::cross_entropy: logits [.., some of the classes], cut along the last dimension by `sizes`, and targets
/// int64 [..], the same on all ranks. Whole. Two sums over the ranks, whatever the number of classes.
Task<Tensor> cross_entropy(Tensor logits, Tensor targets, Group group, std::vector<int64_t> sizes);

/// The last layer: logits of some of the classes each.
class Head final : public ColumnLinear {
 public:
  using ColumnLinear::ColumnLinear;
  /// Of what forward() gave.
  Task<Tensor> cross_entropy(Tensor logits, Tensor targets) const {
    return tp::cross_entropy(std::move(logits), std::move(targets), group(), sizes());
  }
};

}  // namespace troupe::tp
