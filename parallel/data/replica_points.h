// Replicas that come and go: the points that they go back to, and what a newcomer takes from another one.
#pragma once
#include <string>
#include <utility>

#include "actors/worker/common_method.h"
#include "core/graph/stateful.h"
#include "rref/any_ref.h"

namespace troupe::parallel {

/// All that an actor has: internal::OwnedState, its model and the rest.
using WholeState = std::pair<StateDict, StateDict>;

/// Driver to replicas, between two steps: what forward passes change is kept, for kUndo, until two more steps
/// have begun. `step`: the one that begins. What one in its place would need of it.
inline constexpr internal::actors::CommonMethod<StateDict(int64_t step)> kKeepPoint{"replica.keep_point"};
/// Driver to replicas, at rest: that step does not come to its end, and they become as they were at its
/// beginning.
inline constexpr internal::actors::CommonMethod<void(int64_t step)> kUndo{"replica.undo"};
/// Driver to a newcomer: it trains what that replica trains.
inline constexpr internal::actors::CommonMethod<void(AnyRef replica)> kMirror{"replica.mirror"};
/// Newcomer to a replica: which of its parameters are frozen; by name, one element each.
inline constexpr internal::actors::CommonMethod<StateDict()> kTrained{"replica.trained"};
/// Driver to a newcomer, which has the optimizers of the others: it becomes as that replica is, but for what
/// the one had for itself (`own`) in whose place it is; else with streams of random numbers of its own.
inline constexpr internal::actors::CommonMethod<void(AnyRef replica, StateDict own, uint64_t rank)> kHeal{
    "replica.heal"};
/// Newcomer to a replica: all that it has.
inline constexpr internal::actors::CommonMethod<WholeState()> kWholeState{"replica.whole"};
/// Driver to a replica in whose place another one comes: what that needs of it.
inline constexpr internal::actors::CommonMethod<StateDict()> kOwnState{"replica.own"};

/// Part of every worker's set-up.
void install_points(internal::actors::Worker& worker);

}  // namespace troupe::parallel
