// The next token, drawn from logits.
#pragma once
#include <cstdint>
#include <vector>

#include "core/base/generator.h"
#include "core/tensor/tensor.h"

namespace troupe::llm {

/// How a text goes on, with the names of transformers.
struct GenerateOptions {
  int64_t max_new_tokens = 100;
  double temperature = 0;  ///< of the distribution; 0: the most probable token (greedy)
  int64_t top_k = 0;       ///< from so many of the most probable; 0: all
  double top_p = 1;   ///< from the fewest most probable that have this much together (Holtzman et al. 2020)
  uint64_t seed = 0;  ///< of this text's draws: they do not depend on what else is generated
  /// A text ends behind any of these, which is a part of the result.
  std::vector<std::vector<int64_t>> stop = {};
};

/// `invalid`, naming the field, for what is out of range.
void check(const GenerateOptions& options);

/// Draws by logits [vocab_size], in float32 or wider on the CPU. Of equal ones the first comes first.
int64_t sample(const Tensor& logits, const GenerateOptions& options, Generator& generator);

}  // namespace troupe::llm
