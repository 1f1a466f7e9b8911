// Replicas that come and go: the points that they go back to, and what a newcomer takes from another one.
#pragma once
#include <map>
#include <string>
#include <utility>

#include "actors/worker/common_method.h"
#include "core/graph/stateful.h"
#include "rref/any_ref.h"

namespace troupe::parallel {

/// In what a replica has for itself, whose spares are not those of now: they were not loaded with its own.
inline constexpr const char* kStaleSpares = "stale spares";

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
/// Newcomer to a replica: which of its parameters are frozen, and on which kind of
/// device each is; by name.
inline constexpr internal::actors::CommonMethod<StateDict()> kTrained{"replica.trained"};
/// Driver to a newcomer, which has the optimizers of the others: it becomes as that replica is, but for what
/// the one had for itself (`own`) in whose place it is; else with streams of random numbers of its own.
inline constexpr internal::actors::CommonMethod<void(AnyRef replica, StateDict own, uint64_t rank)> kHeal{
    "replica.heal"};
/// Driver to a newcomer, the same where replicas divide state: it becomes what `holder`, the replica behind
/// it, has of the one in whose place it is, and has spares of `before`.
inline constexpr internal::actors::CommonMethod<void(AnyRef holder, AnyRef before, StateDict own,
                                                     uint64_t rank)>
    kStandIn{"replica.stand_in"};
/// Driver to a replica, between two steps: its spares are the pieces of `before`, as that has them.
inline constexpr internal::actors::CommonMethod<void(AnyRef before)> kTakeSpares{"replica.take_spares"};
/// Replica to the one before it: what that has of its pieces, by optimizer; its parameters, where pieces are
/// these, by an empty name.
inline constexpr internal::actors::CommonMethod<std::map<std::string, StateDict>()> kPieces{"replica.pieces"};
/// Newcomer to a replica: all that the one before it had, as far as it is not for itself.
inline constexpr internal::actors::CommonMethod<WholeState()> kSpares{"replica.spares"};
/// Driver to replicas, between two steps: they gather the pieces of all.
inline constexpr internal::actors::CommonMethod<void()> kGather{"replica.gather"};
/// Newcomer to a replica: all that it has.
inline constexpr internal::actors::CommonMethod<WholeState()> kWholeState{"replica.whole"};
/// Driver to a replica in whose place another one comes: what that needs of it.
inline constexpr internal::actors::CommonMethod<StateDict()> kOwnState{"replica.own"};

/// Driver to an actor in whose place another one is: it ends, and calls to it fail with that text.
inline constexpr internal::actors::CommonMethod<void(std::string why)> kRetire{"replica.retire"};

/// Part of every worker's set-up.
void install_points(internal::actors::Worker& worker);

}  // namespace troupe::parallel
