// What a method may ask about the call that it handles.
#pragma once
#include <string>

#include "core/base/clock.h"

namespace troupe::this_call {

/// Nobody wants the result any more: the caller gave up, is gone, or its deadline has passed. A long plain
/// method may look now and then, and end early; a coroutine is ended at its next co_await anyway. False
/// outside calls. On the thread of the method.
bool cancelled();

/// When the caller gives up, on the worker's clock; TimePoint::max() if never.
TimePoint deadline();

/// In a coroutine method, before it waits for something else than a call: what that is, "2 trainers". A
/// caller whose deadline passes is told. Nothing outside calls.
void waits_for(std::string what);

}  // namespace troupe::this_call
