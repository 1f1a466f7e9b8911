// Where upper layers see calls pass: references and distributed autograd are interceptors, the worker knows
// neither.
#pragma once
#include <optional>

#include "actors/calls/caller_state.h"
#include "actors/cell/extension.h"
#include "actors/cell/invocation.h"
#include "net/wire/wire.h"

namespace troupe::internal::actors {

/// Thread-safe: messages of different workers are delivered at the same time. Any of these may throw Error:
/// the call then fails with it. Calls to an actor of the same worker pass through here too, in the same
/// order.
class Interceptor : public Extension {
 public:
  /// On the caller's thread, in its frame, before anything is encoded.
  virtual void outgoing_call(const CallerState&, net::Call&) {}
  /// The call could not be handed over after all: undo what outgoing_call did.
  virtual void call_not_sent(net::Call&) {}
  /// A call or reply of another worker is here, whatever becomes of it: take over what it brings, so that
  /// dropping it gives that back. On the delivering thread, before anything else looks at it; does not throw.
  virtual void arrived(WorkerId /*from*/, net::Packet&) {}
  /// On the delivering thread, before the invocation is queued. cell() is set for calls to actors.
  virtual void incoming_call(Invocation&) {}
  /// On the completing thread, in the callee's frame. Not for calls whose reply nobody waits for.
  virtual void outgoing_reply(Invocation&, net::Reply&) {}
  /// The reply could not be handed over after all: undo what outgoing_reply did.
  virtual void reply_not_sent(Invocation&, net::Reply&) {}
  /// Instead of a reply, for calls whose result stays on this worker; the result that it will have. On the
  /// completing thread.
  virtual void store_result(Invocation&, const Result<Value>&) {}
  /// A result that has gone elsewhere stays as well: a reference to it. On the completing thread.
  virtual std::optional<Value> keep_result(Invocation&, const Value&) { return {}; }
  /// On the delivering thread, before the caller's future is completed.
  virtual void incoming_reply(const CallerState&, net::Reply&) {}
  /// A call to an object that was not here a moment ago. True: it is kept and will be dispatched again or
  /// failed. False: it is here now, or will never be.
  virtual bool missing_object(const Ref<Invocation>&) { return false; }
};

}  // namespace troupe::internal::actors
