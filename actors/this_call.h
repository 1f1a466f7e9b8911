// What a method may ask about the call that it handles.
#pragma once
#include "core/clock.h"

namespace troupe::this_call {

/// Nobody wants the result any more: the caller gave up, is gone, or its deadline has passed. A long plain
/// method may look now and then, and end early; a coroutine is ended at its next co_await anyway. False
/// outside calls. On the thread of the method.
bool cancelled();

/// When the caller gives up, on the worker's clock; TimePoint::max() if never.
TimePoint deadline();

}  // namespace troupe::this_call
