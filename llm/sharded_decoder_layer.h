// The layer of decoders whose halves are parts of a model that replicas divide.
#pragma once
#include "llm/decoder_layer.h"
#include "parallel/sharded/member_part.h"

namespace troupe::parallel {

/// A llm::DecoderLayer of which each half, with the norm before it, is a part up to where the ranks sum.
template <>
class Sharded<llm::DecoderLayer> final : public llm::DecoderLayer, public HasMemberParts {
 public:
  Sharded(const Group& group, const llm::DecoderOptions& options, int64_t number);

  Task<Tensor> operator()(Tensor x, llm::DecoderPass pass);
  std::vector<MemberPart*> member_parts() override { return {&attend_, &feed_}; }

 private:
  MemberPart attend_, feed_;
};

}  // namespace troupe::parallel
