// All that an actor has, or the driver, and training changes: for checkpoints of whole jobs.
#pragma once
#include <map>

#include "actors/cell/actor_cell.h"
#include "core/graph/stateful.h"

namespace troupe::internal {

struct OwnedState {
  /// Parameters and buffers: of the module of an actor by the names of nn::remote_state_dict(), of other
  /// modules by class and number ("Linear#0.weight"), and tensors that only optimizers know
  /// ("adam#0.param1").
  StateDict model;
  /// Its stream of random numbers and those of modules, which of them train, and what is Stateful:
  /// "adam#0.0.exp_avg".
  StateDict rest;
};

/// Objects in whose place others say what they have.
using StandIns = std::map<const Stateful*, const Stateful*>;

/// In its mailbox. Lazy copies: as it is now. An actor that is itself Stateful speaks for all that it has.
OwnedState state_of_actor(Actor& actor, const actors::ActorCell& cell, const StandIns& stand_ins = {});
/// In its mailbox. `invalid`, naming what is missing, too much or other: the actor is then good for nothing.
void load_actor(Actor& actor, const actors::ActorCell& cell, OwnedState state);

/// In its mailbox. What a forward pass changes: streams of random numbers, buffers, and what is Stateful but
/// optimizers. Lazy copies.
StateDict forward_state_of(Actor& actor, const actors::ActorCell& cell);
/// In its mailbox. Goes on from a forward_state_of() of this actor, or of another one of its kind.
void load_forward_state(Actor& actor, const actors::ActorCell& cell, StateDict state);

/// In its mailbox. The bytes of the object, with zeros in place of what has its state elsewhere: modules,
/// what is Stateful, and what a Keep names. Others that training changes are in no checkpoint. Empty: an
/// actor that is itself Stateful, or one of ours.
std::string bytes_in_no_state(Actor& actor, const actors::ActorCell& cell);

/// The same of what the driver made, on its thread, while nothing is under way.
OwnedState state_of_driver();
void load_driver(OwnedState state);

}  // namespace troupe::internal
