// Parameters that several stages share, each with a copy of its own: gradients are summed at the end of a
// step.
#pragma once
#include <string>
#include <tuple>
#include <vector>

#include "parallel/pipeline/skip_links.h"
#include "rref/any_ref.h"

namespace troupe::parallel {

/// A parameter of a stage's actor: of an nn::ModuleActor by its name ("head.weight"), of others by its number
/// in Actor::parameters() ("0").
struct StageParameter {
  int stage = 0;
  std::string name;
};

/// One of several copies, as its stage knows it.
struct Tie {
  std::string name;
  int64_t position = 0;  ///< among the copies: gradients are summed in their order, the same everywhere
  std::vector<SkipLink> others;  ///< where the others wait for the gradient of this one
};

/// What micro-batch gradients of ties come as: they belong to none.
inline constexpr int64_t kOfTies = -1;

/// The ties of each stage, in the order of the lists. Slots count the copies that a stage waits for, tie by
/// tie, in their order. `actors`: of the stages. `invalid`, naming stage and parameter, for lists of fewer
/// than two, for parameters that are there twice, and for actors of two stages, whose parameters are shared
/// already.
std::vector<std::vector<Tie>> connect_ties(const std::vector<std::vector<StageParameter>>& lists,
                                           const std::vector<AnyRef>& actors);

/// How many gradients a stage waits for.
size_t slots_of(const std::vector<Tie>& ties);

/// For each tie the sum over all copies: the own gradients, and what came from the others, by slot. Undefined
/// if nobody has one.
Tensors sum_of_ties(const std::vector<Tie>& ties, const Tensors& own, const Tensors& came);

}  // namespace troupe::parallel
