// Attention over a sequence whose positions are cut over the ranks of a group.
#pragma once
#include <optional>
#include <string>

#include "actors/cell/task.h"
#include "collective/group.h"
#include "core/tensor/tensor.h"
#include "parallel/context/sequence.h"

namespace troupe::cp {

/// What the ranks exchange. By `heads` (Ulysses; Jacobs et al. 2023) each has all positions of some heads for
/// a while: two exchanges forward, two back; ranks beyond the number of heads wait. By `ring` (Liu et al.
/// 2023) keys and values go round, a hop for each rank but one, and sums meet by their logarithms; the
/// backward pass has them go round again, so nothing of other ranks is kept.
enum class Way { heads, ring };

struct AttentionOptions {
  Way way = Way::heads;
  bool causal = false;               ///< position i of the sequence sees positions 0 to i
  std::optional<double> scale = {};  ///< in the place of 1 / sqrt(width)
  std::string layer = {};            ///< for errors
};

/// A whole tensor, whose dimension `dim` is the sequence, is cut as the sequence is, and one that is cut so
/// is whole again: tp::cut() and tp::join().
Tensor cut(const Tensor& x, const Group& group, int64_t dim, const Sequence& sequence);
Future<Tensor> join(const Tensor& x, const Group& group, int64_t dim, const Sequence& sequence);

/// Attention of the whole sequence to itself, of which each rank has what `sequence` says:
/// q [batch, heads, some of time, width], k and v alike -> [batch, heads, some of time, width].
///
///   const cp::Sequence sequence(time, group.size());
///   const Tensor y = co_await cp::attention(q, k, v, group, sequence, {.causal = true});
///
/// k and v may have fewer heads, each for as many that follow each other in q, by Way::heads. Each member
/// calls it in a method, as conversions (parallel/tensor/convert.h), and a pass has to reach the results of
/// all. By Way::heads it can be differentiated twice; by the ring a second derivative is refused. What a
/// rank's parameters get are the gradients of its own positions: sum them over the ranks, as replicas do.
Task<Tensor> attention(Tensor q, Tensor k, Tensor v, Group group, Sequence sequence,
                       AttentionOptions options = {});

}  // namespace troupe::cp

namespace troupe::internal::cp {

using troupe::cp::AttentionOptions;
using troupe::cp::Sequence;

/// It does attention() by Way::ring, for checked tensors and more than one rank.
Task<Tensor> ring_attention(Tensor q, Tensor k, Tensor v, Group group, Sequence sequence,
                            AttentionOptions options);

}  // namespace troupe::internal::cp
