// The layer of transformers whose halves are parts.
#pragma once
#include "parallel/sharded/member_part.h"
#include "parallel/tensor/transformer.h"

namespace troupe::parallel {

/// A tp::TransformerEncoderLayer of which each half is a part, up to where the ranks sum. It is made, called
/// and named as that layer; parameters have the same names. With `norm_first` the norms are in the parts,
/// else they stay whole.
///
///   Sharded<tp::TransformerEncoderLayer> block(mesh["tp"], width, heads, options);
///   x = co_await block(x);
template <>
class Sharded<tp::TransformerEncoderLayer> final : public tp::TransformerEncoderLayer, public HasMemberParts {
 public:
  Sharded(Group group, int64_t width, int64_t heads, const Options& options = {});
  /// As other parts.
  Sharded(const Sharded& o);
  Sharded& operator=(const Sharded&) = delete;

  Task<Tensor> operator()(Tensor x);
  std::vector<MemberPart*> member_parts() override { return {&attend_, &feed_}; }

 private:
  explicit Sharded(const TransformerEncoderLayer& layer);
  MemberPart attend_, feed_;
};

}  // namespace troupe::parallel
