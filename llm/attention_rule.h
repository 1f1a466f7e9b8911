// The keys that a query of a decoder sees, and what becomes of its scores.
#pragma once
#include <cstdint>

#include "core/tensor/tensor.h"

namespace troupe::llm {

/// The rule of one layer.
struct AttentionRule {
  double scale = 0;    ///< of scores; 0: 1 / sqrt(width)
  double softcap = 0;  ///< scores are c tanh(score / c); 0: as they are
  int64_t window = 0;  ///< a query sees so many keys, itself the last; 0: all before it
};

/// Causal attention of q [batch, heads, time, width] over k and v [batch, key heads, keys, width], each of
/// whose heads is for as many queries' heads that follow each other. The queries belong to the last `time` of
/// the keys. With a softcap, and where a window or earlier keys have to be masked, all scores are in memory.
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionRule& rule);

}  // namespace troupe::llm
