// Text that a model writes, in one process.
#pragma once
#include <cstdint>
#include <vector>

#include "llm/decoder.h"
#include "llm/text_batch.h"

namespace troupe::llm {

/// What each text goes on with, in batches that share a cache: a text's tokens do not depend on the others,
/// but for the rounding of products. The model is used as it is (eval() it for a model with dropout), without
/// gradients. `invalid` as TextBatch::add().
std::vector<std::vector<int64_t>> generate(Decoder& model, const std::vector<std::vector<int64_t>>& prompts,
                                           const GenerateOptions& options = {},
                                           const BatchLimits& limits = {});

/// The tokens of a pass: positions and ids as Decoder::next() takes them.
struct PassTokens {
  Tensor ids, positions, last;
};
PassTokens tokens_of(const TextStep& step, const PagedCache& cache, Device device);

}  // namespace troupe::llm
