// Methods of the actor that is at work, run as part of what it does.
#pragma once
#include <string>

#include "core/async/future.h"
#include "core/value/value.h"

namespace troupe::internal::actors {

class ActorCell;

/// Position of a method of the actor, as ActorCell::find_method; `invalid`, listing those of its type, if
/// there is none.
size_t method_of(const ActorCell& cell, uint64_t id);

/// For what upper layers do in an actor's mailbox (Worker::add_actor_method): runs the actor's own method
/// `method` now, in the frame of the call being handled, without a message. Nothing is copied or recorded, so
/// results keep the history that they have in the actor. Ready at once, unless the method is a coroutine that
/// waits. Errors are those of a call: they name the method, its worker and its actor.
/// `invalid` outside actors and for a method that there is not, listing those that there are.
Future<Value> call_inline(const std::string& method, ValueList args);

}  // namespace troupe::internal::actors
