// Calls beyond troupe.h: all() and any() of futures, and what a method can ask about the call that it
// handles.
#pragma once
#include "actors/cell/this_call.h"
#include "core/async/future_combinators.h"
#include "troupe/troupe.h"
